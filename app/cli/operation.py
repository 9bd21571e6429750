"""Commands of operators: pause and resume, schedules, classes, workers, dependencies, budgets."""

from typing import Annotated

import typer

from app.cli.client import Client, Json
from app.cli.command import Limit, Output, Reason, command, json_from, noun
from app.cli.ending import WrongUsage
from app.cli.output import ALL_ROWS, Format, show_list, show_one, wanted
from app.cli.top import top

schedules = noun("schedules", "Schedules: one task per firing, never two.")
_PAUSES = ("pause_id", "on", "reason", "until", "created_at", "created_by")


def add_to(program: typer.Typer) -> None:
    """Add these commands to the program."""
    command(program, "pause")(pause)
    command(program, "resume")(resume)
    command(program, "pauses")(pauses)
    command(program, "classes")(classes)
    command(program, "workers")(workers)
    command(program, "dependencies")(dependencies)
    command(program, "budgets")(budgets)
    command(program, "top")(top)
    program.add_typer(schedules)


def pause(
    client: Client,
    on: Annotated[str, typer.Argument(metavar="WHAT", help="class:C, type:T, tenant:T or dependency:D.")],
    reason: Reason,
    until: Annotated[str | None, typer.Option("--until", help="RFC 3339. [default: until resumed]")] = None,
    output: Output = Format.TABLE,
) -> None:
    """Start no work of a class, type, tenant or dependency until it is resumed. What runs goes on."""
    if ":" not in on:
        raise WrongUsage("WHAT should be class:C, type:T, tenant:T or dependency:D")
    show_one(client.pauses.create(on, reason, until=until or None), output=output, id_of=_pause_id)


def resume(
    client: Client,
    what: Annotated[str, typer.Argument(metavar="WHAT", help="As it was paused, or the id of the pause.")],
) -> None:
    """End a pause, or every pause of class:C, type:T, tenant:T or dependency:D."""
    ids = [what] if ":" not in what else [_pause_id(p) for p in client.pauses.list() if p["on"] == what]
    if not ids:
        typer.echo(f"{what} is not paused")
    for pause_id in ids:
        client.pauses.delete(pause_id)
        typer.echo(f"{pause_id} ended")


def pauses(client: Client, limit: Limit = None, output: Output = Format.TABLE) -> None:
    """List the pauses in force."""
    items = client.pauses.list(at_most=wanted(output, limit))
    show_list(items, output=output, columns=_PAUSES, id_of=_pause_id, limit=limit)


def classes(client: Client, output: Output = Format.TABLE) -> None:
    """Show how each priority class stands."""
    columns = (
        *("name", "waiting", "released", "running", "nominal", "maximum"),
        *("oldest_waiting_seconds", "wait_p95_seconds", "started_within_target", "consumers"),
    )
    show_list(client.classes.list(), output=output, columns=columns, id_of=lambda i: str(i["name"]), limit=ALL_ROWS)


def workers(client: Client, output: Output = Format.TABLE) -> None:
    """List the live workers."""
    columns = ("worker_id", "pool", "classes", "slots", "draining", "heartbeat_at", "current_tasks")
    items = client.workers.list()
    show_list(items, output=output, columns=columns, id_of=lambda i: str(i["worker_id"]), limit=ALL_ROWS)


def dependencies(client: Client, output: Output = Format.TABLE) -> None:
    """Show which dependencies let calls through, until when not, and what is in use of their limits."""
    columns = (
        *("name", "state", "since", "closed_until", "ceiling", "in_use", "waiting"),
        *("concurrency", "requests_per_minute", "tokens_per_minute", "reserve"),
    )
    items = client.dependencies.list()
    show_list(items, output=output, columns=columns, id_of=lambda i: str(i["name"]), limit=ALL_ROWS)


def budgets(client: Client, limit: Limit = None, output: Output = Format.TABLE) -> None:
    """Show what is spent of the budgets today, and what is left."""
    columns = (
        *("on", "cost_usd_per_day", "spent_cost_usd", "remaining_cost_usd"),
        *("tokens_per_day", "spent_tokens", "remaining_tokens", "share_spent", "opens_at"),
    )
    items = client.budgets.list(at_most=wanted(output, limit))
    show_list(items, output=output, columns=columns, id_of=lambda i: str(i["on"]), limit=limit)


@command(schedules, "list")
def list_(client: Client, limit: Limit = None, output: Output = Format.TABLE) -> None:
    """List schedules."""
    columns = ("schedule_id", "name", "cron", "timezone", "next_fire_at", "last_fired_at", "last_error")
    items = client.schedules.list(at_most=wanted(output, limit))
    show_list(items, output=output, columns=columns, id_of=_schedule_id, limit=limit)


@command(schedules, "create")
def create(
    client: Client,
    name: Annotated[str, typer.Argument(help="Its name.")],
    cron: Annotated[str, typer.Option("--cron", help="Five fields, such as '0 7 * * MON-FRI'.")],
    task: Annotated[str, typer.Option("--task", help="The task to submit: JSON, @file, or - for stdin.")],
    timezone: Annotated[str, typer.Option("--timezone", help="An IANA name.")] = "UTC",
    misfire: Annotated[str, typer.Option("--misfire", help="once or skip: what becomes of missed firings.")] = "once",
    output: Output = Format.TABLE,
) -> None:
    """Make a schedule."""
    made = client.schedules.create(name, cron, json_from(task, "--task"), timezone=timezone, misfire=misfire)
    show_one(made, output=output, id_of=_schedule_id)


@command(schedules, "delete")
def delete(client: Client, schedule_id: Annotated[str, typer.Argument(metavar="ID")]) -> None:
    """Delete a schedule; what it submitted stays."""
    client.schedules.delete(schedule_id)
    typer.echo(f"{schedule_id} deleted")


def _pause_id(item: Json) -> str:
    return str(item["pause_id"])


def _schedule_id(item: Json) -> str:
    return str(item["schedule_id"])
