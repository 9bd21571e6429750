"""The same handler on the loop, in a thread, in a process and alone as a suspect: the same context, the same story."""

import json
import os
from collections.abc import AsyncIterator

import pytest_asyncio

from app.services.actors import ServiceActor
from app.services.cancellation import cancel_task
from tests.support.eventually import eventually
from tests.support.rabbitmq import RabbitNode
from tests.support.work import rows
from tests.support.world import World, a_world

TYPES = ("journey", "journey_thread", "journey_process")
ACME = ServiceActor("ana", "key_1", "acme")
KINDS = ("fails", "snoozes", "snoozes_in_a_group")


@pytest_asyncio.fixture
async def idle(database_url: str, rabbit: RabbitNode) -> AsyncIterator[World]:
    """An installation whose worker is still to come."""
    async with a_world(database_url, rabbit.url, slots=None) as opened:
        yield opened


async def test_steps_and_states_hold_in_every_executor(idle: World) -> None:
    world = idle
    ids = {
        (type_, kind, suspect): (await world.submit(type_, kind=kind, first=7))[0]
        for type_ in TYPES
        for kind in KINDS
        for suspect in ((False, True) if kind == "fails" else (False,))
    }
    suspects = [task_id for (_, _, suspect), task_id in ids.items() if suspect]
    await rows(
        world.runtime,
        "UPDATE tasks SET crashes = 1, attempts = 1 WHERE task_id = ANY(CAST(:ids AS text[]))",
        ids=suspects,
    )
    await world.work(slots=6)

    ended = await world.ended(list(ids.values()), within_seconds=60)

    for (type_, kind, suspect), row in zip(ids, ended, strict=True):
        about = f"{type_} {kind} {suspect}: {row['error_type']} {row['error_message']}"
        assert row["status"] == "done", about
        result = json.loads(row["result"])
        assert result["kept"] == result["again"] == {"n": 7, "inner": 1e22}, about
        assert result["state"] == {"done": [7]}, about
        assert len(world.marks("calls", row["task_id"])) == 1, about
        outcomes = [one["outcome"] for one in await world.attempts(row["task_id"])]
        assert outcomes == ["failed" if kind == "fails" else "snoozed", "done"], about
        assert row["attempts"] == (2 if kind == "fails" else 1), about
        first_pid = int(world.marks("starts", row["task_id"])[0].split()[3])
        assert (first_pid == os.getpid()) == (type_ != "journey_process" and not suspect), about


async def test_a_thread_that_is_cancelled_ends_at_its_next_step_or_checkpoint(world: World) -> None:
    ids = [*await world.submit("strides"), *await world.submit("strides", kind="saves")]
    await world.running(ids)

    for task_id in ids:
        await cancel_task(world.runtime, ACME, task_id)
    ended = await world.ended(ids)

    assert [row["status"] for row in ended] == ["cancelled", "cancelled"]
    (pool,) = world.pools
    await eventually(lambda: pool.consumer.free_slots == 4)


async def test_a_crash_after_a_step_costs_no_second_call(world: World) -> None:
    (task_id,) = await world.submit("journey_process", kind="crashes")

    (row,) = await world.ended([task_id])

    assert (row["status"], row["attempts"]) == ("done", 2)
    assert [one["error_type"] for one in await world.attempts(task_id)] == ["worker_lost", None]
    assert len(world.marks("calls")) == 1


async def test_a_plain_handler_in_a_process_costs_no_connection(world: World) -> None:
    connected = "SELECT count(*) AS n FROM pg_stat_activity WHERE application_name LIKE '%-child'"
    (plain,) = await world.submit("slow_process")
    await world.ended([plain])
    (none,) = await rows(world.runtime, connected)

    (journalled,) = await world.submit("journey_process")
    await world.ended([journalled])
    (some,) = await rows(world.runtime, connected)

    assert none["n"] == 0
    assert 1 <= some["n"] <= 2
    assert world.marks("starts", plain)[0].split()[3] == world.marks("starts", journalled)[0].split()[3]


async def test_what_a_child_counts_is_counted_at_the_worker_and_its_command_line_holds_no_secret(world: World) -> None:
    (task_id,) = await world.submit("journey_process")
    await world.ended([task_id])
    (pool,) = world.pools

    def counted() -> bool:
        return 'coalescer="step"' in world.runtime.metrics.render().decode()

    await eventually(counted)
    (child,) = pool.children._idle
    for file in ("cmdline", "environ"):
        with open(f"/proc/{child.process.pid}/{file}", "rb") as seen:  # noqa: ASYNC230, PTH123 - a file of the kernel
            assert world.database_url.encode() not in seen.read()
