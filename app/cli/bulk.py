"""`despacho bulk …`: how far a bulk action is, and stopping one."""

import sys
import time
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import Progress

from app.cli.client import Client, Json
from app.cli.command import Output, command, noun
from app.cli.ending import CommandFailed
from app.cli.output import Format, remark, show_one

bulk = noun("bulk", "Bulk actions: how far one is, waiting for it, and stopping it.")

_LOOK_EVERY_SECONDS = 0.5
Id = Annotated[str, typer.Argument(metavar="ID", help="Id of a bulk action.")]


def show_action(action: Json, output: Format) -> None:
    """Show a bulk action, or the count that a dry run answers with."""
    show_one(action, output=output, id_of=lambda item: str(item.get("bulk_action_id", item.get("matched"))))
    if output is Format.TABLE and action.get("state") == "running":
        remark(f"it goes on by itself: despacho bulk wait {action.get('bulk_action_id')}")


@command(bulk, "get")
def get(client: Client, action_id: Id, output: Output = Format.TABLE) -> None:
    """Show a bulk action."""
    show_action(client.bulk_actions.get(action_id), output)


@command(bulk, "wait")
def wait(client: Client, action_id: Id, output: Output = Format.TABLE) -> None:
    """Wait until a bulk action has ended. Exit code 1 when it was aborted or items failed."""
    shown = Console(stderr=True)
    with Progress(console=shown, transient=True, disable=not sys.stderr.isatty()) as progress:
        bar = progress.add_task(action_id, total=None)
        while (action := client.bulk_actions.get(action_id))["state"] == "running":
            progress.update(bar, total=action["matched"], completed=action["done"] + action["failed"])
            time.sleep(_LOOK_EVERY_SECONDS)
    show_action(action, output)
    if action["state"] != "done" or action["failed"]:
        raise CommandFailed(f"{action_id}: {action['state']}, {action['failed']} failed")


@command(bulk, "abort")
def abort(client: Client, action_id: Id, output: Output = Format.TABLE) -> None:
    """Stop a bulk action; what is done stays done."""
    show_action(client.bulk_actions.abort(action_id), output)
