"""What was released and never claimed is published again, where somebody consumes."""

from collections.abc import Collection, Mapping, Sequence

import pytest

from app.broker.base import Depth, Published, TaskMessage
from app.runtime import Runtime
from app.store.workers import Identity, beat
from tests.support.runtimes import AwayBroker, a_runtime
from tests.support.work import claimed, released, rows, submitted
from workers.sweeps.republish import run_once


class HeardBroker(AwayBroker):
    """A broker that keeps what it was given, and whose queues say that nobody listens, as a stuck one does."""

    connected = True

    def __init__(self) -> None:
        self.sent: list[tuple[str, TaskMessage]] = []

    async def publish(self, items: Sequence[tuple[str, TaskMessage]]) -> list[Published]:
        self.sent += items
        return [Published.CONFIRMED] * len(items)

    async def depths(self, classes: Collection[str]) -> Mapping[str, Depth]:
        return {name: Depth(0, 0) for name in classes}


async def _a_worker(runtime: Runtime, *, draining: bool = False) -> None:
    identity = Identity("worker_2", "default", tuple(runtime.policy.current.by_name), ("echo",), 4, "host", 1, "test")
    await beat(runtime.database, identity, draining=draining, alive_seconds=600)


async def test_a_lost_message_is_published_again_with_the_same_dispatch(database_url: str) -> None:
    broker = HeardBroker()
    async with a_runtime(database_url, broker=broker) as runtime:
        await _a_worker(runtime)
        lost, fresh, running = await submitted(runtime, 3)
        dispatches = await released(runtime, [lost, fresh])
        await claimed(runtime, [running])
        await rows(
            runtime,
            "UPDATE flights SET released_at = clock_timestamp() - interval '1 hour' WHERE task_id <> :fresh",
            fresh=fresh,
        )

        first, again = await run_once(runtime), await run_once(runtime)

        assert (first, again) == (1, 0)
        ((priority_class, message),) = broker.sent
        assert (priority_class, message.task_id, message.dispatch) == ("common", lost, dispatches[lost])


@pytest.mark.parametrize("broker", [HeardBroker(), AwayBroker()])
async def test_nothing_is_published_for_nobody(database_url: str, broker: AwayBroker) -> None:
    async with a_runtime(database_url, broker=broker) as runtime:
        await _a_worker(runtime, draining=True)
        task_ids = await submitted(runtime, 3)
        await released(runtime, task_ids)
        await rows(runtime, "UPDATE flights SET released_at = clock_timestamp() - interval '1 hour'")

        assert await run_once(runtime) == 0

        assert await rows(runtime, "SELECT DISTINCT published_at FROM flights") == [{"published_at": None}]
