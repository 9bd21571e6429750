"""`despacho tasks …`: submit, look at, wait for and cancel tasks."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from app.cli.client import Client, Json
from app.cli.command import (
    Classes,
    Groups,
    Limit,
    Output,
    Tenants,
    Types,
    command,
    filter_of,
    ids_from,
    json_from,
    noun,
)
from app.cli.each import each
from app.cli.ending import CommandFailed, WrongUsage
from app.cli.output import ALL_ROWS, Format, remark, show_list, show_one, wanted

tasks = noun("tasks", "Submit, look at, wait for and cancel tasks.")

_COLUMNS = ("task_id", "type", "status", "priority_class", "attempts", "submitted_at", "finished_at")

EVENT_COLUMNS = ("at", "kind", "reason", "actor", "detail")
ATTEMPT_COLUMNS = ("attempt", "worker_id", "started_at", "queue_seconds", "duration_seconds", "outcome", "error")

Ids = Annotated[list[str], typer.Argument(metavar="ID…", help="Ids of tasks; - reads them from stdin.")]
Id = Annotated[str, typer.Argument(metavar="ID", help="Id of a task.")]
Statuses = Annotated[list[str] | None, typer.Option("--status", help="Status; may be repeated.")]
After = Annotated[str | None, typer.Option("--submitted-after", help="RFC 3339, such as 2026-07-01T12:00:00Z.")]
Before = Annotated[str | None, typer.Option("--submitted-before", help="RFC 3339.")]
Sources = Annotated[list[str] | None, typer.Option("--source-ref", help="Reference of the source; may be repeated.")]
Seconds = Annotated[float | None, typer.Option("--timeout", min=0, help="Give up after so many seconds.")]


def task_id_of(item: Json) -> str:
    """Return what identifies a task."""
    return str(item["task_id"])


@command(tasks, "submit")
def submit(
    client: Client,
    type_: Annotated[str, typer.Option("--type", help="Task type; `despacho tasks types` lists them.")],
    input_: Annotated[str | None, typer.Option("--input", help="JSON, @file, or - for stdin.")] = None,
    input_ref: Annotated[str | None, typer.Option("--input-ref", help="A stored input instead.")] = None,
    group: Annotated[str | None, typer.Option("--group", help="Group of the task.")] = None,
    requested_class: Annotated[
        str | None, typer.Option("--class", help="Class to ask for: a signal, never the decision.")
    ] = None,
    source_ref: Annotated[str | None, typer.Option("--source-ref", help="What the task is about.")] = None,
    not_before: Annotated[str | None, typer.Option("--not-before", help="RFC 3339; start no sooner.")] = None,
    due_at: Annotated[str | None, typer.Option("--due-at", help="RFC 3339; when it should be done.")] = None,
    valid_until: Annotated[str | None, typer.Option("--valid-until", help="RFC 3339; useless after.")] = None,
    max_attempts: Annotated[int | None, typer.Option("--max-attempts", min=1, help="Fewer than the type's.")] = None,
    callback_url: Annotated[str | None, typer.Option("--callback-url", help="Told of the end by a POST.")] = None,
    metadata: Annotated[list[str] | None, typer.Option("--metadata", help="name=value; may be repeated.")] = None,
    idempotency_key: Annotated[
        str | None, typer.Option("--idempotency-key", help="The same key makes one task. [default: a random one]")
    ] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Wait for the end; exit code 1 unless it is done.")] = False,
    timeout: Seconds = None,
    output: Output = Format.TABLE,
) -> None:
    """Submit a task."""
    body = filter_of(
        type=type_,
        input_ref=input_ref,
        group=group,
        requested_class=requested_class,
        not_before=not_before,
        due_at=due_at,
        valid_until=valid_until,
        callback_url=callback_url,
    )
    if input_ is not None:
        body["input"] = json_from(input_, "--input")
    if source_ref is not None:
        body["source"] = {"ref": source_ref}
    if max_attempts is not None:
        body["max_attempts"] = max_attempts
    if metadata:
        body["metadata"] = dict(_pair(item) for item in metadata)
    task = client.tasks.create(body, idempotency_key=idempotency_key or None)
    if wait:
        task = client.tasks.wait(task["task_id"], timeout)
    show_one(task, output=output, id_of=task_id_of)
    if wait:
        _fail_unless_done([task])


@command(tasks, "get")
def get(
    client: Client,
    task_ids: Ids,
    include_input: Annotated[bool, typer.Option("--include-input", help="Show the input too.")] = False,
    output: Output = Format.TABLE,
) -> None:
    """Show tasks."""

    def show(task_id: str) -> None:
        show_one(client.tasks.get(task_id, include_input=include_input), output=output, id_of=task_id_of)

    each(ids_from(task_ids), show, doing="get")


@command(tasks, "wait")
def wait(client: Client, task_ids: Ids, timeout: Seconds = None, output: Output = Format.TABLE) -> None:
    """Wait until tasks have ended. Exit code 1 unless all are done."""
    ended: list[Json] = []

    def await_end(task_id: str) -> None:
        task = client.tasks.wait(task_id, timeout)
        show_one(task, output=output, id_of=task_id_of)
        ended.append(task)

    each(ids_from(task_ids), await_end, doing="wait")
    _fail_unless_done(ended)


@command(tasks, "list")
def list_(
    client: Client,
    status: Statuses = None,
    type_: Types = None,
    priority_class: Classes = None,
    group: Groups = None,
    source_ref: Sources = None,
    tenant: Tenants = None,
    submitted_after: After = None,
    submitted_before: Before = None,
    limit: Limit = None,
    output: Output = Format.TABLE,
) -> None:
    """List tasks, newest first."""
    found = _task_filter(status, type_, priority_class, group, source_ref, tenant, submitted_after, submitted_before)
    items = client.tasks.list(**found, at_most=wanted(output, limit))
    show_list(items, output=output, columns=_COLUMNS, id_of=task_id_of, limit=limit)


@command(tasks, "cancel")
def cancel(
    client: Client,
    task_ids: Annotated[list[str] | None, typer.Argument(metavar="[ID…]", help="Ids; - reads stdin.")] = None,
    reason: Annotated[str | None, typer.Option("--reason", help="Why; needed with filters.")] = None,
    status: Statuses = None,
    type_: Types = None,
    priority_class: Classes = None,
    group: Groups = None,
    source_ref: Sources = None,
    tenant: Tenants = None,
    submitted_after: After = None,
    submitted_before: Before = None,
    output: Output = Format.TABLE,
) -> None:
    """Cancel tasks by id, or by filter as a bulk action. A running one is asked to end."""
    found = _task_filter(status, type_, priority_class, group, source_ref, tenant, submitted_after, submitted_before)
    if bool(task_ids) == bool(found):
        raise WrongUsage("name either ids or filters (--status, --type, …), not both and not neither")
    if task_ids:
        each(ids_from(task_ids), lambda one: _cancel_one(client, one, reason, output), doing="cancel")
        return
    if reason is None:
        raise WrongUsage("--reason: say why, when tasks are cancelled by filter")
    action = client.tasks.cancel_many(reason, **found)
    show_one(action, output=output, id_of=lambda item: str(item["bulk_action_id"]))


@command(tasks, "events")
def events(client: Client, task_id: Id, output: Output = Format.TABLE) -> None:
    """Show the history of a task: every decision about it, with its reason; the last line says why it waits."""
    _story(client.tasks.events, task_id, "events", EVENT_COLUMNS, output)


@command(tasks, "attempts")
def attempts(client: Client, task_id: Id, output: Output = Format.TABLE) -> None:
    """Show the attempts of a task: who ran it, for how long, and how it ended."""
    _story(client.tasks.attempts, task_id, "attempts", ATTEMPT_COLUMNS, output)


@command(tasks, "retry-now")
def retry_now(client: Client, task_ids: Ids) -> None:
    """Make tasks due at once that wait for their next attempt or their time."""
    each(ids_from(task_ids), lambda one: _say(client.tasks.retry_now(one)), doing="retry")


@command(tasks, "types")
def types(client: Client, output: Output = Format.TABLE) -> None:
    """List the task types of this installation."""
    columns = ("name", "description", "timeout_seconds", "cost_class")
    show_list(client.task_types.list(), output=output, columns=columns, id_of=lambda i: str(i["name"]), limit=1000)


@command(tasks, "upload")
def upload(
    client: Client,
    path: Annotated[Path, typer.Argument(help="The document.")],
    content_type: Annotated[str, typer.Option("--content-type", help="Its media type.")] = "application/octet-stream",
    output: Output = Format.TABLE,
) -> None:
    """Store a document as an input, for --input-ref or a field of an input."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise WrongUsage(f"{path}: {error.strerror}") from None
    show_one(client.inputs.store(content, content_type), output=output, id_of=lambda i: str(i["input_ref"]))


