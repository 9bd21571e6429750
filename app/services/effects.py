"""Effects on the outside world: looking at them, and a person's word about one that is in doubt."""

import json
from collections.abc import Sequence
from typing import Any

from sqlalchemy import Row
from sqlalchemy.ext.asyncio import AsyncConnection

from app.domain.effects import EffectState
from app.runtime import Runtime
from app.services.actors import Actor, AuditEntry, ServiceActor, check_seen
from app.services.dead_letters import terms
from app.services.errors import Conflict, NotFound
from app.store import dead_letters, effect_lists
from app.store.filters import EffectFilter

MOST_OF_A_TASK = 1000
_MOST_WAITING = 1000
_BATCH = 200
LEFT_AFTER_SECONDS = 10.0


async def page(runtime: Runtime, found: EffectFilter, *, before: str | None, limit: int) -> Sequence[Row[Any]]:
    """Read up to `limit` effects, newest first, from below the id `before`."""
    return await runtime.database.run(
        lambda connection: effect_lists.page(connection, found, before=before, limit=limit)
    )


async def of_task(runtime: Runtime, task_id: str) -> Sequence[Row[Any]]:
    """Read the effects of a task, newest first."""
    rows = await runtime.database.run(lambda connection: effect_lists.of_task(connection, task_id, MOST_OF_A_TASK))
    return rows[::-1]


async def resolve(
    runtime: Runtime, actor: Actor, effect_id: str, outcome: EffectState, external_id: str | None, reason: str
) -> Row[Any]:
    """Record what a person found out about an effect in doubt; the tasks that wait for it go on.

    One transaction. Raises NotFound, or Conflict when it is in doubt no longer: of any number of callers one succeeds.
    """
    entry = AuditEntry(actor, "effect.resolve")
    again: list[str] = []

    async def work(connection: AsyncConnection) -> Row[Any]:
        again.clear()
        row = await _seen(connection, actor, effect_id)
        done = await effect_lists.resolve(
            connection, effect_id, state=outcome, external_id=external_id, actor=actor.subject, reason=reason
        )
        if not done:
            if await entry.is_written(connection):
                return row
            raise Conflict("effect_not_in_doubt", f"The effect is {row.state}, not in doubt.", task_id=row.task_id)
        detail = json.dumps({"outcome": outcome.value, "external_id": external_id})
        await entry.write(connection, target=effect_id, tenant_id=row.tenant_id, reason=reason, detail=detail)
        waiting = await effect_lists.dead_letters_waiting_for(
            connection, tenant_id=row.tenant_id, effect_id=effect_id, limit=_MOST_WAITING
        )
        again.extend(await _go_on(runtime, connection, actor, waiting, f"effect {effect_id} resolved: {reason}"))
        return await _seen(connection, actor, effect_id)

    resolved = await runtime.database.run(work)
    runtime.metrics.effects(resolved.effect_type, "resolved")
    if again:
        runtime.dispatcher_poke.poke()
    return resolved


async def look_after(runtime: Runtime) -> int:
    """Put in doubt what nobody comes back to, and let tasks go on whose effect became known late; tells how many."""
    again: list[str] = []

    async def work(connection: AsyncConnection) -> list[str]:
        again.clear()
        left = await effect_lists.doubt_left(connection, after_seconds=LEFT_AFTER_SECONDS, limit=_BATCH)
        known = await effect_lists.known_meanwhile(connection, _BATCH)
        actor = ServiceActor("effects sweep")
        again.extend(await _go_on(runtime, connection, actor, known, "its effect became known"))
        return left

    left = await runtime.database.run(work)
    for effect_type in left:
        runtime.metrics.effects(effect_type, "in_doubt")
    if again:
        runtime.dispatcher_poke.poke()
    return len(left) + len(again)


async def _go_on(
    runtime: Runtime, connection: AsyncConnection, actor: Actor, letters: Sequence[Row[Any]], reason: str
) -> set[str]:
    """Put the tasks of these dead letters back, as a reprocess does, and audit each."""
    if not letters:
        return set()
    ids = [letter.dead_letter_id for letter in letters]
    back = await dead_letters.reprocess(
        connection, ids, terms=terms(runtime), actor=actor.subject, reason=reason[:1000]
    )
    for letter in letters:
        if letter.task_id in back:
            entry = AuditEntry(actor, "dead_letter.reprocess")
            await entry.write(connection, target=letter.task_id, tenant_id=letter.tenant_id, reason=reason[:1000])
    return back


async def _seen(connection: AsyncConnection, actor: Actor, effect_id: str) -> Row[Any]:
    row = await effect_lists.get(connection, effect_id)
    if row is None:
        raise NotFound
    check_seen(actor, effect_id, row.tenant_id)
    return row
