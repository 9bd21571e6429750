"""The open-task quota while the database is away, and while another process counts."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from sqlalchemy import text

from app.runtime import Runtime
from app.services.quota import OpenTasksQuota
from app.services.submission import Submission, Submitter, TenantFacts, prepare
from app.store.database import DatabaseUnavailable
from app.store.submissions import NewTask, Outcome, Stored
from tests.support.eventually import eventually
from tests.support.work import a_tenant, rows


class _AwayDatabase(Submitter):
    def __init__(self, runtime: Runtime) -> None:
        super().__init__(runtime)
        self.tries = 0

    async def submit_many(self, tasks: Sequence[NewTask]) -> list[Outcome]:
        self.tries += 1
        raise DatabaseUnavailable("away")


def _task(runtime: Runtime, tenant: TenantFacts) -> NewTask:
    return prepare(runtime, tenant, "tester", False, Submission("echo", "{}"))


async def _limited(runtime: Runtime, most: int = 100) -> TenantFacts:
    return replace(await a_tenant(runtime), max_open_tasks=most)


async def test_an_outage_is_told_to_all_who_wait_and_is_not_tried_once_for_each(runtime: Runtime) -> None:
    tenant = await _limited(runtime)
    submitter = _AwayDatabase(runtime)
    quota = OpenTasksQuota(runtime, submitter)

    tasks = [_task(runtime, tenant) for _ in range(50)]
    async with asyncio.timeout(10):
        answers = await asyncio.gather(*(quota.submit(tenant, task) for task in tasks), return_exceptions=True)

    assert {type(one) for one in answers} == {DatabaseUnavailable}


async def test_batches_of_one_tenant_that_wait_for_its_count_hold_one_connection(runtime: Runtime) -> None:
    tenant = await _limited(runtime)
    quota = OpenTasksQuota(runtime, Submitter(runtime))
    _, in_use = runtime.database.pools()["general"]
    async with runtime.database.transaction() as other:
        await other.execute(text("SELECT pg_advisory_xact_lock(hashtextextended('despacho quota ' || 'acme', 0))"))
        batches = [
            asyncio.create_task(quota.submit_many(tenant, [_task(runtime, tenant) for _ in range(2)])) for _ in range(8)
        ]

        async def waits() -> bool:
            found = await rows(runtime, "SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted")
            return bool(found)

        await eventually(waits)
        assert in_use() == 2

    answers = [one for batch in await asyncio.gather(*batches) for one in batch]
    assert {type(one) for one in answers} == {Stored}
    assert len(answers) == 16
