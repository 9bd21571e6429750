"""Dead letters: looking at them, putting one back, and recording the messages that never were a task.

A malformed message belongs to no tenant: only the platform sees it. A message that went past the broker's delivery
limit says nothing about its task, because the database is the truth: while the task is released and unclaimed it goes
back to the waiting as a new stay, and only when that happened `OVER_DELIVERIES` times in a row of the same life (so
that every worker that receives it dies or gives it back) is it dead-lettered as `delivery_limit`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Row
from sqlalchemy.ext.asyncio import AsyncConnection

from app.broker.base import Delivery, Malformed, TaskMessage
from app.domain.task_types import COST_WEIGHTS
from app.ids import mint
from app.runtime import Runtime
from app.services import history
from app.services.actors import Actor, AuditEntry, check_seen
from app.services.errors import Conflict, NotFound
from app.store import dead_letters, over_delivered
from app.store.dead_letters import Terms
from app.store.filters import DeadLetterFilter
from app.store.tasks import get_tasks

OVER_DELIVERIES = 3


async def page(
    runtime: Runtime, actor: Actor, found: DeadLetterFilter, *, before: str | None, limit: int
) -> Sequence[Row[Any]]:
    """Read up to `limit` dead letters, newest first, from below the dead-letter id `before`."""
    async with runtime.database.transaction() as connection:
        return await dead_letters.page(connection, found, tenant_id=actor.tenant_id, before=before, limit=limit)


async def sample(runtime: Runtime, actor: Actor, found: DeadLetterFilter, *, n: int) -> Sequence[Row[Any]]:
    """Draw `n` dead letters at random."""
    async with runtime.database.transaction() as connection:
        return await dead_letters.sample(connection, found, tenant_id=actor.tenant_id, n=n)


@dataclass(frozen=True, slots=True)
class Story:
    """One dead letter with everything that led to it; a malformed message has neither task nor history."""

    item: Row[Any]
    task: Row[Any] | None
    history: history.Story | None


async def story(runtime: Runtime, actor: Actor, either_id: str) -> Story:
    """Read one dead letter, by its id or its task's, with task and history. Raises NotFound."""
    async with runtime.database.transaction() as connection:
        item = await _seen(connection, actor, either_id)
        if item.task_id is None:
            return Story(item, None, None)
        task = (await get_tasks(connection, [item.task_id])).get(item.task_id)
    return Story(item, task, None if task is None else await history.read_story(runtime, task))


@dataclass(frozen=True, slots=True)
class SummaryLine:
    """The dead letters of one error type and task type that lie here now; rates are per hour.

    `baseline_per_hour` is the mean of the last 7 days. What was reprocessed or purged is in neither rate.
    """

    error_type: str
    type: str | None
    count: int
    oldest_failed_at: datetime
    newest_failed_at: datetime
    rate_per_hour: float
    baseline_per_hour: float


async def summary(runtime: Runtime, actor: Actor) -> list[SummaryLine]:
    """Summarise the dead letters, the most frequent first."""
    async with runtime.database.transaction() as connection:
        rows = await dead_letters.summary(connection, tenant_id=actor.tenant_id)
    return [
        SummaryLine(
            row.error_type,
            row.type,
            row.n,
            row.oldest_failed_at,
            row.newest_failed_at,
            float(row.last_hour),
            row.last_7_days / (7 * 24),
        )
        for row in rows
    ]


def terms(runtime: Runtime) -> Terms:
    """Say what places of returning tasks are computed from, by the policy in force."""
    return Terms(
        {str(name): weight for name, weight in COST_WEIGHTS.items()},
        {one.name: one.start_within_seconds for one in runtime.policy.current.classes},
    )


async def reprocess(runtime: Runtime, actor: Actor, either_id: str, reason: str) -> Row[Any]:
    """Put one dead task back with a fresh attempt budget and its history kept; returns the task's row.

    Raises NotFound, or Conflict when it is not dead (any more): of any number of callers one succeeds.
    """
    entry = AuditEntry(actor, "dead_letter.reprocess")
    task_id = either_id

    async def once(connection: AsyncConnection) -> Row[Any]:
        nonlocal task_id
        item = await dead_letters.get(connection, either_id)
        if item is None:
            return await _back_already(connection, actor, task_id, entry)
        check_seen(actor, either_id, item.tenant_id)
        if item.task_id is None:
            raise Conflict("not_reprocessable", "A malformed message has no task that could run: purge it.")
        task_id = item.task_id
        back = await dead_letters.reprocess(
            connection, [item.dead_letter_id], terms=terms(runtime), actor=actor.subject, reason=reason
        )
        if not back:
            return await _back_already(connection, actor, task_id, entry)
        await entry.write(connection, target=task_id, tenant_id=item.tenant_id, reason=reason)
        return (await get_tasks(connection, [task_id]))[task_id]

    row = await runtime.database.run(once)
    runtime.metrics.dead_letters_reprocessed(row.priority_class, row.type)
    runtime.dispatcher_poke.poke()
    return row


