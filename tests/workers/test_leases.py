"""The guard takes the leases over while the loop is blocked, and ends a process that hangs beyond every timeout."""

import time
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from app.runtime import Runtime
from app.store.flights import Claimed
from tests.support.eventually import eventually
from tests.support.runtimes import a_runtime
from tests.support.work import claimed, rows, submitted
from tests.support.world import settings_of
from workers.leases import Lease, LeaseGuard


@pytest_asyncio.fixture
async def runtime(database_url: str) -> AsyncIterator[Runtime]:
    """The runtime of one process."""
    async with a_runtime(database_url) as opened:
        yield opened


def _guard(database_url: str, leases: list[Lease], ended: list[int]) -> LeaseGuard:
    return LeaseGuard(
        settings_of(worker={"lease_seconds": 1.5}),
        database_url,
        lambda: leases,
        "worker_1",
        blocked_after_seconds=0.2,
        end_process=ended.append,
    )


async def _seconds_left(runtime: Runtime, mine: Claimed) -> float:
    (row,) = await rows(
        runtime,
        "SELECT EXTRACT(EPOCH FROM lease_until - clock_timestamp())::float8 AS left FROM flights WHERE fence = :fence",
        fence=mine.fence,
    )
    return float(row["left"])


async def test_leases_are_renewed_while_the_loop_is_blocked_and_its_stack_is_logged(
    runtime: Runtime, database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    (mine,) = await claimed(runtime, await submitted(runtime), lease_seconds=0.5)
    ended: list[int] = []
    guard = _guard(database_url, [(mine.task_id, mine.fence, time.monotonic() + 60)], ended)

    guard.start()  # and never a beat: the loop is blocked, as far as the guard can see
    try:

        async def renewed() -> bool:
            return await _seconds_left(runtime, mine) > 1.0

        await eventually(renewed)
        await eventually(lambda: "loop_blocked" in caplog.text)
    finally:
        guard.stop()

    assert ended == []


async def test_a_loop_that_turns_keeps_the_guard_quiet(runtime: Runtime, database_url: str) -> None:
    (mine,) = await claimed(runtime, await submitted(runtime), lease_seconds=0.5)
    ended: list[int] = []
    guard = _guard(database_url, [(mine.task_id, mine.fence, time.monotonic() - 1)], ended)

    guard.start()
    try:

        async def over() -> bool:
            guard.beat()
            return await _seconds_left(runtime, mine) < 0

        await eventually(over)
    finally:
        guard.stop()

    assert ended == []


async def test_a_loop_that_hangs_beyond_every_timeout_ends_the_process(runtime: Runtime, database_url: str) -> None:
    (mine,) = await claimed(runtime, await submitted(runtime), lease_seconds=0.1)
    ended: list[int] = []
    guard = _guard(database_url, [(mine.task_id, mine.fence, time.monotonic() - 1)], ended)

    guard.start()
    try:
        await eventually(lambda: ended == [70])
    finally:
        guard.stop()

    assert await _seconds_left(runtime, mine) < 0.1


async def test_a_claim_whose_answer_was_not_read_yet_is_renewed_too(runtime: Runtime, database_url: str) -> None:
    (known, unread) = await claimed(runtime, await submitted(runtime, 2), lease_seconds=1.0)
    guard = _guard(database_url, [(known.task_id, known.fence, time.monotonic() + 60)], [])

    guard.start()
    try:
        await eventually(lambda: _both_last(runtime, known, unread))
    finally:
        guard.stop()


async def _both_last(runtime: Runtime, *mine: Claimed) -> bool:
    return all([await _seconds_left(runtime, one) > 1.05 for one in mine])
