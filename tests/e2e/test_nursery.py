"""Children of a real worker process: forked from its nursery, ended with it, and started from nothing without it."""

import os
import signal
from pathlib import Path

from tests.e2e.test_processes import with_workers
from tests.support.eventually import eventually
from tests.support.rabbitmq import RabbitNode


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def _lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


async def test_children_are_forked_from_the_nursery_and_go_on_without_it(database_url: str, rabbit: RabbitNode) -> None:
    async with with_workers(database_url, rabbit.url, 1, slots=2) as (world, installation):
        worker = installation.processes["worker-0"].pid
        (held,) = await world.submit("hold_process")
        await world.running([held])
        child = int(world.marks("starts", held)[-1].split()[3])
        nursery = _parent(child)
        assert (nursery != worker, _parent(nursery)) == (True, worker)

        os.kill(nursery, signal.SIGKILL)
        await eventually(lambda: not _lives(child), within_seconds=20)
        await eventually(lambda: len(world.marks("starts", held)) > 1, within_seconds=40)
        again = int(world.marks("starts", held)[-1].split()[3])
        assert _parent(again) == worker, "it was started from nothing"
        world.go()
        (ended,) = await world.ended([held], within_seconds=40)
        assert (ended["status"], installation.processes["worker-0"].process.poll()) == ("done", None)


async def test_nothing_outlives_a_killed_worker(database_url: str, rabbit: RabbitNode) -> None:
    async with with_workers(database_url, rabbit.url, 1, slots=2) as (world, installation):
        (held,) = await world.submit("hold_process")
        await world.running([held])
        child = int(world.marks("starts", held)[-1].split()[3])
        nursery = _parent(child)
        await installation.processes["worker-0"].kill()
        await eventually(lambda: not _lives(child) and not _lives(nursery), within_seconds=20)
