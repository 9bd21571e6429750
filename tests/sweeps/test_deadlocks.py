"""Four kinds of writers over the same tasks, ids in opposite orders: no deadlock reaches anybody."""

import asyncio
import time
from collections.abc import Awaitable, Callable

from app.domain.lifecycle import Move
from app.domain.outcome import Settlement
from app.runtime import Runtime
from app.services import bulk
from app.services.actors import ServiceActor
from app.services.cancellation import cancel_task
from app.services.errors import Conflict
from app.store.bulk_actions import BulkKind
from app.store.filters import TaskFilter
from app.store.settlements import settle
from tests.support.work import claimed, rows, submitted
from workers.sweeps import bulk as bulk_sweep
from workers.sweeps import expiry, rescuer

ACME = ServiceActor("ana", "key_1", "acme")
SECONDS = 4.0


async def test_reaper_bulk_cancel_complete_and_expiry_never_deadlock(runtime: Runtime) -> None:
    task_ids = await submitted(runtime, 500)
    until = time.monotonic() + SECONDS
    finished = 0

    async def complete() -> None:
        nonlocal finished
        mine = (await claimed(runtime, list(reversed(task_ids))[:60], worker_id="completer"))[::-1]
        done = [Settlement(one.task_id, one.fence, Move.FINISH, "done", result="1") for one in mine[:5]]
        back = [Settlement(one.task_id, one.fence, Move.RETURN, "returned", spent=False) for one in mine[5:]]
        for batch in (done, back):
            if batch:
                finished += len(await settle(runtime.database, batch))

    async def reap() -> None:
        await claimed(runtime, task_ids[:200], worker_id="lost", lease_seconds=0.01)
        await rescuer.run_once(runtime)
        await rows(runtime, "UPDATE delayed SET due_at = clock_timestamp() WHERE due_at > clock_timestamp()")

    async def cancel() -> None:
        await bulk.create(runtime, ACME, BulkKind.CANCEL, TaskFilter(type=("echo",)), "r", limit=7)
        await bulk_sweep.run_once(runtime)
        try:
            await cancel_task(runtime, ACME, task_ids[int(time.monotonic() * 1000) % 500])
        except Conflict as refused:
            assert refused.code == "task_final"

    async def expire() -> None:
        await rows(
            runtime,
            "UPDATE ready SET valid_until = clock_timestamp() WHERE task_id IN "
            "(SELECT task_id FROM ready ORDER BY task_id DESC LIMIT 3 FOR UPDATE SKIP LOCKED)",
        )
        await expiry.run_once(runtime)

    async def loop(turn: Callable[[], Awaitable[None]]) -> int:
        turns = 0
        while time.monotonic() < until:
            await turn()
            turns += 1
        return turns

    turns = await asyncio.gather(*(loop(turn) for turn in (complete, reap, cancel, expire)))

    assert min(turns) > 3, turns
    (database,) = await rows(runtime, "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()")
    assert database["deadlocks"] == 0
    places = await rows(
        runtime,
        "SELECT t.status, p.place, count(*) AS n FROM tasks t LEFT JOIN ("
        "SELECT task_id, 'ready' AS place FROM ready UNION ALL SELECT task_id, 'delayed' FROM delayed "
        "UNION ALL SELECT task_id, CASE WHEN fence IS NULL THEN 'released' ELSE 'claimed' END FROM flights"
        ") p ON p.task_id = t.task_id GROUP BY t.status, p.place",
    )
    right = {
        "queued": {"ready", "delayed", "released"},
        "running": {"claimed"},
        "failed_retryable": {"delayed"},
        "cancelled": {None},
        "expired": {None},
        "done": {None},
        "dead_lettered": {None},
    }
    assert all(row["place"] in right[row["status"]] for row in places), places
    assert sum(row["n"] for row in places) == 500
    assert {"cancelled", "expired", "done"} <= {row["status"] for row in places}
    assert finished > 0
