"""The broker fails in every way it can; what was accepted is done once."""

import aio_pika
import pytest

from tests.support.eventually import eventually
from tests.support.rabbitmq import RabbitNode
from tests.support.work import rows
from tests.support.world import World, a_world


async def _queue_is_empty(world: World) -> None:
    async def empty() -> bool:
        depths = await world.runtime.broker.depths(["common"])
        assert depths["common"].ready == 0
        assert depths["common"].consumers >= 1
        return True

    await eventually(empty, within_seconds=30)


async def test_a_connection_lost_while_handlers_run_costs_nothing(world: World, rabbit: RabbitNode) -> None:
    ids = [*await world.submit("hold", 2), *await world.submit("hold_thread"), *await world.submit("hold_process")]
    await world.running(ids)

    await rabbit.close_all_connections("a blip")
    world.go()
    ended = await world.ended(ids, within_seconds=30)

    assert {(row["status"], row["attempts"]) for row in ended} == {("done", 1)}
    assert len(world.marks("effects")) == len(world.marks("starts")) == 4
    await _queue_is_empty(world)
    assert {row["status"] for row in await world.ended(await world.submit("quick", 5))} == {"done"}


async def test_what_is_submitted_while_the_broker_is_away_runs_once_when_it_is_back(
    world: World, rabbit: RabbitNode
) -> None:
    await world.ended(await world.submit("quick"))
    await rabbit.stop()
    await eventually(lambda: not world.runtime.broker.connected)

    ids = await world.submit("quick", 20)
    assert {row["status"] for row in await world.tasks(ids)} == {"queued"}
    await rabbit.start()
    ended = await world.ended(ids, within_seconds=20)

    assert {(row["status"], row["attempts"]) for row in ended} == {("done", 1)}
    assert len(world.marks("starts")) == 21
    await world.at_rest()


async def test_a_blocked_broker_holds_nothing_up_for_good(world: World, rabbit: RabbitNode) -> None:
    await rabbit.raise_memory_alarm()
    try:
        ids = await world.submit("quick", 20)
        assert {row["status"] for row in await world.tasks(ids)} <= {"queued", "running", "done"}
    finally:
        await rabbit.clear_memory_alarm()

    ended = await world.ended(ids, within_seconds=20)

    assert {(row["status"], row["attempts"]) for row in ended} == {("done", 1)}
    assert len(world.marks("starts")) == 20


async def test_a_deleted_queue_is_made_again_and_nothing_counts_as_sent_meanwhile(
    world: World, rabbit: RabbitNode
) -> None:
    await world.ended(await world.submit("quick"))
    queue = f"{world.runtime.settings.broker.queue_prefix}.common"

    async with await aio_pika.connect(rabbit.url) as connection:
        channel = await connection.channel()
        await channel.queue_delete(queue)
    ended = await world.ended(await world.submit("quick", 5), within_seconds=20)

    assert {(row["status"], row["attempts"]) for row in ended} == {("done", 1)}
    assert len(world.marks("starts")) == 6


async def test_consumption_resumes_after_every_restart(world: World, rabbit: RabbitNode) -> None:
    for n in range(3):
        await rabbit.restart()
        (row,) = await world.ended(await world.submit("quick", first=n), within_seconds=30)
        assert row["status"] == "done"

    await _queue_is_empty(world)


async def test_a_wiped_broker_loses_no_task(world: World, rabbit: RabbitNode) -> None:
    held = await world.submit("hold", 4)
    await world.running(held)
    waiting = await world.submit("quick", 30)

    await rabbit.wipe()
    world.go()
    ended = await world.ended([*held, *waiting], within_seconds=30)

    assert {(row["status"], row["attempts"]) for row in ended} == {("done", 1)}
    assert len(world.marks("effects")) == 4
    assert len(world.marks("starts")) == 34


async def test_bad_messages_are_parked_once_and_the_good_one_behind_them_runs(world: World, rabbit: RabbitNode) -> None:
    (before,) = await world.ended(await world.submit("quick"))
    queue = f"{world.runtime.settings.broker.queue_prefix}.common"
    bodies = [b"{bad", b"", b"x" * 5_000_000, b'{"task_id": 7}', b"[" * 50_000, b'"\xff"']

    async with await aio_pika.connect(rabbit.url) as connection:
        channel = await connection.channel()
        for body in bodies:
            await channel.default_exchange.publish(aio_pika.Message(body), routing_key=queue)
    (good,) = await world.ended(await world.submit("quick"), within_seconds=5)

    assert before["status"] == good["status"] == "done"

    async def parked() -> bool:
        letters = await rows(world.runtime, "SELECT task_id, error_type, error_message FROM dead_letters")
        assert len(letters) == len(bodies)
        assert {(one["task_id"], one["error_type"]) for one in letters} == {(None, "malformed_message")}
        return all(one["error_message"] for one in letters)

    await eventually(parked)
    await _queue_is_empty(world)


@pytest.mark.parametrize(
    "ack_after_settle_max_seconds", [3.0, 600.0], ids=["acked after the claim", "held until the broker takes it away"]
)
async def test_a_task_longer_than_the_broker_waits_runs_once(
    database_url: str, impatient: RabbitNode, ack_after_settle_max_seconds: float
) -> None:
    own = {"ack_after_settle_max_seconds": ack_after_settle_max_seconds, "heartbeat_seconds": 0.25}
    async with a_world(database_url, impatient.url, worker=own) as world:
        before = impatient.log_tail(100_000).count("consumer ack timed out")
        ids = [*await world.submit("slow", seconds=5.0), *await world.submit("slow_thread", seconds=5.0)]
        ended = await world.ended(ids, within_seconds=30)

        assert {(row["status"], row["attempts"]) for row in ended} == {("done", 1)}
        assert len(world.marks("starts")) == len(world.marks("effects")) == 2
        await _queue_is_empty(world)
        if ack_after_settle_max_seconds < 60:
            assert impatient.log_tail(100_000).count("consumer ack timed out") == before
