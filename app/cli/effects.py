"""`despacho effects …`: what tasks did outside, and saying what became of those in doubt."""

from enum import StrEnum
from typing import Annotated

import typer

from app.cli.client import Client, Json
from app.cli.command import Limit, Output, Reason, Tenants, command, filter_of, ids_from, noun
from app.cli.each import each
from app.cli.ending import WrongUsage
from app.cli.output import Format, show_list, show_one, wanted

effects = noun("effects", "Effects: what tasks did outside, at most once per key.")

_COLUMNS = ("effect_id", "state", "type", "key", "external_id", "task_id", "call_until")


class Outcome(StrEnum):
    """What a look outside showed."""

    CONFIRMED = "confirmed"
    NOT_SENT = "not_sent"


@command(effects, "list")
def list_(
    client: Client,
    state: Annotated[
        list[str] | None,
        typer.Option("--state", help="reserved, confirmed, not_sent or in_doubt; may be repeated."),
    ] = None,
    type_: Annotated[list[str] | None, typer.Option("--type", help="Effect type; may be repeated.")] = None,
    task: Annotated[list[str] | None, typer.Option("--task", help="Id of a task; may be repeated.")] = None,
    tenant: Tenants = None,
    limit: Limit = None,
    output: Output = Format.TABLE,
) -> None:
    """List effects, newest first; `--state in_doubt` are those that wait for you."""
    found = filter_of(state=state, type=type_, task_id=task, tenant_id=tenant)
    items = client.effects.list(**found, at_most=wanted(output, limit))
    show_list(items, output=output, columns=_COLUMNS, id_of=_effect_id, limit=limit)


@command(effects, "resolve")
def resolve(
    client: Client,
    ids: Annotated[list[str], typer.Argument(metavar="ID…", help="Ids of effects; - reads stdin.")],
    outcome: Annotated[Outcome, typer.Option("--outcome", help="What a look outside showed.")],
    reason: Reason,
    external_id: Annotated[
        str | None, typer.Option("--external-id", help="The id it has outside; with one ID and --outcome confirmed.")
    ] = None,
    output: Output = Format.TABLE,
) -> None:
    """Say what became of effects in doubt; the tasks that were dead-lettered for them go on."""
    if external_id is not None and (outcome is not Outcome.CONFIRMED or len(ids) != 1 or ids == ["-"]):
        raise WrongUsage("--external-id goes with exactly one ID and --outcome confirmed")

    def resolve_one(id_: str) -> None:
        _show(client.effects.resolve(id_, outcome.value, reason, external_id=external_id), output)

    each(ids_from(ids), resolve_one, doing="resolve")


def _show(effect: Json, output: Format) -> None:
    if output is Format.TABLE:
        typer.echo(f"{effect['effect_id']} {effect['state']}")
    else:
        show_one(effect, output=output, id_of=_effect_id)


def _effect_id(item: Json) -> str:
    return str(item["effect_id"])
