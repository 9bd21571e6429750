"""Classes given by hand, each with a reason, an owner and an end; and tasks whose class left the policy.

The class that the rules gave comes back by itself. What is released or runs keeps its seat, and has the other class
when it comes back to the waiting.
"""

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Row
from sqlalchemy.ext.asyncio import AsyncConnection

from app.domain.lifecycle import TaskStatus, is_final
from app.domain.overrides import (
    CLASS_GONE_REASON,
    OVERRIDE_REASON,
    EndedWhy,
    expiry_problem,
    order_shift_seconds,
)
from app.ids import mint
from app.runtime import Runtime
from app.services.actors import Actor, AuditEntry, ServiceActor, check_seen
from app.services.errors import Conflict, Invalid, NotFound, Unavailable
from app.store import overrides as store
from app.store import schedules
from app.store.overrides import NewOverride, OverrideFilter, Reclassified
from app.store.tasks import get_tasks

# A task is between two places only while another transaction commits: the next look finds it in one of them.
_LOOKS = 100
_PAUSE_SECONDS = 0.005
_SYSTEM = ServiceActor("system")


@dataclass(frozen=True, slots=True)
class OverrideOrder:
    """What is asked for; `expires_at` is aware."""

    priority_class: str
    reason: str
    expires_at: datetime


async def reclassify(runtime: Runtime, actor: Actor, task_id: str, order: OverrideOrder) -> Row[Any]:
    """Put a task into another class until `expires_at`; returns its row.

    Raises NotFound, Invalid, Conflict (`task_final`) or Unavailable.
    """
    if order.priority_class not in runtime.policy.current.by_name:
        known = ", ".join(runtime.policy.current.by_name)
        raise Invalid([("#/priority_class", f"no such class in the policy; there are {known}")])
    entry, override_id = AuditEntry(actor, "task.reclassify"), mint("override")

    async def once(connection: AsyncConnection) -> Row[Any] | None:
        if await store.get(connection, override_id) is not None:
            return await _seen_task(connection, actor, task_id)  # an earlier try was committed, its answer lost
        before = await _seen_task(connection, actor, task_id)
        if problem := expiry_problem(order.expires_at, await schedules.now(connection), runtime.policy.current):
            raise Invalid([("#/expires_at", problem)])
        if is_final(before.status):
            raise Conflict("task_final", f"The task has ended as {before.status}.", task_id=task_id)
        held = await store.hold_place(connection, task_id)
        if held is None:
            return None
        await _override(runtime, connection, held, order, override_id, actor.subject)
        detail = json.dumps({"override_id": override_id, "priority_class": order.priority_class})
        await entry.write(connection, target=task_id, tenant_id=before.tenant_id, reason=order.reason, detail=detail)
        return await _seen_task(connection, actor, task_id)

    for _ in range(_LOOKS):
        row = await runtime.database.run(once)
        if row is not None:
            await _let_approvals_follow(runtime, task_id)
            runtime.metrics.override_made(order.priority_class)
            runtime.dispatcher_poke.poke()
            return row
        await asyncio.sleep(_PAUSE_SECONDS)
    raise Unavailable("task_moving", "The task kept changing places; ask again.")


async def _override(
    runtime: Runtime, connection: AsyncConnection, held: Row[Any], order: OverrideOrder, override_id: str, subject: str
) -> None:
    """Move the held task and enter the override, in place of one that lasts."""
    task = await _task(connection, held.task_id)
    before = await store.lasting(connection, held.task_id)
    if before is not None:
        await store.end(connection, before.override_id, EndedWhy.REPLACED)
    derived = (before.derived_class, before.derived_reason_code) if before else (task.priority_class, task.reason_code)
    detail = {"override_id": override_id, "expires_at": order.expires_at.isoformat().replace("+00:00", "Z")}
    await _move(
        runtime, connection, held, task, order.priority_class, OVERRIDE_REASON,
        kind="reclassified", reason=order.reason, actor=subject, more=detail,
    )  # fmt: skip
    new = NewOverride(
        override_id, held.task_id, task.tenant_id, task.type, order.priority_class, task.priority_class, *derived,
        order.reason, subject, order.expires_at,
    )  # fmt: skip
    await store.add(connection, new)


