"""`despacho approvals …`: what people are asked for, and deciding."""

from typing import Annotated

import typer

from app.cli.client import Client, Json
from app.cli.command import Classes, Limit, Output, Tenants, Types, command, filter_of, ids_from, noun
from app.cli.each import each
from app.cli.output import Format, show_list, show_one, wanted

approvals = noun("approvals", "Approvals: what tasks wait to be allowed, and deciding.")

_COLUMNS = ("approval_id", "priority_class", "due_at", "type", "action", "detail", "submitted_by", "state")

States = Annotated[
    list[str] | None,
    typer.Option(
        "--state", help="pending, approved, denied, expired or withdrawn; may be repeated. [default: pending]"
    ),
]
Actions = Annotated[list[str] | None, typer.Option("--action", help="Action; may be repeated.")]
OfTasks = Annotated[list[str] | None, typer.Option("--task", help="Id of a task; may be repeated.")]
Ids = Annotated[list[str], typer.Argument(metavar="ID…", help="Ids of approvals; - reads stdin.")]
Comment = Annotated[str | None, typer.Option("--comment", help="What to say with it; kept in the history.")]
Why = Annotated[str, typer.Option("--comment", help="Why not: the reason with which the task is rejected.")]


@command(approvals, "list")
def list_(
    client: Client,
    state: States = None,
    type_: Types = None,
    priority_class: Classes = None,
    action: Actions = None,
    task: OfTasks = None,
    tenant: Tenants = None,
    limit: Limit = None,
    output: Output = Format.TABLE,
) -> None:
    """List approvals by class, oldest due first."""
    found = filter_of(
        state=state, type=type_, priority_class=priority_class, action=action, task_id=task, tenant_id=tenant
    )
    items = client.approvals.list(**found, at_most=wanted(output, limit))
    show_list(items, output=output, columns=_COLUMNS, id_of=_id, limit=limit)


@command(approvals, "show")
def show(
    client: Client,
    approval_id: Annotated[str, typer.Argument(metavar="ID", help="Id of an approval.")],
    output: Output = Format.TABLE,
) -> None:
    """Show one approval with all of its detail."""
    show_one(client.approvals.get(approval_id), output=output, id_of=_id)


@command(approvals, "approve")
def approve(client: Client, ids: Ids, comment: Comment = None, output: Output = Format.TABLE) -> None:
    """Say yes: the task goes on. Whoever submitted it cannot."""
    each(ids_from(ids), lambda one: _decide(client, one, "approve", comment, output), doing="approve")


@command(approvals, "deny")
def deny(client: Client, ids: Ids, comment: Why, output: Output = Format.TABLE) -> None:
    """Say no: the task ends as rejected. Whoever submitted it cannot."""
    each(ids_from(ids), lambda one: _decide(client, one, "deny", comment, output), doing="deny")


def _decide(client: Client, id_: str, verb: str, comment: str | None, output: Format) -> None:
    decide = client.approvals.approve if verb == "approve" else client.approvals.deny
    decided = decide(id_, comment)
    if output is Format.TABLE:
        typer.echo(f"{decided['approval_id']} {decided['state']}")
    else:
        show_one(decided, output=output, id_of=_id)


def _id(item: Json) -> str:
    return str(item["approval_id"])