def _task_filter(
    status: list[str] | None,
    type_: list[str] | None,
    priority_class: list[str] | None,
    group: list[str] | None,
    source_ref: list[str] | None,
    tenant: list[str] | None,
    submitted_after: str | None,
    submitted_before: str | None,
) -> dict[str, Json]:
    return filter_of(
        status=status,
        type=type_,
        priority_class=priority_class,
        group=group,
        source_ref=source_ref,
        tenant_id=tenant,
        submitted_after=submitted_after,
        submitted_before=submitted_before,
    )


def _cancel_one(client: Client, task_id: str, reason: str | None, output: Format) -> None:
    task = client.tasks.cancel(task_id, reason or None)
    if output is Format.TABLE:
        _say(task)
    else:
        show_one(task, output=output, id_of=task_id_of)


def _say(task: Json) -> None:
    asked = " (asked to end)" if task["status"] == "running" and task.get("cancel_requested_at") else ""
    typer.echo(f"{task['task_id']} {task['status']}{asked}")


def _story(read: Callable[[str], Json], task_id: str, what: str, columns: tuple[str, ...], output: Format) -> None:
    if output is Format.IDS:
        raise WrongUsage(f"-o ids: {what} have no ids; take table or json")
    show_list(read(task_id), output=output, columns=columns, id_of=str, limit=ALL_ROWS)


def _fail_unless_done(ended: list[Json]) -> None:
    others = [task for task in ended if task["status"] != "done"]
    for task in others:
        error = task.get("error") or {}
        remark(f"{task['task_id']} {task['status']}: {json.dumps(error.get('message') or error.get('type') or '')}")
    if others:
        raise CommandFailed(f"{len(others)} of {len(ended)} did not end as done")


def _pair(item: str) -> tuple[str, str]:
    name, equals, value = item.partition("=")
    if not name or not equals:
        raise WrongUsage("--metadata: should be name=value")
    return name, value
