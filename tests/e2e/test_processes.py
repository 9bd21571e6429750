"""Workers and dispatchers as processes of their own: killed, frozen, drained, blocked."""

import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from app.store import leaders
from tests.support.eventually import eventually
from tests.support.installation import Installation
from tests.support.rabbitmq import RabbitNode
from tests.support.work import rows
from tests.support.world import ONE_CLASS, World, a_world

LEASE_SECONDS = 6.0


@asynccontextmanager
async def with_workers(
    database_url: str,
    amqp_url: str,
    count: int,
    *,
    slots: int = 4,
    dispatcher: bool = True,
    lease_seconds: float = LEASE_SECONDS,
) -> AsyncIterator[tuple[World, Installation]]:
    """Have worker processes, and everything else here."""
    async with a_world(database_url, amqp_url, slots=None, dispatcher=dispatcher) as world:
        own = {
            "DESPACHO_BROKER__QUEUE_PREFIX": world.runtime.settings.broker.queue_prefix,
            "DESPACHO_WORKER__LEASE_SECONDS": str(lease_seconds),
        }
        installation = Installation(database_url, amqp_url, ONE_CLASS, own)
        try:
            for n in range(count):
                installation.start_worker(f"worker-{n}", slots=slots)
            await installation.has_workers(count)
            yield world, installation
        finally:
            await installation.close()


def _pid(world: World, task_id: str) -> int:
    return int(world.marks("starts", task_id)[-1].split()[3])


async def test_who_kills_its_worker_has_exactly_its_attempts_and_the_others_run(
    database_url: str, rabbit: RabbitNode
) -> None:
    async with with_workers(database_url, rabbit.url, 1) as (world, installation):
        innocent = await world.submit("hold", 2)
        await world.running(innocent)
        (deadly,) = await world.submit("deadly")

        def ended_by_itself() -> bool:
            return installation.processes["worker-0"].process.poll() == 137

        await eventually(ended_by_itself)
        installation.start("worker-0")
        (row,) = await world.ended([deadly], within_seconds=40)
        world.go()
        others = await world.ended([*innocent, *await world.submit("quick", 5)])

        assert (row["status"], row["error_type"], row["attempts"]) == ("dead_lettered", "worker_lost", 3)
        assert len(world.marks("starts", deadly)) == 3
        assert {one["status"] for one in others} == {"done"}
        assert installation.processes["worker-0"].process.poll() is None
        assert len(world.marks("effects")) == 2


async def test_the_tasks_of_a_killed_worker_start_again_within_the_lease(database_url: str, rabbit: RabbitNode) -> None:
    async with with_workers(database_url, rabbit.url, 2) as (world, installation):
        ids = [*await world.submit("hold", 2), *await world.submit("hold_thread", 2)]
        await world.running(ids)
        pid = _pid(world, ids[0])
        (name,) = [name for name, one in installation.processes.items() if one.pid == pid]
        lost = [task_id for task_id in ids if _pid(world, task_id) == pid]

        await installation.processes[name].kill()
        killed_at = time.monotonic()
        await eventually(lambda: all(len(world.marks("starts", task_id)) == 2 for task_id in lost), within_seconds=20)
        took = time.monotonic() - killed_at
        world.go()
        ended = await world.ended(ids)

        # The lease, a turn of the rescuer, and the start of a process for each suspect.
        assert took < LEASE_SECONDS + 8.0
        assert {row["status"] for row in ended} == {"done"}
        assert {row["attempts"] for row in ended if row["task_id"] in lost} == {2}
        assert {row["attempts"] for row in ended if row["task_id"] not in lost} <= {1}


async def test_a_worker_that_was_frozen_past_its_lease_overwrites_nothing(
    database_url: str, rabbit: RabbitNode
) -> None:
    async with with_workers(database_url, rabbit.url, 2) as (world, installation):
        (task_id,) = await world.submit("hold")
        await world.running([task_id])
        pid = _pid(world, task_id)
        (frozen,) = [one for one in installation.processes.values() if one.pid == pid]

        frozen.freeze()
        await eventually(lambda: len(world.marks("starts", task_id)) == 2, within_seconds=20)
        world.go()
        (before,) = await world.ended([task_id])
        frozen.thaw()
        await world.ended(await world.submit("quick", 20))
        after = await world.task(task_id)

        assert before["result"].replace(" ", "") == '{"n":0,"attempt":2}'
        assert dict(after) == dict(before)
        assert [one["outcome"] for one in await world.attempts(task_id)] == ["worker_lost", "done"]
        assert frozen.process.poll() is None


