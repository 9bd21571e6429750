"""Pauses: no releases of a class, task type, tenant or dependency until somebody resumes it. What runs goes on."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Row
from sqlalchemy.ext.asyncio import AsyncConnection

from app.ids import mint
from app.runtime import Runtime
from app.services.actors import Actor, AuditEntry, Hidden
from app.services.errors import Forbidden, Invalid, NotFound
from app.store import pauses, schedules
from app.store.pauses import NewPause

KINDS = ("class", "type", "tenant", "dependency")


async def create(runtime: Runtime, actor: Actor, on: str, reason: str, until: datetime | None) -> Row[Any]:
    """Pause what `on` names (`class:common`, `type:x`, `tenant:y`, `dependency:z`) and return the pause's row.

    Raises Invalid, or Forbidden when a tenant's key names anything but its own tenant.
    """
    kind, _, name = on.partition(":")
    if kind not in KINDS or not name:
        raise Invalid([("#/on", "should be class:…, type:…, tenant:… or dependency:… with a name")])
    if actor.tenant_id is not None and (kind, name) != ("tenant", actor.tenant_id):
        raise Forbidden("A tenant's key pauses its own tenant only; classes, types and dependencies serve all tenants.")
    pause = NewPause(mint("pause"), kind, name, reason, until, actor.subject)
    entry = AuditEntry(actor, "pause.create")

    async def once(connection: AsyncConnection) -> Row[Any]:
        if until is not None and until <= await schedules.now(connection):
            raise Invalid([("#/until", "has passed already: it should lie ahead")])
        if not await _is_known(runtime, connection, kind, name):
            raise Invalid([("#/on", f"there is no such {kind} here")])
        row = await pauses.insert(connection, pause)
        await entry.write(
            connection, target=pause.pause_id, tenant_id=name if kind == "tenant" else None, reason=reason
        )
        return row

    return await runtime.database.run(once)


async def page(runtime: Runtime, actor: Actor, *, before: str | None, limit: int) -> Sequence[Row[Any]]:
    """Read the pauses that last, newest first; a tenant sees those of its own."""
    async with runtime.database.transaction() as connection:
        return await pauses.page(connection, tenant_id=actor.tenant_id, before=before, limit=limit)


async def resume(runtime: Runtime, actor: Actor, pause_id: str) -> None:
    """End a pause; the dispatcher looks at once. Raises NotFound."""
    entry = AuditEntry(actor, "pause.delete")

    async def once(connection: AsyncConnection) -> None:
        row = await pauses.get(connection, pause_id)
        if row is None:
            raise NotFound
        owner = row.name if row.kind == "tenant" else None
        if actor.tenant_id is not None and actor.tenant_id != owner:
            raise Hidden(pause_id, owner)
        await pauses.delete(connection, pause_id)
        await entry.write(connection, target=pause_id, tenant_id=owner)

    # No second try after a lost answer: it would report its own deletion as not found.
    await runtime.database.run(once, retry_for_seconds=0.0)
    runtime.dispatcher_poke.poke()


async def _is_known(runtime: Runtime, connection: AsyncConnection, kind: str, name: str) -> bool:
    match kind:
        case "class":
            return name in runtime.policy.current.by_name
        case "type":
            return name in runtime.registry
        case "tenant":
            return await pauses.has_tenant(connection, name)
        case _:
            return any(name in task_type.spec.depends_on for task_type in runtime.registry.values())
