"""`despacho demo`: the main job on real documents, over the REST API and nothing else."""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

from rich.console import Console, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from app.cli.client import Client, Json
from app.cli.demo_documents import Document, DocumentsError, documents_from, installed_documents
from app.cli.demo_results import render_results
from app.cli.ending import CommandFailed, WrongUsage
from app.client.nouns.submitting import MOST_IN_A_BATCH

_AT_ONCE = 8


def documents_of(paths: Sequence[Path], *, on_skipped: Callable[[str], None]) -> list[Document]:
    """Return the documents of the files named, or those of the packages installed here. Raises WrongUsage."""
    if not paths:
        return installed_documents()
    try:
        return documents_from(paths, on_skipped=on_skipped)
    except DocumentsError as error:
        raise WrongUsage(str(error)) from None


def run(client: Client, documents: Sequence[Document], *, task_type: str, shown: Console) -> list[Json]:
    """Store the documents, submit a task for each, and return the final tasks in order. Raises CommandFailed."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with ExitStack() as entered:
        progress = entered.enter_context(
            Progress(*columns, console=shown, transient=True, disable=not shown.is_terminal)
        )
        storing = progress.add_task("storing", total=len(documents))
        working = progress.add_task("classifying", total=len(documents))
        run_id = f"demo-{time.time_ns():x}"
        task_ids: list[str] = []
        pool = entered.enter_context(ThreadPoolExecutor(_AT_ONCE))
        for start in range(0, len(documents), MOST_IN_A_BATCH):
            bodies: list[Json] = []
            for body in pool.map(
                lambda document: _body(client, document, task_type, run_id), documents[start:][:MOST_IN_A_BATCH]
            ):
                bodies.append(body)
                progress.advance(storing)
            task_ids += _submit(client, bodies)
        return _collect(client, task_ids, lambda done: progress.update(working, completed=done))


def table(documents: Sequence[Document], tasks: Sequence[Json]) -> RenderableType:
    """Return what to print at the end."""
    return render_results(list(zip(documents, tasks, strict=True)))


def _body(client: Client, document: Document, task_type: str, run_id: str) -> Json:
    stored = client.inputs.store(document.text.encode(), "text/plain; charset=utf-8")
    task_input = {"document": stored["input_ref"]}
    if document.expected is not None:
        task_input["expected"] = document.expected
    return {"type": task_type, "input": task_input, "group": run_id}


def _submit(client: Client, bodies: Sequence[Json]) -> list[str]:
    answer = client.tasks.create_batch(bodies)
    refused = [item["problem"] for item in answer["items"] if "problem" in item]
    if refused:
        first = refused[0]
        raise CommandFailed(
            f"{len(refused)} tasks were refused; the first: {first.get('title')}: {first.get('detail')}"
        )
    return [str(item["task"]["task_id"]) for item in answer["items"]]


def _collect(client: Client, task_ids: Sequence[str], on_done: Callable[[int], None]) -> list[Json]:
    """Wait for the tasks in turn. What ended meanwhile answers at once, so this takes no longer than the work."""
    ended: list[Json] = []
    for task_id in task_ids:
        ended.append(client.tasks.wait(task_id, None))
        on_done(len(ended))
    return ended
