"""`despacho dlq …`: what could not be done, why, and doing it again."""

from typing import Annotated

import typer

from app.cli.bulk import show_action
from app.cli.client import Client, Json
from app.cli.command import Classes, Groups, Limit, Output, Reason, Tenants, Types, command, filter_of, ids_from, noun
from app.cli.each import each
from app.cli.ending import WrongUsage
from app.cli.output import ALL_ROWS, Format, show_list, show_one, wanted
from app.cli.tasks import ATTEMPT_COLUMNS, EVENT_COLUMNS

dlq = noun("dlq", "Dead letters: what could not be done, why, and doing it again.")

_COLUMNS = ("failed_at", "task_id", "type", "error_type", "error_message", "attempts", "priority_class")

ErrorTypes = Annotated[list[str] | None, typer.Option("--error-type", help="Error type; may be repeated.")]
After = Annotated[str | None, typer.Option("--failed-after", help="RFC 3339, such as 2026-07-01T12:00:00Z.")]
Before = Annotated[str | None, typer.Option("--failed-before", help="RFC 3339.")]


def id_of(item: Json) -> str:
    """Return what identifies a dead letter: its task, or itself where a message was no task."""
    return str(item.get("task_id") or item["dead_letter_id"])


@command(dlq, "summary")
def summary(client: Client, output: Output = Format.TABLE) -> None:
    """Count dead letters by error type and type, with the rate now against the last seven days."""
    items = client.dead_letters.summary()["items"]
    columns = (
        *("error_type", "type", "count", "rate_per_hour", "baseline_per_hour"),
        *("oldest_failed_at", "newest_failed_at"),
    )
    show_list(items, output=output, columns=columns, id_of=lambda item: str(item["error_type"]), limit=ALL_ROWS)


@command(dlq, "list")
def list_(
    client: Client,
    error_type: ErrorTypes = None,
    type_: Types = None,
    priority_class: Classes = None,
    group: Groups = None,
    tenant: Tenants = None,
    failed_after: After = None,
    failed_before: Before = None,
    limit: Limit = None,
    output: Output = Format.TABLE,
) -> None:
    """List dead letters, newest first."""
    found = _filter(error_type, type_, priority_class, group, tenant, failed_after, failed_before)
    items = client.dead_letters.list(**found, at_most=wanted(output, limit))
    show_list(items, output=output, columns=_COLUMNS, id_of=id_of, limit=limit)


@command(dlq, "show")
def show(
    client: Client,
    id_: Annotated[str, typer.Argument(metavar="ID", help="Id of a task or of a dead letter.")],
    output: Output = Format.TABLE,
) -> None:
    """Show the whole story of one: attempts and history."""
    story = client.dead_letters.get(id_)
    if output is not Format.TABLE:
        show_one(story, output=output, id_of=lambda found: id_of(found["item"]))
        return
    show_one(story["item"], output=output, id_of=id_of)
    for heading, columns in (("attempts", ATTEMPT_COLUMNS), ("history", EVENT_COLUMNS)):
        if story[heading]:
            typer.echo(f"\n{heading}")
            show_list(story[heading], output=output, columns=columns, id_of=str, limit=ALL_ROWS)


@command(dlq, "sample")
def sample(
    client: Client,
    error_type: Annotated[str | None, typer.Option("--error-type", help="Error type.")] = None,
    n: Annotated[int, typer.Option("-n", min=1, max=200, help="How many.")] = 10,
    output: Output = Format.TABLE,
) -> None:
    """Show a random sample, to learn what input validation should have caught."""
    items = client.dead_letters.sample(n, error_type=error_type)
    show_list(items, output=output, columns=_COLUMNS, id_of=id_of, limit=n)


@command(dlq, "reprocess")
def reprocess(
    client: Client,
    reason: Reason,
    ids: Annotated[list[str] | None, typer.Argument(metavar="[ID…]", help="Ids of tasks; - reads stdin.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="All of them, as a paced bulk action.")] = False,
    error_type: ErrorTypes = None,
    type_: Types = None,
    priority_class: Classes = None,
    group: Groups = None,
    tenant: Tenants = None,
    failed_after: After = None,
    failed_before: Before = None,
    limit: Annotated[int | None, typer.Option("--limit", min=1, help="With filters: at most so many.")] = None,
    rate: Annotated[
        float | None, typer.Option("--rate", min=0.001, help="With filters: at most so many a second.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="With filters: only say how many match.")] = False,
    output: Output = Format.TABLE,
) -> None:
    """Give tasks a fresh attempt budget, by id, or by filter as a paced bulk action."""
    found = _filter(error_type, type_, priority_class, group, tenant, failed_after, failed_before)
    if (bool(ids), bool(found), everything).count(True) != 1:
        raise WrongUsage("name one of these: ids, filters (--error-type, --type, …), or --all")
    if ids:
        if limit is not None or rate is not None or dry_run:
            raise WrongUsage("--limit, --rate and --dry-run go with filters, not with ids")
        each(ids_from(ids), lambda one: _reprocess_one(client, one, reason, output), doing="reprocess")
        return
    act = client.dead_letters.reprocess_dry_run if dry_run else client.dead_letters.reprocess_many
    show_action(act(reason, everything=everything, limit=limit, rate_per_second=rate, **found), output)


@command(dlq, "purge")
def purge(
    client: Client,
    reason: Reason,
    everything: Annotated[bool, typer.Option("--all", help="All of them.")] = False,
    error_type: ErrorTypes = None,
    type_: Types = None,
    priority_class: Classes = None,
    group: Groups = None,
    tenant: Tenants = None,
    failed_after: After = None,
    failed_before: Before = None,
    output: Output = Format.TABLE,
) -> None:
    """Delete dead letters for good, by filter or all, as a bulk action. The audit trail stays."""
    found = _filter(error_type, type_, priority_class, group, tenant, failed_after, failed_before)
    if everything == bool(found):
        raise WrongUsage("name either filters (--error-type, --type, …) or --all")
    show_action(client.dead_letters.purge(reason, everything=everything, **found), output)


def _filter(
    error_type: list[str] | None,
    type_: list[str] | None,
    priority_class: list[str] | None,
    group: list[str] | None,
    tenant: list[str] | None,
    failed_after: str | None,
    failed_before: str | None,
) -> dict[str, Json]:
    return filter_of(
        error_type=error_type,
        type=type_,
        priority_class=priority_class,
        group=group,
        tenant_id=tenant,
        failed_after=failed_after,
        failed_before=failed_before,
    )


def _reprocess_one(client: Client, id_: str, reason: str, output: Format) -> None:
    task = client.dead_letters.reprocess(id_, reason)
    if output is Format.TABLE:
        typer.echo(f"{task['task_id']} {task['status']}")
    else:
        show_one(task, output=output, id_of=id_of)
