"""`despacho tasks reclassify` and `despacho overrides`: classes given by hand."""

from datetime import UTC, datetime, timedelta
from typing import Annotated

import typer

from app.cli.client import Client, Json
from app.cli.command import Classes, Limit, Output, Reason, Tenants, command, filter_of, ids_from
from app.cli.each import each
from app.cli.ending import WrongUsage
from app.cli.output import Format, show_list, show_one, wanted
from app.cli.tasks import Ids, task_id_of, tasks
from app.domain.durations import parse_duration

_COLUMNS = (
    *("override_id", "task_id", "priority_class", "derived_class", "state"),
    *("expires_at", "created_by", "reason"),
)


def add_to(program: typer.Typer) -> None:
    """Add `overrides` to the program."""
    command(program, "overrides")(overrides)


@command(tasks, "reclassify")
def reclassify(
    client: Client,
    ids: Ids,
    priority_class: Annotated[str, typer.Option("--class", help="The class to give.")],
    reason: Reason,
    for_: Annotated[str | None, typer.Option("--for", help="How long, such as 2h.")] = None,
    until: Annotated[str | None, typer.Option("--until", help="RFC 3339, instead of --for.")] = None,
    output: Output = Format.TABLE,
) -> None:
    """Give tasks another class for a while; the one that the rules gave comes back by itself."""
    expires_at = _end(for_, until)

    def reclassify_one(id_: str) -> None:
        task = client.tasks.reclassify(id_, priority_class, reason, expires_at=expires_at)
        if output is Format.TABLE:
            typer.echo(f"{task['task_id']} {task['priority_class']}")
        else:
            show_one(task, output=output, id_of=task_id_of)

    each(ids_from(ids), reclassify_one, doing="reclassify")


def _end(for_: str | None, until: str | None) -> datetime | str:
    if (for_ is None) == (until is None):
        raise WrongUsage("say either --for or --until: a class given by hand has an end")
    if until is not None:
        return until
    try:
        return datetime.now(UTC) + timedelta(seconds=parse_duration(for_ or ""))
    except ValueError as error:
        raise WrongUsage(f"--for: {error}") from None


def overrides(
    client: Client,
    state: Annotated[str | None, typer.Option("--state", help="lasting or ended. [default: both]")] = None,
    priority_class: Classes = None,
    task: Annotated[list[str] | None, typer.Option("--task", help="Id of a task; may be repeated.")] = None,
    tenant: Tenants = None,
    limit: Limit = None,
    output: Output = Format.TABLE,
) -> None:
    """List classes given by hand, newest first."""
    found = filter_of(priority_class=priority_class, task_id=task, tenant_id=tenant)
    items = client.overrides.list(**found, state=state, at_most=wanted(output, limit))
    show_list(items, output=output, columns=_COLUMNS, id_of=_override_id, limit=limit)


def _override_id(item: Json) -> str:
    return str(item["override_id"])