async def record_malformed(
    runtime: Runtime,
    malformed: Malformed,
    redelivered: bool,
    why: str | None = None,
    priority_class: str | None = None,
) -> bool:
    """Record a message that could not be read as a dead letter without a task; commit, then ack.

    False when the very same message was recorded before: it came again because its ack was lost. `why` says more of
    how it came here and never quotes the body.
    """
    dead_letter_id = mint("dead")
    what = f"{malformed.reason} ({malformed.size_bytes} bytes)"

    async def once(connection: AsyncConnection) -> bool:
        return await dead_letters.record_malformed(
            connection,
            dead_letter_id,
            priority_class=priority_class,
            why=what if why is None else f"{why}: {what}",
            body_sha256=malformed.body_sha256,
            redelivered=redelivered,
        )

    recorded = await runtime.database.run(once, retry_for_seconds=runtime.settings.database.retry_for_seconds)
    if recorded:
        runtime.metrics.dead_lettered(priority_class, None, "malformed_message")
    return recorded


async def record_dead_delivery(runtime: Runtime, delivery: Delivery) -> str:
    """Decide about one delivery from the broker's dead-letter queue by its row or, unreadable, by its body.

    Commit, then ack. Returns `malformed`, `stale` (this stay of the task is over: nothing to do), `handed_back` or
    `dead_lettered`.
    """
    reason = delivery.dead_reason or "unknown reason"
    match delivery.message:
        case Malformed() as malformed:
            await record_malformed(runtime, malformed, delivery.redelivered, reason, delivery.priority_class)
            return "malformed"
        case TaskMessage() as message:
            answer = await _give_up_or_hand_back(runtime, message, reason)
            if answer == "dead_lettered":
                runtime.metrics.dead_lettered(delivery.priority_class, message.type, "delivery_limit")
            return answer


async def _give_up_or_hand_back(runtime: Runtime, message: TaskMessage, reason: str) -> str:
    dead_letter_id = mint("dead")
    task_id, dispatch = message.task_id, message.dispatch

    async def once(connection: AsyncConnection) -> str:
        times = await over_delivered.times_before(connection, task_id=task_id, dispatch=dispatch)
        if times is None:
            return "stale"
        if times + 1 < OVER_DELIVERIES:
            await over_delivered.hand_back(connection, task_id=task_id, dispatch=dispatch, reason=reason)
            return "handed_back"
        why = f"the broker gave its message up {OVER_DELIVERIES} times ({reason}): no worker could take it"
        await dead_letters.bury_unclaimed(connection, dead_letter_id, task_id=task_id, dispatch=dispatch, why=why)
        return "dead_lettered"

    answer = await runtime.database.run(once, retry_for_seconds=runtime.settings.database.retry_for_seconds)
    if answer == "handed_back":
        runtime.dispatcher_poke.poke()
    if answer == "dead_lettered":
        runtime.tell_ended([task_id])
    return answer


async def _seen(connection: AsyncConnection, actor: Actor, either_id: str) -> Row[Any]:
    item = await dead_letters.get(connection, either_id)
    if item is None:
        raise NotFound
    check_seen(actor, either_id, item.tenant_id)
    return item


async def _back_already(connection: AsyncConnection, actor: Actor, task_id: str, entry: AuditEntry) -> Row[Any]:
    """Return the task if this very action put it back and only the answer was lost. Raises NotFound or Conflict."""
    row = (await get_tasks(connection, [task_id])).get(task_id)
    if row is None:
        raise NotFound
    check_seen(actor, task_id, row.tenant_id)
    if not await entry.is_written(connection):
        raise Conflict("not_dead_lettered", f"The task is {row.status}, not dead-lettered.", task_id=task_id)
    return row
