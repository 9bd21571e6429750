"""Schedules: checked like a submission when they are made, and fired so that one firing makes one task.

The task of a firing carries the idempotency key `<schedule>:<firing time>`. Whoever fires submits first and moves the
schedule on afterwards, by compare-and-set: a crash in between repeats the submission, which the key answers with the
task that is there; two dispatchers at once do the same.
"""

import dataclasses
import hashlib
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import msgspec
from sqlalchemy import Row
from sqlalchemy.ext.asyncio import AsyncConnection

from app.domain.schedules import MISFIRE_AFTER, Misfire, ScheduleError, next_firing, to_fire
from app.ids import mint
from app.runtime import Runtime
from app.services import inputs
from app.services.actors import Actor, AuditEntry, check_seen
from app.services.errors import Conflict, FieldError, Invalid, NotFound, QuotaExceeded, ServiceError
from app.services.quota import OpenTasksQuota
from app.services.submission import Submission, Submitter, TenantFacts, prepare
from app.store import schedules
from app.store.database import is_data_error, is_transient
from app.store.schedules import NewSchedule
from app.store.submissions import NewTask, Stored
from app.telemetry.logs import event

log = logging.getLogger(__name__)

ENDPOINT = "schedules"
_TURN_LIMIT = 200


@dataclass(frozen=True, slots=True)
class ScheduleRequest:
    """What a schedule is to be."""

    name: str
    cron: str
    timezone: str
    misfire: Misfire
    task: Submission


async def create(runtime: Runtime, actor: Actor, tenant: TenantFacts, asked: ScheduleRequest) -> Row[Any]:
    """Store a schedule for `tenant` and return its row. Raises Invalid, or Conflict (`schedule_exists`)."""
    _check_task(runtime, actor, tenant, asked.task)
    if asked.task.input_ref is not None:
        await inputs.check_refs(runtime, tenant.tenant_id, {"#/task/input_ref": asked.task.input_ref})
    schedule_id = mint("schedule")
    entry = AuditEntry(actor, "schedule.create")

    async def once(connection: AsyncConnection) -> Row[Any]:
        try:
            first = next_firing(asked.cron, asked.timezone, await schedules.now(connection))
        except ScheduleError as error:
            raise Invalid([(f"#/{error.field}", str(error))]) from None
        row = await schedules.insert(
            connection,
            NewSchedule(
                schedule_id=schedule_id,
                tenant_id=tenant.tenant_id,
                name=asked.name,
                cron=asked.cron,
                timezone=asked.timezone,
                task=msgspec.json.encode(asked.task).decode(),
                misfire=asked.misfire,
                next_fire_at=first,
                created_by=actor.subject,
            ),
        )
        if row.schedule_id != schedule_id:
            raise Conflict("schedule_exists", "The tenant has a schedule of this name already.")
        await entry.write(connection, target=schedule_id, tenant_id=tenant.tenant_id)
        return row

    return await runtime.database.run(once)


async def page(
    runtime: Runtime, actor: Actor, *, tenant_id: str | None, before: str | None, limit: int
) -> Sequence[Row[Any]]:
    """Read schedules, newest first; `tenant_id` narrows it for the platform."""
    async with runtime.database.transaction() as connection:
        return await schedules.page(connection, tenant_id=actor.tenant_id or tenant_id, before=before, limit=limit)


async def get(runtime: Runtime, actor: Actor, schedule_id: str) -> Row[Any]:
    """Read one schedule. Raises NotFound."""
    async with runtime.database.transaction() as connection:
        return await _seen(connection, actor, schedule_id)


async def delete(runtime: Runtime, actor: Actor, schedule_id: str) -> None:
    """Remove a schedule; the tasks that it made stay. Raises NotFound."""
    entry = AuditEntry(actor, "schedule.delete")

    async def once(connection: AsyncConnection) -> None:
        row = await _seen(connection, actor, schedule_id)
        await schedules.delete(connection, schedule_id)
        await entry.write(connection, target=schedule_id, tenant_id=row.tenant_id)

    # No second try after a lost answer: it would report its own deletion as not found.
    await runtime.database.run(once, retry_for_seconds=0.0)