async def _move(
    runtime: Runtime,
    connection: AsyncConnection,
    held: Row[Any] | None,
    task: Row[Any],
    to: str,
    reason_code: str,
    *,
    kind: str,
    reason: str | None,
    actor: str | None,
    more: Mapping[str, object],
) -> None:
    """Move a task whose place (or, dead-lettered, whose row) is held, and tell its history where it came from."""
    if held is not None:
        shift = order_shift_seconds(runtime.policy.current, task.priority_class, to, task.due_at)
        await store.move(connection, held, to, shift_seconds=shift)
    detail = {"from": task.priority_class, "from_reason_code": task.reason_code, "to": to, **more}
    told = Reclassified(task.task_id, to, reason_code, kind, reason, actor, json.dumps(detail))
    await store.write(connection, told)


async def expire_due(runtime: Runtime, limit: int) -> int:
    """End up to `limit` overrides whose time is over: what still waits gets its derived class back.

    Returns how many ended; those of tasks that are just moving are left for the next turn.
    """
    due = await runtime.database.run(lambda connection: store.over(connection, limit))
    ended = 0
    for row in due:
        why = await runtime.database.run(lambda connection, row=row: _expire(runtime, connection, row.task_id))  # type: ignore[misc]
        if why is not None:
            ended += 1
            await _let_approvals_follow(runtime, row.task_id)
    if ended:
        runtime.dispatcher_poke.poke()
    return ended


async def _expire(runtime: Runtime, connection: AsyncConnection, task_id: str) -> EndedWhy | None:
    held = await store.hold_place(connection, task_id)
    is_dead = held is None and await store.hold_dead(connection, task_id)
    lasting = await store.lasting(connection, task_id)
    if lasting is None or lasting.expires_at > await schedules.now(connection):
        return None  # replaced meanwhile
    task = (await get_tasks(connection, [task_id])).get(task_id)
    if task is None or (is_final(task.status) and task.status != TaskStatus.DEAD_LETTERED):
        await store.end(connection, lasting.override_id, EndedWhy.TASK_ENDED)
        return EndedWhy.TASK_ENDED
    if held is None and not is_dead:
        return None  # between two places
    policy = runtime.policy.current
    known = lasting.derived_class in policy.by_name
    to = lasting.derived_class if known else policy.default_class
    await _move(
        runtime, connection, held, task, to, lasting.derived_reason_code if known else CLASS_GONE_REASON,
        kind="class_restored", reason="override_expired", actor=None, more={"override_id": lasting.override_id},
    )  # fmt: skip
    await store.end(connection, lasting.override_id, EndedWhy.EXPIRED)
    return EndedWhy.EXPIRED


async def route_strays(runtime: Runtime, limit: int) -> int:
    """Move up to `limit` tasks that wait in a class that is not in the policy to its default class.

    A version without a class in which tasks wait is refused; what a process that still had the version before accepted
    in the seconds after is found here.
    """
    policy = runtime.policy.current
    found = await runtime.database.run(lambda connection: store.strayed(connection, list(policy.by_name), limit))
    moved = 0
    for task_id in found:
        if await runtime.database.run(lambda connection, one=task_id: _route(runtime, connection, one)):  # type: ignore[misc]
            moved += 1
            await _let_approvals_follow(runtime, task_id)
    if moved:
        runtime.dispatcher_poke.poke()
    return moved


async def _route(runtime: Runtime, connection: AsyncConnection, task_id: str) -> bool:
    held = await store.hold_place(connection, task_id)
    policy = runtime.policy.current
    if held is None or held.place == "flights" or held.priority_class in policy.by_name:
        return False
    if (lasting := await store.lasting(connection, task_id)) is not None:
        await store.end(connection, lasting.override_id, EndedWhy.REPLACED)
    await _move(
        runtime, connection, held, await _task(connection, task_id), policy.default_class, CLASS_GONE_REASON,
        kind="reclassified", reason="class_gone", actor=None, more={"policy_version": policy.version},
    )  # fmt: skip
    await AuditEntry(_SYSTEM, "task.class_gone").write(connection, target=task_id, tenant_id=held.tenant_id)
    return True


async def page(runtime: Runtime, found: OverrideFilter, *, before: str | None, limit: int) -> Sequence[Row[Any]]:
    """Read overrides, newest first."""
    return await runtime.database.run(lambda connection: store.page(connection, found, before=before, limit=limit))


async def _let_approvals_follow(runtime: Runtime, task_id: str) -> None:
    await runtime.database.run(lambda connection: store.let_approvals_follow(connection, task_id))


async def _task(connection: AsyncConnection, task_id: str) -> Row[Any]:
    return (await get_tasks(connection, [task_id]))[task_id]


async def _seen_task(connection: AsyncConnection, actor: Actor, task_id: str) -> Row[Any]:
    row = (await get_tasks(connection, [task_id])).get(task_id)
    if row is None:
        raise NotFound
    check_seen(actor, task_id, row.tenant_id)
    return row
