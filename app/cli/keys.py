"""`despacho keys …` and `despacho tenants …`: who may call, and for whom."""

import re
from datetime import UTC, datetime, timedelta
from typing import Annotated

import typer

from app.cli.client import Client, Json
from app.cli.command import Limit, Output, command, noun
from app.cli.ending import WrongUsage
from app.cli.output import Format, remark, show_list, show_one, wanted

keys = noun("keys", "Keys: who may call.")
tenants = noun("tenants", "Tenants: for whom.")

_DURATION = re.compile(r"^(\d{1,6})([smhdw])$")
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}


@command(keys, "create")
def create(
    client: Client,
    tenant: Annotated[str | None, typer.Option("--tenant", help="The tenant that the key belongs to.")] = None,
    platform: Annotated[bool, typer.Option("--platform", help="A key over all tenants.")] = False,
    role: Annotated[str | None, typer.Option("--role", help="submitter, reader, operator, approver or admin.")] = None,
    scope: Annotated[list[str] | None, typer.Option("--scope", help="A single scope; may be repeated.")] = None,
    subject: Annotated[str | None, typer.Option("--subject", help="The person or program behind it.")] = None,
    expires: Annotated[
        str | None, typer.Option("--expires", help="A time such as 90d, 12h, or RFC 3339. [default: never]")
    ] = None,
    output: Annotated[
        Format | None, typer.Option("-o", "--output", help="How to show it. [default: the key alone]")
    ] = None,
) -> None:
    """Make a key. It is shown this once: the key alone on stdout."""
    if platform == (tenant is not None):
        raise WrongUsage("give either --tenant T or --platform")
    if not role and not scope:
        raise WrongUsage("give --role or --scope")
    made = client.keys.create(
        tenant,
        role=role or None,
        scopes=scope or None,
        subject=subject or None,
        expires_at=_instant(expires) if expires else None,
    )
    if output is None:
        remark(f"{made['key_id']}: this key is shown this once")
        typer.echo(made["key"])
    else:
        show_one(made, output=output, id_of=_key_id)


@command(keys, "list")
def list_(
    client: Client,
    tenant: Annotated[str | None, typer.Option("--tenant", help="Only those of this tenant.")] = None,
    limit: Limit = None,
    output: Output = Format.TABLE,
) -> None:
    """List keys, without their secrets, newest first."""
    columns = ("key_id", "tenant_id", "role", "subject", "created_at", "expires_at", "revoked_at")
    items = client.keys.list(tenant_id=tenant, at_most=wanted(output, limit))
    show_list(items, output=output, columns=columns, id_of=_key_id, limit=limit)


@command(keys, "revoke")
def revoke(client: Client, key_id: Annotated[str, typer.Argument(metavar="KEY_ID")]) -> None:
    """Revoke a key for good; other processes know within a second."""
    client.keys.revoke(key_id)
    typer.echo(f"{key_id} revoked")


@command(tenants, "create")
def create_tenant(
    client: Client,
    tenant_id: Annotated[str, typer.Argument(metavar="TENANT_ID", help="Lower-case letters, digits, _ and -.")],
    name: Annotated[str | None, typer.Option("--name", help="Its name. [default: the id]")] = None,
    service_class: Annotated[str | None, typer.Option("--service-class", help="For the policy's rules.")] = None,
    weight: Annotated[float | None, typer.Option("--weight", help="Its share against the others. [default: 1]")] = None,
    max_open_tasks: Annotated[int | None, typer.Option("--max-open-tasks", min=0, help="Quota.")] = None,
    rate: Annotated[float | None, typer.Option("--rate", help="Submissions a second at most.")] = None,
    budget_usd: Annotated[
        str | None, typer.Option("--budget-usd", help="Dollars a day (UTC) at most, such as 10.00.")
    ] = None,
    budget_tokens: Annotated[int | None, typer.Option("--budget-tokens", min=0, help="Tokens a day at most.")] = None,
    output: Output = Format.TABLE,
) -> None:
    """Make a tenant."""
    quotas: dict[str, Json] = {"max_open_tasks": max_open_tasks} if max_open_tasks is not None else {}
    quotas |= {"submit_rate_per_second": rate} if rate is not None else {}
    budget: dict[str, Json] = {"cost_usd_per_day": budget_usd} if budget_usd is not None else {}
    budget |= {"tokens_per_day": budget_tokens} if budget_tokens is not None else {}
    made = client.tenants.create(
        tenant_id,
        name,
        service_class=service_class or None,
        weight=weight,
        quotas=quotas or None,
        budget=budget or None,
    )
    show_one(made, output=output, id_of=lambda item: str(item["tenant_id"]))


@command(tenants, "list")
def list_tenants(client: Client, limit: Limit = None, output: Output = Format.TABLE) -> None:
    """List tenants, newest first."""
    columns = ("tenant_id", "name", "service_class", "weight", "quotas", "budget", "created_at")
    items = client.tenants.list(at_most=wanted(output, limit))
    show_list(items, output=output, columns=columns, id_of=lambda item: str(item["tenant_id"]), limit=limit)


def _key_id(item: Json) -> str:
    return str(item["key_id"])


def _instant(text: str) -> str:
    """Turn 90d into the time in 90 days; other texts are for the API to judge."""
    match = _DURATION.match(text)
    if match is None:
        return text
    until = datetime.now(UTC) + timedelta(seconds=int(match[1]) * _UNITS[match[2]])
    return until.strftime("%Y-%m-%dT%H:%M:%SZ")
