"""The open-task quota of a tenant, exact also for requests that race, in one process or in several.

Only tenants that have a quota come this way. What arrives together is counted once and inserted together, under a lock
of the tenant; the lock's transaction waits for nothing but the database.
"""

import asyncio
from collections.abc import Sequence

from sqlalchemy.ext.asyncio import AsyncConnection

from app.coalescer import Coalescer
from app.runtime import Runtime
from app.services.errors import QuotaExceeded
from app.services.submission import Submitter, TenantFacts
from app.store import open_tasks
from app.store.database import LockTimeout, is_data_error
from app.store.submissions import NewTask, Outcome, Stored

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
                self._flush, max_items=_MOST_TOGETHER, splits_on=_is_of_one
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
            await open_tasks.lock(connection, tenant.tenant_id)
            most = tenant.max_open_tasks or 0
            room = most - await open_tasks.count(connection, tenant.tenant_id, at_most=most + 1)
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


def _is_of_one(error: BaseException) -> bool:
    """Say whether one task is at fault (its values, or its key that is held elsewhere) and its neighbours may pass."""
    return is_data_error(error) or isinstance(error, LockTimeout)


def _refusal(tenant: TenantFacts) -> QuotaExceeded:
    return QuotaExceeded(
        "open_tasks_quota",
        f"The tenant has {tenant.max_open_tasks} open tasks, which is its limit.",
        retry_after_seconds=_COME_BACK_SECONDS,
    )