def task_of(row: Row[Any]) -> Submission:
    """Read what a schedule submits."""
    return msgspec.json.decode(row.task, type=Submission)


async def fire_due(runtime: Runtime) -> int:
    """Fire every schedule whose time has come; returns how many tasks were made."""
    async with runtime.database.transaction() as connection:
        due = await schedules.due(connection, _TURN_LIMIT)
    made = 0
    for row in due:
        try:
            made += await _fire(runtime, row)
        except Exception as error:
            if is_transient(error):
                raise
            # It stays due; those behind it do not wait for whoever mends it.
            event(log, "schedule_not_fired", level=logging.ERROR, error=error, schedule_id=row.schedule_id)
    return made


async def _fire(runtime: Runtime, row: Row[Any]) -> int:
    firing, following = to_fire(row.cron, row.timezone, Misfire(row.misfire), expected=row.next_fire_at, now=row.now)
    task_id, made, problem = None, 0, None
    if firing is None:
        problem = f"skipped: it was due at {_spell(row.next_fire_at)} and missed"
    else:
        try:
            task_id, made = await _submit(runtime, row, firing)
        except QuotaExceeded as error:
            if row.now - row.next_fire_at <= MISFIRE_AFTER:
                return 0
            problem = str(error)
        except ServiceError as error:
            problem = str(error)
        except Exception as error:
            if not is_data_error(error):
                raise
            problem = "a value of its task cannot be stored"

    async def once(connection: AsyncConnection) -> None:
        await schedules.move_on(
            connection,
            row.schedule_id,
            expected=row.next_fire_at,
            next_fire_at=following,
            fired_at=firing if task_id else None,
            task_id=task_id,
            last_error=problem,
        )

    await runtime.database.run(once)
    return made


async def _submit(runtime: Runtime, row: Row[Any], firing: datetime) -> tuple[str, int]:
    tenant = TenantFacts(row.tenant_id, row.service_class, row.weight, row.max_open_tasks)
    asked = task_of(row)
    key = f"{row.schedule_id}:{_spell(firing)}"
    asked = dataclasses.replace(
        asked,
        source_ref=asked.source_ref or f"schedule:{row.schedule_id}",
        source_version=asked.source_version or _spell(firing),
        idempotency_key=key,
        endpoint=ENDPOINT,
        fingerprint=hashlib.sha256(key.encode()).digest(),
    )
    task: NewTask = prepare(runtime, tenant, row.created_by, False, asked)
    if asked.input_ref is not None:
        await inputs.check_refs(runtime, tenant.tenant_id, {"#/input_ref": asked.input_ref})
    submitter = Submitter(runtime)
    if tenant.max_open_tasks is None:
        (outcome,) = await submitter.submit_many([task])
    else:
        (admitted,) = await OpenTasksQuota(runtime, submitter).submit_many(tenant, [task])
        if isinstance(admitted, QuotaExceeded):
            raise admitted
        outcome = admitted
    if isinstance(outcome, Stored):
        return outcome.task_id, 1
    return getattr(outcome, "task_id", task.task_id), 0


def _check_task(runtime: Runtime, actor: Actor, tenant: TenantFacts, task: Submission) -> None:
    once_only = [
        FieldError(f"#/task/{name}", "has no place in a schedule, whose tasks belong to many moments")
        for name in ("not_before", "due_at", "valid_until", "claims")
        if getattr(task, name) is not None
    ]
    if once_only:
        raise Invalid(once_only)
    try:
        prepare(runtime, tenant, actor.subject, False, task)
    except Invalid as error:
        moved = [FieldError(one.pointer.replace("#/", "#/task/", 1), one.detail) for one in error.errors]
        raise Invalid(moved, code=error.code, detail=error.detail) from None


async def _seen(connection: AsyncConnection, actor: Actor, schedule_id: str) -> Row[Any]:
    row = await schedules.get(connection, schedule_id)
    if row is None:
        raise NotFound
    check_seen(actor, schedule_id, row.tenant_id)
    return row


def _spell(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")
