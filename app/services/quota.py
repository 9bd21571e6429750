"""The open-task quota of a tenant, exact also for requests that race, in one process or in several.

Only tenants that have a quota come this way. What arrives together is counted once and inserted together, under a lock
of the tenant; the lock's transaction waits for nothing but the database.
"""

import asyncio
from collections.abc import Sequence

from sqlalchemy import text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection

from app.coalescer import Coalescer
from app.runtime import Runtime
from app.services.errors import QuotaExceeded
from app.services.submission import Submitter, TenantFacts
from app.store.database import DatabaseUnavailable, LockTimeout, is_data_error, sqlstate
from app.store.submissions import NewTask, Outcome, Stored

_LOCK = text("SELECT pg_advisory_xact_lock(hashtextextended('despacho quota ' || :tenant_id, 0))")
_COUNT_OPEN = text("""
SELECT (SELECT count(*) FROM (SELECT 1 FROM lanes l JOIN ready r ON r.lane_id = l.lane_id WHERE l.tenant_id = :tenant_id
                              LIMIT :most) a)
     + (SELECT count(*) FROM (SELECT 1 FROM delayed WHERE tenant_id = :tenant_id LIMIT :most) b)
     + (SELECT count(*) FROM (SELECT 1 FROM flights WHERE tenant_id = :tenant_id LIMIT :most) c) AS open
""")
_MOST_TOGETHER = 500
_COME_BACK_SECONDS = 5.0

Admitted = Outcome | QuotaExceeded


class OpenTasksQuota:
    """Commits new tasks of tenants with a quota as far as it has room, and refuses the rest."""

    def __init__(self, runtime: Runtime, submitter: Submitter) -> None:
        self._runtime = runtime
        self._submitter = submitter
        self._gates: dict[str, Coalescer[tuple[TenantFacts, NewTask], Admitted]] = {}
        self._turns: dict[str, asyncio.Lock] = {}

    async def submit(self, tenant: TenantFacts, task: NewTask) -> Admitted:
        """Commit one task or refuse it. Raises what the submitter raises."""
        gate = self._gates.get(tenant.tenant_id)
        if gate is None:
            gate = self._gates[tenant.tenant_id] = Coalescer(
                self._flush, max_items=_MOST_TOGETHER, splits_on=_is_one_tasks_fault
            )
        return await gate.submit((tenant, task))

    async def submit_many(self, tenant: TenantFacts, tasks: Sequence[NewTask]) -> list[Admitted]:
        """Commit the tasks of one request, in order, as far as there is room; the same errors."""
        return await self._flush([(tenant, task) for task in tasks])

    async def _flush(self, items: Sequence[tuple[TenantFacts, NewTask]]) -> list[Admitted]:
        tenant = items[-1][0]
        waiting = [task for _, task in items]
        answers: list[Admitted] = []

        async def under_lock(connection: AsyncConnection) -> None:
            await _lock(connection, tenant)
            room = await self._room(connection, tenant)
            # What turns out to be a replay takes no room: go on until the room is used up.
            while waiting and room > 0:
                part = waiting[:room]
                outcomes = await self._submitter.submit_many(part)
                del waiting[: len(part)]
                answers.extend(outcomes)
                room -= sum(isinstance(outcome, Stored) for outcome in outcomes)

        # Who waits for the lock holds a connection: one for each tenant and process is enough.
        async with self._turns.setdefault(tenant.tenant_id, asyncio.Lock()):
            await self._runtime.database.run(under_lock)
        return [*answers, *(_refusal(tenant) for _ in waiting)]

    async def _room(self, connection: AsyncConnection, tenant: TenantFacts) -> int:
        most = tenant.max_open_tasks or 0
        values = {"tenant_id": tenant.tenant_id, "most": most + 1}
        return most - int((await connection.execute(_COUNT_OPEN, values)).scalar_one())


def _is_one_tasks_fault(error: BaseException) -> bool:
    return is_data_error(error) or isinstance(error, LockTimeout)


async def _lock(connection: AsyncConnection, tenant: TenantFacts) -> None:
    """Take the tenant's lock. That it is held for long elsewhere is no task's fault: DatabaseUnavailable says so."""
    try:
        await connection.execute(_LOCK, {"tenant_id": tenant.tenant_id})
    except DBAPIError as error:
        if sqlstate(error) == "55P03":
            raise DatabaseUnavailable("the tenant's quota is being counted elsewhere") from error
        raise


def _refusal(tenant: TenantFacts) -> QuotaExceeded:
    return QuotaExceeded(
        "open_tasks_quota",
        f"The tenant has {tenant.max_open_tasks} open tasks, which is its limit.",
        retry_after_seconds=_COME_BACK_SECONDS,
    )
