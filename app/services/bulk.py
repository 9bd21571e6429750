"""Bulk actions: created with a fixed end, worked off in paced steps, resumable after a crash, abortable.

The sweep calls `step`; each step's work and its cursor are one commit, so a crash repeats nothing and skips nothing.
"""

import dataclasses
import json
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Row
from sqlalchemy.ext.asyncio import AsyncConnection

from app.ids import mint
from app.runtime import Runtime
from app.services import dead_letters as dead_letter_service
from app.services.actors import Actor, AuditEntry, check_seen
from app.services.errors import Conflict, Invalid, NotFound
from app.store import bulk_actions, cancellations, dead_letters
from app.store.bulk_actions import BulkKind, BulkState, NewBulkAction
from app.store.database import is_transient
from app.store.filters import DeadLetterFilter, TaskFilter, decode, encode, is_empty
from app.store.tasks import final_among

Filter = TaskFilter | DeadLetterFilter

STEP_ITEMS = 500
ERRORS_KEPT = 100
# A replay without a pace of its own is no storm either.
REPROCESS_PER_SECOND = 100.0
SCOPES = {
    BulkKind.CANCEL: "tasks:write",
    BulkKind.REPROCESS: "dead_letters:reprocess",
    BulkKind.PURGE: "dead_letters:purge",
}


async def matched(runtime: Runtime, actor: Actor, kind: BulkKind, found: Filter) -> int:
    """Count what a bulk action would touch, and touch nothing."""
    async with runtime.database.transaction() as connection:
        return (await _count(connection, kind, _scoped(actor, found)))[0]


async def create(
    runtime: Runtime,
    actor: Actor,
    kind: BulkKind,
    found: Filter,
    reason: str,
    *,
    everything: bool = False,
    limit: int | None = None,
    rate_per_second: float | None = None,
) -> Row[Any]:
    """Store a bulk action over what `found` matches now and return its row.

    Raises Invalid when the filter is empty without `everything`, or names another tenant.
    """
    if is_empty(found) and not everything:
        raise Invalid(
            [("#/filter", 'should name what to touch; to touch all of it, send "all": true')],
            code="filter_required",
            detail="An empty filter touches everything: that has to be said.",
        )
    scoped = _scoped(actor, found)
    action_id = mint("bulk")
    entry = AuditEntry(actor, f"bulk.{kind}")
    if kind is BulkKind.REPROCESS and rate_per_second is None:
        rate_per_second = REPROCESS_PER_SECOND

    async def once(connection: AsyncConnection) -> Row[Any]:
        count, upper_bound = await _count(connection, kind, scoped)
        action = NewBulkAction(
            bulk_action_id=action_id,
            tenant_id=actor.tenant_id,
            kind=kind,
            filter=encode(scoped),
            reason=reason,
            actor=actor.subject,
            state=BulkState.RUNNING if count else BulkState.DONE,
            matched=count if limit is None else min(count, limit),
            item_limit=limit,
            rate_per_second=rate_per_second,
            upper_bound=upper_bound,
        )
        await bulk_actions.insert(connection, action)
        await entry.write(connection, target=action_id, reason=reason, detail=action.filter)
        return await _get(connection, action_id)

    return await runtime.database.run(once)


async def get(runtime: Runtime, actor: Actor, bulk_action_id: str) -> Row[Any]:
    """Read one bulk action. Raises NotFound."""
    async with runtime.database.transaction() as connection:
        row = await _get(connection, bulk_action_id)
    check_seen(actor, bulk_action_id, row.tenant_id)
    return row


async def abort(runtime: Runtime, actor: Actor, bulk_action_id: str) -> Row[Any]:
    """Stop a bulk action between two steps; what it has done stays done. Raises NotFound or Conflict."""
    entry = AuditEntry(actor, "bulk.abort")

    async def once(connection: AsyncConnection) -> Row[Any]:
        check_seen(actor, bulk_action_id, (await _get(connection, bulk_action_id)).tenant_id)
        await bulk_actions.abort(connection, bulk_action_id)
        row = await _get(connection, bulk_action_id)
        if row.state == BulkState.DONE:
            raise Conflict("bulk_action_done", "The bulk action is done already.")
        await entry.write(connection, target=bulk_action_id)
        return row

    return await runtime.database.run(once)


@dataclass(frozen=True, slots=True)
class Step:
    """What one step did: `items` things touched for the action `bulk_action_id`; `ended` tasks are final now."""

    bulk_action_id: str
    items: int
    ended: tuple[str, ...] = ()


async def step(runtime: Runtime, *, above: str = "") -> Step | None:
    """Make one step of the first due bulk action above the id `above`; None when no action is due.

    An item that cannot be touched is found by going one by one, counted as failed, and passed over.
    """
    try:
        done = await runtime.database.run(lambda connection: _step(runtime, connection, above, STEP_ITEMS))
    except Exception as error:
        if is_transient(error):
            raise
        done = await runtime.database.run(lambda connection: _step(runtime, connection, above, 1))
    if done is not None and done.items:
        runtime.dispatcher_poke.poke()
        runtime.tell_ended(list(done.ended))
    return done


