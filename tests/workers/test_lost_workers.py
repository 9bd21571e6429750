"""Crashes: suspects run alone in a child process; the guilty spend their budget and the innocent go on."""

import os
import signal
from collections.abc import AsyncIterator

import pytest_asyncio

from tests.support.eventually import eventually
from tests.support.rabbitmq import RabbitNode
from tests.support.work import rows
from tests.support.world import World, a_world


@pytest_asyncio.fixture
async def idle(database_url: str, rabbit: RabbitNode) -> AsyncIterator[World]:
    """An installation whose worker is still to come."""
    async with a_world(database_url, rabbit.url, slots=None) as opened:
        yield opened


async def test_a_child_that_crashes_is_charged_at_once_and_tried_again(world: World) -> None:
    (task_id,) = await world.submit("deadly_once")

    (row,) = await world.ended([task_id])

    assert (row["status"], row["attempts"]) == ("done", 2)
    first, second = await world.attempts(task_id)
    assert (first["outcome"], first["error_type"], second["outcome"]) == ("failed", "worker_lost", "done")
    assert "exit status 137" in first["error_message"]


async def test_a_child_that_dies_while_idle_is_no_crash_of_the_next_task(world: World) -> None:
    (first,) = await world.submit("slow_process")
    await world.ended([first])
    pid = int(world.marks("starts")[0].split()[3])
    os.kill(pid, signal.SIGKILL)
    (pool,) = world.pools
    await eventually(lambda: all(child.process.returncode is not None for child in pool.children._idle))

    (second,) = await world.submit("slow_process", first=2)
    (row,) = await world.ended([second])

    assert (row["status"], row["attempts"]) == ("done", 1)


async def test_a_suspect_runs_alone_in_a_process_of_its_own_and_its_neighbours_are_forgiven(idle: World) -> None:
    world = idle
    ids = [*await world.submit("hold"), *await world.submit("hopeless")]
    await rows(world.runtime, "UPDATE tasks SET crashes = 1, attempts = 1")
    await world.work(slots=4)
    world.go()

    innocent, hopeless = await world.ended(ids)

    assert int(world.marks("starts", ids[0])[0].split()[3]) != os.getpid()
    assert (innocent["status"], innocent["crashes"]) == ("done", 1)
    # Its first failure alone clears the crash; after that it has its whole budget, of which that failure was the first.
    assert (hopeless["status"], hopeless["attempts"], hopeless["crashes"]) == ("dead_lettered", 3, 0)
    assert len(world.marks("starts", ids[1])) == 3


async def test_who_kills_its_worker_every_time_gets_exactly_its_attempts(idle: World) -> None:
    """As after a first crash in company: what follows happens alone, and the worker lives on."""
    world = idle
    (task_id,) = await world.submit("deadly")
    await rows(world.runtime, "UPDATE tasks SET crashes = 1, attempts = 1")
    await world.work(slots=4)

    (row,) = await world.ended([task_id])

    assert (row["status"], row["error_type"], row["attempts"]) == ("dead_lettered", "worker_lost", 3)
    assert len(world.marks("starts")) == 2
    (after,) = await world.ended(await world.submit("quick"))
    assert after["status"] == "done"


async def test_a_child_that_ends_is_noticed_also_while_a_process_of_its_own_holds_its_pipes(world: World) -> None:
    (task_id,) = await world.submit("leaves_a_child")

    (row,) = await world.ended([task_id], within_seconds=10)

    assert (row["status"], row["error_type"]) == ("dead_lettered", "worker_lost")
    world.go()
