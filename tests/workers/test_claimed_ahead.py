"""Short tasks are claimed a little ahead of their slot: no more run than there are slots, what waits goes back."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime

import pytest
import pytest_asyncio

from app.broker.base import Delivery, TaskMessage
from app.broker.memory import MemoryBroker
from app.domain.lifecycle import Move
from app.domain.outcome import Settlement
from app.domain.task_types import TaskTypeSpec
from app.runtime import Runtime
from app.settings import Settings
from app.store.flights import Claimed
from tests.support.eventually import eventually
from tests.support.runtimes import a_runtime
from workers.consumer import TaskConsumer
from workers.facilities import Facilities
from workers.run import Interrupt, Run

NOW = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)
SLOTS = 2


class CountingRunner:
    """A runner whose attempts end when told; `most` is how many ran at once."""

    def __init__(self) -> None:
        self.go = asyncio.Event()
        self.started: list[str] = []
        self.running = 0
        self.most = 0

    def spec_of(self, name: str) -> TaskTypeSpec:
        """Know every type."""
        return TaskTypeSpec(name)

    async def run(self, run: Run) -> Settlement:
        """Run until told to end."""
        self.started.append(run.claimed.task_id)
        self.running += 1
        self.most = max(self.most, self.running)
        await self.go.wait()
        self.running -= 1
        return Settlement(run.claimed.task_id, run.claimed.fence, Move.FINISH, "done", result="null")

    def interrupted(self, run: Run) -> Settlement:
        """Return the attempt unspent."""
        return Settlement(run.claimed.task_id, run.claimed.fence, Move.RETURN, "returned", spent=False)

    def unstorable(self, run: Run) -> Settlement:
        """Spell nothing else."""
        return self.interrupted(run)


@pytest.fixture
def runner() -> CountingRunner:
    return CountingRunner()


@pytest_asyncio.fixture
async def runtime(database_url: str) -> AsyncIterator[Runtime]:
    async with a_runtime(database_url, broker=MemoryBroker(Settings(_env_file=None).broker)) as opened:
        yield opened


@pytest_asyncio.fixture
async def consumer(runtime: Runtime, runner: CountingRunner) -> TaskConsumer:
    """A consumer of two slots that was handed more than it can run; nothing of it is written."""

    async def nothing(*_: object) -> tuple[bytes, str]:
        raise AssertionError("no task of these reads an input")

    made = TaskConsumer(
        runtime,
        runtime.broker.consumer(("common",), prefetch=10),
        runner,  # type: ignore[arg-type]
        worker_id="worker_1",
        slots=SLOTS,
        facilities=Facilities(read_input=nothing),  # type: ignore[arg-type]
        record_malformed=nothing,  # type: ignore[arg-type]
    )
    for number in range(5):
        made.start(a_claim(number), a_delivery(number))
    return made


def a_claim(number: int) -> Claimed:
    return Claimed(
        f"task_{number}", number, 1, 5, "quick", "acme", "", "common", 60.0, 0, None, None, None, NOW, NOW, NOW, NOW,
        None, None, None, None, 1,
    )  # fmt: skip


def a_delivery(number: int) -> Delivery:
    message = TaskMessage(f"task_{number}", "quick", "acme", 1, 1, "2026-11-30T12:00:00Z")
    return Delivery("common", message, False, number)


async def test_no_more_run_at_once_than_there_are_slots(consumer: TaskConsumer, runner: CountingRunner) -> None:
    await eventually(lambda: runner.running == SLOTS)
    assert consumer.free_slots == 0

    runner.go.set()

    await eventually(lambda: consumer.settlements.backlog == 5)
    assert runner.most == SLOTS
    assert runner.started == [f"task_{number}" for number in range(5)]
    assert consumer.runs == {} and consumer.free_slots == SLOTS


async def test_what_finds_no_slot_in_time_goes_back_unspent(consumer: TaskConsumer, runner: CountingRunner) -> None:
    await eventually(lambda: runner.running == SLOTS)
    for run in consumer.runs.values():
        run.started_at -= 60

    consumer.give_back_late()

    assert sorted(key[0] for key in consumer.runs) == ["task_0", "task_1"]
    assert consumer.settlements.backlog == 3
    runner.go.set()
    await eventually(lambda: consumer.settlements.backlog == 5)
    assert runner.started == ["task_0", "task_1"]


async def test_a_cancelled_one_never_starts(consumer: TaskConsumer, runner: CountingRunner) -> None:
    await eventually(lambda: runner.running == SLOTS)
    consumer.runs["task_2", 2].stop(Interrupt.CANCEL)

    runner.go.set()

    await eventually(lambda: consumer.settlements.backlog == 5)
    assert "task_2" not in runner.started


async def test_only_short_tasks_make_room_beyond_the_slots(consumer: TaskConsumer, runner: CountingRunner) -> None:
    runner.go.set()
    await eventually(lambda: consumer.settlements.backlog == 5)
    consumer.claims.mean_seconds = 0.005
    assert consumer.room == SLOTS

    consumer._mean_run_seconds = 0.01

    assert consumer.room == SLOTS + 1