async def test_a_worker_that_is_asked_to_end_finishes_its_work_and_takes_no_more(
    database_url: str, rabbit: RabbitNode
) -> None:
    async with with_workers(database_url, rabbit.url, 1) as (world, installation):
        ids = [*await world.submit("slow", 2, seconds=1.5), *await world.submit("slow_thread", seconds=1.5)]
        await world.running(ids)
        process = installation.processes["worker-0"]
        started = time.monotonic()

        process.process.terminate()
        await process.says('"stopping"')
        late = await world.submit("quick", 3)
        assert await process.stop() == 0

        assert time.monotonic() - started < 6.0
        assert {(row["status"], row["attempts"]) for row in await world.tasks(ids)} == {("done", 1)}
        assert len(world.marks("effects")) == len(world.marks("starts")) == 3
        assert {row["status"] for row in await world.tasks(late)} == {"queued"}


async def test_handlers_that_block_the_loop_or_burn_the_processor_keep_their_leases(
    database_url: str, rabbit: RabbitNode
) -> None:
    lease_seconds = 10.0
    async with with_workers(database_url, rabbit.url, 1, lease_seconds=lease_seconds) as (world, installation):
        seconds = lease_seconds + 2.0
        ids = [*await world.submit("spin", seconds=seconds), *await world.submit("slow_thread", seconds=seconds)]
        await world.running(ids)
        ids += await world.submit("block", seconds=seconds)
        others = await world.submit("quick", 5)

        ended = await world.ended([*ids, *others], within_seconds=30)

        assert {(row["status"], row["attempts"]) for row in ended} == {("done", 1)}
        assert len(world.marks("starts")) == 8
        assert len(world.marks("effects")) == 3
        blocked = [line for line in installation.processes["worker-0"].log_lines() if line["event"] == "loop_blocked"]
        assert blocked
        assert "time.sleep(task.seconds)" in str(blocked[0]["stack"])


async def test_another_dispatcher_leads_within_three_seconds_and_the_thawed_one_follows(
    database_url: str, rabbit: RabbitNode
) -> None:
    async with with_workers(database_url, rabbit.url, 1, dispatcher=False) as (world, installation):
        for name in ("dispatcher-0", "dispatcher-1"):
            installation.start_dispatcher(name)
        first = await installation.has_leader()
        other = "dispatcher-1" if first == "dispatcher-0" else "dispatcher-0"
        await installation.processes[other].says("broker connected")
        await world.ended(await world.submit("quick", 5))

        installation.processes[first].freeze()
        frozen_at = time.monotonic()
        ended = await world.ended(await world.submit("quick", 5, first=5))
        took = time.monotonic() - frozen_at
        installation.processes[first].thaw()
        more = await world.ended(await world.submit("quick", 50, first=10))

        assert took < 3.5  # the lead within 3 s, and the work itself
        assert {(row["status"], row["attempts"]) for row in [*ended, *more]} == {("done", 1)}
        assert await installation.leader() == other
        assert len(world.marks("starts")) == 60

        await installation.processes[other].kill()
        killed_at = time.monotonic()
        await world.ended(await world.submit("quick", first=99))
        assert time.monotonic() - killed_at < 3.5
        now = await leaders.leader(world.runtime.database, "dispatcher")
        assert now is not None
        assert now.epoch >= 3
        epochs = [
            row["epoch"] for row in await rows(world.runtime, "SELECT epoch FROM release_rounds ORDER BY round_id")
        ]
        assert epochs == sorted(epochs)


async def test_a_worker_killed_after_a_step_costs_no_second_call_and_no_state(
    database_url: str, rabbit: RabbitNode
) -> None:
    async with with_workers(database_url, rabbit.url, 1, lease_seconds=2.0) as (world, installation):
        (task_id,) = await world.submit("journey", kind="hold")

        async def saved() -> bool:
            return bool(await rows(world.runtime, "SELECT 1 FROM checkpoints"))

        await eventually(saved)
        await installation.processes["worker-0"].kill()
        installation.start("worker-0")
        await eventually(lambda: len(world.marks("starts")) == 2, within_seconds=30)
        world.go()
        (row,) = await world.ended([task_id], within_seconds=30)

        first, second = (int(line.split()[3]) for line in world.marks("starts"))
        assert row["status"] == "done"
        assert json.loads(row["result"])["state"] == {"done": [0]}
        assert world.marks("calls") == [task_id]
        # It ran alone, in a process of its own, and found everything there.
        assert second not in (first, installation.processes["worker-0"].pid)