async def _step(runtime: Runtime, connection: AsyncConnection, above: str, most: int) -> Step | None:
    action = await bulk_actions.next_due(connection, above=above)
    if action is None:
        return None
    want = _size(action, most)
    ids = await _next(connection, action, want) if want else ()
    worked = _Worked()
    if ids:
        try:
            async with connection.begin_nested():
                worked = await _work(runtime, connection, action, ids)
        except Exception as error:
            if len(ids) > 1 or is_transient(error):
                raise
            worked = _Worked(errors=[(ids[0], type(error).__name__)])
    handled = worked.done + len(worked.errors)
    over = (
        len(ids) < want
        or not want
        or (action.item_limit and action.done + action.failed + handled >= action.item_limit)
    )
    kept = (json.loads(action.errors) + [{"id": one, "code": code} for one, code in worked.errors])[:ERRORS_KEPT]
    await bulk_actions.advance(
        connection,
        action.bulk_action_id,
        cursor=ids[-1] if ids else action.cursor,
        done=worked.done,
        failed=len(worked.errors),
        errors=json.dumps(kept),
        state=BulkState.DONE if over else BulkState.RUNNING,
        pause_seconds=len(ids) / action.rate_per_second if action.rate_per_second else 0.0,
    )
    return Step(action.bulk_action_id, handled, tuple(worked.ended))


@dataclass(slots=True)
class _Worked:
    done: int = 0
    errors: list[tuple[str, str]] = dataclasses.field(default_factory=list)
    ended: list[str] = dataclasses.field(default_factory=list)


def _size(action: Row[Any], most: int) -> int:
    """Say how many items the next step may take: about a second's worth of its pace, within its limit."""
    if action.rate_per_second:
        most = min(most, max(1, int(action.rate_per_second)))
    if action.item_limit is not None:
        most = min(most, action.item_limit - action.done - action.failed)
    return max(0, most)


async def _next(connection: AsyncConnection, action: Row[Any], limit: int) -> list[str]:
    if action.kind == BulkKind.CANCEL:
        found = decode(TaskFilter, action.filter)
        return list(
            await bulk_actions.open_tasks_after(
                connection, found, cursor=action.cursor, upper_bound=action.upper_bound, limit=limit
            )
        )
    return await dead_letters.after(
        connection,
        decode(DeadLetterFilter, action.filter),
        cursor=action.cursor,
        upper_bound=action.upper_bound,
        limit=limit,
        tasks_only=action.kind == BulkKind.REPROCESS,
    )


async def _work(runtime: Runtime, connection: AsyncConnection, action: Row[Any], ids: list[str]) -> _Worked:
    match BulkKind(action.kind):
        case BulkKind.CANCEL:
            return await _cancel(connection, action, ids)
        case BulkKind.REPROCESS:
            terms = dead_letter_service.terms(runtime)
            back = await dead_letters.reprocess(connection, ids, terms=terms, actor=action.actor, reason=action.reason)
            return _Worked(done=len(back))
        case BulkKind.PURGE:
            return _Worked(done=len(await dead_letters.purge(connection, ids)))


async def _cancel(connection: AsyncConnection, action: Row[Any], ids: list[str]) -> _Worked:
    worked, left = _Worked(), set(ids)
    # What was between two places is in one of them at the next look.
    for _ in range(3):
        done = await cancellations.cancel(connection, sorted(left), actor=action.actor, reason=action.reason)
        worked.ended += done.cancelled
        worked.done += len(done.cancelled) + len(done.requested)
        left -= done.cancelled | done.requested
        left -= await final_among(connection, sorted(left))
        if not left:
            break
    worked.errors += [(task_id, "task_moving") for task_id in sorted(left)]
    return worked


async def _count(connection: AsyncConnection, kind: BulkKind, found: Filter) -> tuple[int, str | None]:
    if isinstance(found, TaskFilter):
        return await bulk_actions.count_open_tasks(connection, found)
    return await dead_letters.count(connection, found, tasks_only=kind is BulkKind.REPROCESS)


def _scoped(actor: Actor, found: Filter) -> Filter:
    """Narrow a filter to the actor's tenant. Raises Invalid when it names another one."""
    if actor.tenant_id is None:
        return found
    if set(found.tenant_id) - {actor.tenant_id}:
        raise Invalid([("#/filter/tenant_id", "should be left out, or be the tenant of the key")])
    return dataclasses.replace(found, tenant_id=(actor.tenant_id,))


async def _get(connection: AsyncConnection, bulk_action_id: str) -> Row[Any]:
    row = await bulk_actions.get(connection, bulk_action_id)
    if row is None:
        raise NotFound
    return row
