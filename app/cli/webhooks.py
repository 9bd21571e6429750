"""`despacho webhooks …`: events for receivers of ended tasks, and the secrets that sign them."""

from typing import Annotated

import typer

from app.cli.client import Client, Json
from app.cli.command import Limit, Output, Tenants, command, ids_from, noun
from app.cli.each import each
from app.cli.output import ALL_ROWS, Format, remark, show_list, show_one, wanted

webhooks = noun("webhooks", "Webhooks: the ends of tasks, told to their callback_url.")

_COLUMNS = ("webhook_id", "task_id", "event", "state", "host", "tries", "last_status_code", "last_error_type")
_TRY_COLUMNS = ("number", "started_at", "seconds", "status_code", "error_type")


@command(webhooks, "list")
def list_(
    client: Client,
    state: Annotated[
        list[str] | None, typer.Option("--state", help="waiting, delivered or failed; may be repeated.")
    ] = None,
    task: Annotated[list[str] | None, typer.Option("--task", help="Id of a task; may be repeated.")] = None,
    tenant: Tenants = None,
    limit: Limit = None,
    output: Output = Format.TABLE,
) -> None:
    """List events, newest first."""
    items = client.webhooks.list(state=state, task_id=task, tenant_id=tenant, at_most=wanted(output, limit))
    show_list(items, output=output, columns=_COLUMNS, id_of=_webhook_id, limit=limit)


@command(webhooks, "show")
def show(
    client: Client, webhook_id: Annotated[str, typer.Argument(metavar="ID")], output: Output = Format.TABLE
) -> None:
    """Show one event with its tries."""
    found = client.webhooks.get(webhook_id)
    if output is not Format.TABLE:
        show_one(found, output=output, id_of=_webhook_id)
        return
    show_one(found, output=output, id_of=_webhook_id, fields=[name for name in found if name != "history"])
    if found["history"]:
        typer.echo("\ntries")
        show_list(found["history"], output=output, columns=_TRY_COLUMNS, id_of=str, limit=ALL_ROWS)


@command(webhooks, "redeliver")
def redeliver(
    client: Client,
    ids: Annotated[list[str], typer.Argument(metavar="ID…", help="Ids of events; - reads them from stdin.")],
) -> None:
    """Send events again at once, under the ids they have."""

    def again(webhook_id: str) -> None:
        client.webhooks.redeliver(webhook_id)
        typer.echo(f"{webhook_id} is sent again")

    each(ids_from(ids), again, doing="redeliver")


@command(webhooks, "secret")
def secret(
    client: Client,
    tenant: Annotated[str | None, typer.Option("--tenant", help="Whose events it signs. [default: default]")] = None,
    overlap_hours: Annotated[
        float, typer.Option("--overlap-hours", min=0, max=720, help="How long those before it sign along.")
    ] = 24.0,
) -> None:
    """Make a signing secret. It is shown this once: the secret alone on stdout."""
    made = client.webhook_secrets.create(tenant or None, overlap_seconds=overlap_hours * 3600)
    remark(f"{made['webhook_secret_id']} of {made['tenant_id']}: this secret is shown this once")
    typer.echo(made["secret"])


@command(webhooks, "secrets")
def secrets(
    client: Client,
    tenant: Annotated[str | None, typer.Option("--tenant", help="Only those of this tenant.")] = None,
    limit: Limit = None,
    output: Output = Format.TABLE,
) -> None:
    """List signing secrets, without the secrets, newest first."""
    columns = ("webhook_secret_id", "tenant_id", "created_by", "created_at", "valid_until")
    items = client.webhook_secrets.list(tenant_id=tenant, at_most=wanted(output, limit))
    show_list(items, output=output, columns=columns, id_of=lambda one: str(one["webhook_secret_id"]), limit=limit)


@command(webhooks, "retire")
def retire(client: Client, secret_id: Annotated[str, typer.Argument(metavar="SECRET_ID")]) -> None:
    """Have a signing secret sign nothing any more."""
    client.webhook_secrets.revoke(secret_id)
    typer.echo(f"{secret_id} retired")


def _webhook_id(item: Json) -> str:
    return str(item["webhook_id"])
