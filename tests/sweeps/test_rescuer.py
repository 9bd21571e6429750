"""Running tasks come back from dead workers, and only from dead ones."""

import asyncio

from app.domain.lifecycle import Move
from app.domain.outcome import Settlement
from app.runtime import Runtime
from app.services.actors import ServiceActor
from app.services.cancellation import cancel_task
from app.store.flights import SERVER_UP_SECONDS
from app.store.settlements import settle
from tests.support.eventually import eventually
from tests.support.metrics import value
from tests.support.work import claimed, rows, status_of, submitted
from workers.sweeps.rescuer import CRASHES_SPARE, Watch, run_once, watch_of

ACME = ServiceActor("ana", "key_1", "acme")
_SERVER_IS_UP = (
    f"SELECT 1 WHERE pg_postmaster_start_time() < clock_timestamp() - interval '{SERVER_UP_SECONDS} seconds'"
)


async def lose_leases(runtime: Runtime) -> None:
    """Let every lease end now, on a server that has been up for long enough that this proves a worker lost."""
    await eventually(lambda: rows(runtime, _SERVER_IS_UP))
    await rows(runtime, "UPDATE flights SET lease_until = clock_timestamp() - interval '1 second'")


async def test_the_tasks_of_a_dead_worker_come_back_at_once_with_the_attempt_charged(runtime: Runtime) -> None:
    lost = await submitted(runtime, 3)
    (alive,) = await submitted(runtime)
    await claimed(runtime, lost, worker_id="dead")
    await lose_leases(runtime)
    await claimed(runtime, [alive], worker_id="alive")

    assert await run_once(runtime) == 3

    assert await status_of(runtime, alive) == "running"
    assert {await status_of(runtime, task_id) for task_id in lost} == {"failed_retryable"}
    again = await claimed(runtime, lost, worker_id="alive")
    assert [(one.attempt, one.crashes) for one in again] == [(2, 1)] * 3
    attempts = await rows(runtime, "SELECT outcome, spent, error_type, worker_id FROM attempts")
    assert attempts == [
        {"outcome": "worker_lost", "spent": True, "error_type": "worker_lost", "worker_id": "dead"}
    ] * 3  # fmt: skip


async def test_a_late_worker_cannot_finish_what_was_taken_back(runtime: Runtime) -> None:
    (task_id,) = await submitted(runtime)
    (old,) = await claimed(runtime, [task_id], worker_id="frozen")
    await lose_leases(runtime)
    await run_once(runtime)
    (new,) = await claimed(runtime, [task_id], worker_id="alive")

    late = await settle(runtime.database, [Settlement(task_id, old.fence, Move.FINISH, "done", result='"late"')])
    right = await settle(runtime.database, [Settlement(task_id, new.fence, Move.FINISH, "done", result='"right"')])

    assert (late, right) == (set(), {task_id})
    assert await rows(runtime, "SELECT status, result FROM tasks") == [{"status": "done", "result": '"right"'}]


async def test_a_task_that_was_to_be_cancelled_is_cancelled_when_its_worker_dies(runtime: Runtime) -> None:
    (task_id,) = await submitted(runtime)
    await claimed(runtime, [task_id])
    assert (await cancel_task(runtime, ACME, task_id)).requested
    await lose_leases(runtime)

    await run_once(runtime)

    assert await status_of(runtime, task_id) == "cancelled"
    assert await rows(runtime, "SELECT 1 FROM delayed") == []


async def test_a_task_that_kills_every_worker_ends_in_the_dead_letters(runtime: Runtime) -> None:
    (task_id,) = await submitted(runtime, max_attempts=2)
    lives = 0
    while await status_of(runtime, task_id) != "dead_lettered":
        await rows(runtime, "UPDATE delayed SET due_at = clock_timestamp()")
        assert len(await claimed(runtime, [task_id])) == 1
        await lose_leases(runtime)
        assert await run_once(runtime) == 1
        lives += 1

    assert lives == 2 + CRASHES_SPARE
    lane = {"priority_class": "common", "type": "echo"}
    assert value(runtime.metrics, "despacho_attempts_total", **lane, outcome="worker_lost") == lives
    assert value(runtime.metrics, "despacho_tasks_finished_total", **lane, status="dead_lettered") == 1
    (letter,) = await rows(runtime, "SELECT error_type, attempts, worker_id FROM dead_letters")
    assert letter == {"error_type": "worker_lost", "attempts": lives, "worker_id": "worker_1"}


async def test_several_rescuers_take_a_task_back_once(runtime: Runtime) -> None:
    task_ids = await submitted(runtime, 20)
    await claimed(runtime, task_ids)
    await lose_leases(runtime)

    taken = await asyncio.gather(*(run_once(runtime) for _ in range(4)))

    assert sum(taken) == 20
    assert await rows(runtime, "SELECT DISTINCT crashes FROM tasks") == [{"crashes": 1}]


async def test_leases_that_ran_out_while_nobody_could_renew_them_are_not_held_against_their_workers(
    runtime: Runtime,
) -> None:
    lost = await submitted(runtime, 2)
    await claimed(runtime, lost, worker_id="cut_off")
    await lose_leases(runtime)
    watch = Watch(patience_seconds=60)

    assert await run_once(runtime, watch) == 0
    assert {await status_of(runtime, task_id) for task_id in lost} == {"running"}
    assert await run_once(runtime, Watch(patience_seconds=0)) == 2


def test_the_rescuer_waits_at_its_start_and_after_every_silence() -> None:
    watch = Watch(patience_seconds=4)
    looks: list[bool] = []
    for now in (0.0, 2.0, 4.0, 6.0, 20.0, 22.0, 24.0, 26.0):
        watch.looked(now)
        looks.append(watch.believes(now))

    assert looks == [False, False, True, True, False, False, True, True]


def test_its_patience_is_a_part_of_the_lease(runtime: Runtime) -> None:
    assert 0 < watch_of(runtime).patience_seconds <= runtime.settings.worker.lease_seconds / 3
