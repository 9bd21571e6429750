"""A queue that takes messages and never answers is noticed, and made anew."""

from app.broker.base import Published, TaskMessage
from app.broker.rabbitmq import RabbitBroker
from app.broker.stuck import StuckQueues
from app.settings import BrokerSettings
from tests.support.eventually import eventually
from tests.support.rabbitmq import RabbitNode

MESSAGE = TaskMessage("task_1", "echo", "acme", 1, 1, "2026-11-30T00:00:00Z")


def test_only_a_class_that_was_silent_for_long_is_stuck() -> None:
    stuck = StuckQueues(10.0)
    silent, well = ("common", Published.UNKNOWN), ("critical", Published.CONFIRMED)

    assert stuck.seen([silent, well], 0.0, 2.0) == []
    assert stuck.seen([silent, silent, well], 3.0, 9.9) == []
    assert stuck.seen([silent], 9.0, 10.0) == ["common"]
    assert stuck.seen([silent], 10.0, 12.0) == []


def test_one_answer_of_any_kind_clears_a_class() -> None:
    stuck = StuckQueues(10.0)
    for answer in (Published.CONFIRMED, Published.REFUSED, Published.UNROUTABLE):
        stuck.seen([("common", Published.UNKNOWN)], 0.0, 2.0)
        stuck.seen([("common", Published.UNKNOWN), ("common", answer)], 5.0, 6.0)

        assert stuck.seen([("common", Published.UNKNOWN)], 9.0, 11.0) == []
        stuck.forget()


async def test_a_queue_without_its_leader_is_made_anew(rabbit: RabbitNode) -> None:
    settings = BrokerSettings(queue_prefix="stuck", publish_deadline_seconds=0.5)
    broker = RabbitBroker(rabbit.url, settings, stuck_after_seconds=1.5)
    await broker.start()
    try:
        await broker.declare(["common"])
        assert await broker.publish([("common", MESSAGE)]) == [Published.CONFIRMED]
        await rabbit.ctl("eval", "ra:stop_server(quorum_queues, {'%2F_stuck.common', node()}).")
        assert await broker.publish([("common", MESSAGE)]) == [Published.UNKNOWN]

        async def taken() -> bool:
            return await broker.publish([("common", MESSAGE)]) == [Published.CONFIRMED]

        await eventually(taken, within_seconds=30)
        assert (await broker.depths(["common"]))["common"].ready >= 1
    finally:
        await broker.close()
