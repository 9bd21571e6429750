"""Timeout, cancel, lost leases: what the handler does about it decides when its slot is free, not what is recorded."""

import os
import time

from app.services.actors import ServiceActor
from app.services.cancellation import cancel_task
from tests.support.eventually import eventually
from tests.support.work import rows
from tests.support.world import World

ACME = ServiceActor("ana", "key_1", "acme")


async def test_a_handler_that_takes_too_long_times_out_wherever_it_runs(world: World) -> None:
    ids = [(await world.submit(type_))[0] for type_ in ("brief", "brief_thread", "brief_process")]

    ended = await world.ended(ids)

    for row in ended:
        assert (row["status"], row["error_type"], row["attempts"]) == ("dead_lettered", "timeout", 1), row["type"]
        assert "did not end within" in row["error_message"]
    assert world.marks("effects") == []


async def test_a_thread_keeps_its_slot_after_its_timeout_until_it_has_ended(world: World) -> None:
    ids = await world.submit("brief_thread", 4)
    await world.ended(ids)
    (pool,) = world.pools

    assert pool.consumer.free_slots == 0
    (waiting,) = await world.submit("quick")
    await eventually(lambda: pool.runtime.broker.connected)
    assert (await world.task(waiting))["status"] == "queued"
    world.go()

    (done,) = await world.ended([waiting])
    assert done["status"] == "done"
    await eventually(lambda: pool.consumer.free_slots == 4)


async def test_a_cancelled_async_handler_ends_within_two_seconds(world: World) -> None:
    (task_id,) = await world.submit("hold")
    await world.running([task_id])

    asked_at = time.monotonic()
    answer = await cancel_task(world.runtime, ACME, task_id)
    (row,) = await world.ended([task_id])

    assert answer.requested
    assert time.monotonic() - asked_at < 2.0
    assert (row["status"], row["attempts"], row["error_type"]) == ("cancelled", 1, None)
    assert [one["outcome"] for one in await world.attempts(task_id)] == ["cancelled"]
    assert world.marks("effects") == []


async def test_a_cancelled_process_is_killed_and_a_cancelled_thread_ends_by_itself(world: World) -> None:
    ids = [*await world.submit("hold_process"), *await world.submit("hold_thread")]
    await world.running(ids)
    pid = int(world.marks("starts", ids[0])[0].split()[3])

    for task_id in ids:
        await cancel_task(world.runtime, ACME, task_id)
    (killed,) = await world.ended(ids[:1])

    assert killed["status"] == "cancelled"
    await eventually(lambda: not _runs(pid))
    (pool,) = world.pools
    assert pool.consumer.free_slots == 3
    assert (await world.task(ids[1]))["status"] == "running"
    world.go()
    await world.ended(ids[1:])
    assert world.marks("effects", ids[0]) == []
    assert len(world.marks("effects", ids[1])) == 1
    await world.at_rest()


async def test_a_handler_that_swallows_its_timeout_is_settled_and_keeps_its_slot(world: World) -> None:
    (task_id,) = await world.submit("brief_deaf")

    (row,) = await world.ended([task_id])

    assert (row["status"], row["error_type"]) == ("dead_lettered", "timeout")
    (pool,) = world.pools
    assert pool.consumer.free_slots == 3
    assert world.marks("swallowed")
    world.go()
    await eventually(lambda: pool.consumer.free_slots == 4)
    assert len(await world.attempts(task_id)) == 1


async def test_a_handler_that_swallows_its_cancel_may_still_finish(world: World) -> None:
    (task_id,) = await world.submit("deaf")
    await world.running([task_id])

    await cancel_task(world.runtime, ACME, task_id)
    await eventually(lambda: world.marks("swallowed"))
    world.go()
    (row,) = await world.ended([task_id])

    assert row["status"] in ("done", "cancelled")
    assert [one["outcome"] for one in await world.attempts(task_id)] == [row["status"]]


async def test_whoever_lost_its_lease_is_stopped_and_writes_nothing(world: World) -> None:
    (task_id,) = await world.submit("hold")
    await world.running([task_id])

    await rows(world.runtime, "UPDATE flights SET lease_until = clock_timestamp() - interval '1 second', fence = fence")
    await eventually(lambda: len(world.marks("starts", task_id)) >= 1)
    # Another takes it over: a new fence, as the claim of another worker makes it.
    await rows(
        world.runtime,
        "UPDATE flights SET fence = nextval('fence_seq'), worker_id = 'other', "
        "lease_until = clock_timestamp() + interval '1 minute'",
    )
    (pool,) = world.pools
    await eventually(lambda: pool.consumer.free_slots == 4)
    world.go()

    assert (await world.task(task_id))["status"] == "running"
    assert world.marks("effects") == []
    assert await world.attempts(task_id) == []
    await rows(world.runtime, "UPDATE flights SET lease_until = clock_timestamp() - interval '1 second'")
    (row,) = await world.ended([task_id])
    assert (row["status"], row["attempts"]) == ("done", 2)


async def test_progress_is_written_while_the_attempt_owns_the_task(world: World) -> None:
    (task_id,) = await world.submit("hold_process")

    async def says() -> object:
        return (await world.task(task_id))["progress"]

    said = await eventually(says)

    assert said == '{"fraction": 0.25, "message": "holding"}'
    world.go()
    (row,) = await world.ended([task_id])
    assert row["progress"] is None


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def test_a_handler_that_cancels_itself_has_failed_like_any_other(world: World) -> None:
    (task_id,) = await world.submit("cancels_itself")

    (row,) = await world.ended([task_id])

    assert (row["status"], row["error_type"], row["attempts"]) == ("dead_lettered", "CancelledError", 1)
