"""What only a real RabbitMQ can do to us: it goes away, hangs, blocks, forgets its queues, and closes channels."""

import asyncio
import contextlib
import logging
import os
import signal
import time
from collections.abc import AsyncIterator

import psutil  # type: ignore[import-untyped]
import pytest
import pytest_asyncio

from app.broker.amqp import frames
from app.broker.base import Broker, BrokerMisdeclared, BrokerUnreachable, Consumer, Depth, Published
from app.broker.rabbitmq import RabbitBroker
from tests.broker.worlds import COMMON, URGENT, World, a_message, a_settings, connect, ids, rabbit_world, receive, some
from tests.support.eventually import eventually
from tests.support.ports import free_ports
from tests.support.rabbitmq import RabbitNode

CONFIRMED, UNROUTABLE = Published.CONFIRMED, Published.UNROUTABLE
UNKNOWN, UNREACHABLE = Published.UNKNOWN, Published.UNREACHABLE


@pytest_asyncio.fixture
async def world(rabbit: RabbitNode) -> AsyncIterator[World]:
    made = rabbit_world(rabbit.url)
    yield made
    await made.close()


async def delete_queue(node: RabbitNode, queue: str) -> None:
    """Delete a queue as an operator would."""
    connection = await connect(node.url)
    channel = await connection.channel()
    arguments = (frames.u16(0), frames.short_string(queue), frames.u8(0))
    answer = channel._calls.expect(0x00320029)
    connection.write(frames.method(channel.number, 0x00320028, *arguments))
    await answer
    await connection.close()


async def publishes(broker: Broker, number: int, priority_class: str = COMMON) -> bool:
    """Whether a message can be published now."""
    return await broker.publish([(priority_class, a_message(number))]) == [CONFIRMED]


async def consumers(broker: Broker) -> int:
    """How many consumers the broker counts on the common queue; -1 while it does not answer."""
    try:
        return (await broker.depths([COMMON])).get(COMMON, Depth(0, -1)).consumers
    except BrokerUnreachable:
        return -1


async def has_consumers(broker: Broker, count: int) -> bool:
    return await consumers(broker) == count


async def all_empty(broker: Broker, *classes: str) -> bool:
    """Whether these queues hold nothing and nobody consumes them."""
    return await broker.depths(classes) == dict.fromkeys(classes, Depth(0, 0))


async def drain_until(consumer: Consumer, task_id: str, within_seconds: float = 30.0) -> list[str]:
    """Receive and ack until this task comes; return all that came."""
    seen: list[str] = []
    async with asyncio.timeout(within_seconds):
        while task_id not in seen:
            deliveries = await consumer.receive(100)
            consumer.ack(deliveries)
            seen += ids(deliveries)
    return seen


async def test_an_absent_broker_delays_nothing_and_is_found_when_it_comes(rabbit: RabbitNode, world: World) -> None:
    await rabbit.stop()
    broker = world.broker(a_settings(publish_deadline_seconds=0.5))
    await broker.start()
    consumer = broker.consumer([COMMON], 10)

    began_at = time.monotonic()
    assert await broker.publish(some(20)) == [UNREACHABLE] * 20
    with pytest.raises(BrokerUnreachable, match="cannot reach the broker"):
        await broker.declare([COMMON, URGENT])
    with pytest.raises(BrokerUnreachable):
        await broker.depths([COMMON])
    assert time.monotonic() - began_at < 2
    assert not broker.connected

    await rabbit.start()
    await eventually(lambda: publishes(broker, 1), within_seconds=15)
    assert await drain_until(consumer, a_message(1).task_id) == [a_message(1).task_id]
    assert broker.connected
    assert broker.problem is None


async def test_a_restarted_broker_finds_one_consumer_that_hears(rabbit: RabbitNode, world: World) -> None:
    broker = await world.started(a_settings(publish_deadline_seconds=1))
    consumer = broker.consumer([COMMON], 10)

    for number in (1, 2, 3):
        await rabbit.restart()
        await eventually(lambda number=number: publishes(broker, number), within_seconds=15)
        assert set(await drain_until(consumer, a_message(number).task_id)) == {a_message(number).task_id}
        await eventually(lambda: has_consumers(broker, 1))


async def test_a_killed_and_wiped_broker_gets_its_queues_again(rabbit: RabbitNode, world: World) -> None:
    broker = await world.started(a_settings(publish_deadline_seconds=1))
    consumer, dead = broker.consumer([COMMON], 10), broker.dead_letter_consumer(10)
    await eventually(lambda: has_consumers(broker, 1))

    await rabbit.wipe()
    await eventually(lambda: publishes(broker, 1), within_seconds=15)
    await eventually(lambda: publishes(broker, 2, URGENT))
    (delivery,) = await receive(consumer, 1)
    consumer.reject([delivery])

    assert ids(await receive(dead, 1)) == [a_message(1).task_id]
    await eventually(lambda: has_consumers(broker, 1))


async def test_a_lost_connection_drops_old_settlements_and_delivers_again(
    rabbit: RabbitNode, world: World, caplog: pytest.LogCaptureFixture
) -> None:
    broker = await world.started(a_settings())
    consumer = broker.consumer([COMMON], 10)
    await broker.publish(some(5))
    held = await receive(consumer, 3)

    await rabbit.close_all_connections()
    again = await receive(consumer, 5)
    with caplog.at_level(logging.WARNING):
        caplog.clear()
        consumer.ack(held)
    consumer.ack(again)

    assert len([record for record in caplog.records if "settlements dropped" in record.message]) == 1
    assert sorted(ids(again)) == [a_message(number).task_id for number in range(1, 6)]
    await eventually(lambda: publishes(broker, 6))
    assert ids(await receive(consumer, 1)) == [a_message(6).task_id]
    await eventually(lambda: has_consumers(broker, 1))


async def test_a_connection_lost_with_messages_out_says_unknown(rabbit: RabbitNode, world: World) -> None:
    broker = await world.started(a_settings())
    os.kill(rabbit.pid or 0, signal.SIGSTOP)
    try:
        publishing = asyncio.create_task(broker.publish(some(3)))
        await asyncio.sleep(0)
    finally:
        await rabbit.kill()

    assert await publishing == [UNKNOWN] * 3
    assert await broker.publish(some(3)) == [UNREACHABLE] * 3


async def test_a_frozen_broker_is_noticed_by_its_missing_heartbeats(rabbit: RabbitNode, world: World) -> None:
    broker = await world.started(a_settings(publish_deadline_seconds=0.5, heartbeat_seconds=2))
    consumer = broker.consumer([COMMON], 10)
    await eventually(lambda: has_consumers(broker, 1))
    os.kill(rabbit.pid or 0, signal.SIGSTOP)
    try:
        began_at = time.monotonic()
        assert await broker.publish(some(2)) == [UNKNOWN] * 2
        assert 0.4 < time.monotonic() - began_at < 1.5
        await eventually(lambda: not broker.connected)
        assert "no heartbeat" in (broker.problem or "") or "no answer" in (broker.problem or "")
        assert await broker.publish(some(2)) == [UNREACHABLE] * 2
    finally:
        os.kill(rabbit.pid or 0, signal.SIGCONT)

    await eventually(lambda: publishes(broker, 9), within_seconds=15)
    await drain_until(consumer, a_message(9).task_id)


async def test_a_broker_short_of_memory_blocks_no_caller_and_no_ack(rabbit: RabbitNode, world: World) -> None:
    broker = await world.started(a_settings(publish_deadline_seconds=0.5))
    consumer = broker.consumer([COMMON], 10)
    await broker.publish(some(3))
    held = await receive(consumer, 3)
    await rabbit.raise_memory_alarm()
    try:
        began_at = time.monotonic()
        assert await broker.publish(some(1)) == [UNKNOWN]
        assert time.monotonic() - began_at < 1.5
        await eventually(lambda: not broker.connected)
        assert "memory" in (broker.problem or "")
        assert await broker.publish(some(1)) == [UNREACHABLE]

        consumer.ack(held)
        await consumer.close()
        await eventually(lambda: all_empty(broker, COMMON))
    finally:
        await rabbit.clear_memory_alarm()

    await eventually(lambda: publishes(broker, 9))
    assert broker.problem is None


async def test_a_deleted_queue_is_unroutable_and_declared_again(rabbit: RabbitNode, world: World) -> None:
    settings = a_settings()
    broker = await world.started(settings)
    await delete_queue(rabbit, f"{settings.queue_prefix}.{URGENT}")

    assert await broker.depths([COMMON, URGENT]) == {COMMON: Depth(0, 0)}
    assert await broker.publish([(URGENT, a_message(1)), (COMMON, a_message(2))]) == [UNROUTABLE, CONFIRMED]

    await eventually(lambda: publishes(broker, 3, URGENT))
    assert (await broker.depths([URGENT]))[URGENT] == Depth(1, 0)


async def test_a_queue_deleted_under_its_consumer_comes_back_and_harms_no_other(
    rabbit: RabbitNode, world: World
) -> None:
    settings = a_settings()
    broker = await world.started(settings)
    consumer = broker.consumer([COMMON, URGENT], 10)
    await broker.publish([(COMMON, a_message(1)), (URGENT, a_message(2))])
    held = await receive(consumer, 2)

    await delete_queue(rabbit, f"{settings.queue_prefix}.{COMMON}")
    await eventually(lambda: publishes(broker, 3))
    (after,) = await receive(consumer, 1)
    consumer.ack([*held, after])

    assert ids([after]) == [a_message(3).task_id]
    await consumer.close()
    await eventually(lambda: all_empty(broker, COMMON, URGENT))


async def test_a_deleted_dead_letter_queue_comes_back_with_its_consumer(rabbit: RabbitNode, world: World) -> None:
    settings = a_settings()
    broker = await world.started(settings)
    consumer, dead = broker.consumer([COMMON], 10), broker.dead_letter_consumer(10)
    await broker.publish(some(1))
    consumer.reject(await receive(consumer, 1))
    dead.ack(await receive(dead, 1))

    await delete_queue(rabbit, f"{settings.queue_prefix}.dead")

    async def dead_letters_arrive() -> bool:
        await broker.publish(some(1))
        consumer.reject(await receive(consumer, 1))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.2):
                return bool(await dead.receive(1))
        return False

    await eventually(dead_letters_arrive)


async def test_a_delivery_held_past_the_brokers_patience_costs_only_its_channel() -> None:
    node = RabbitNode(consumer_timeout_ms=1500, channel_tick_interval_ms=300)
    await node.start()
    world = rabbit_world(node.url)
    try:
        broker = await world.started(a_settings())
        consumer = broker.consumer([COMMON, URGENT], 10)
        await broker.publish(some(1))
        held = await receive(consumer, 1)

        (again,) = await receive(consumer, 1)
        consumer.ack([*held, again])
        await broker.publish([(COMMON, a_message(2)), (URGENT, a_message(3))])
        others = await receive(consumer, 2)
        consumer.ack(others)

        assert (ids([again]), again.redelivered) == (ids(held), True)
        assert again.epoch != held[0].epoch
        await eventually(lambda: has_consumers(broker, 1))
        await consumer.close()
        await eventually(lambda: all_empty(broker, COMMON, URGENT))
    finally:
        await world.close()
        await node.close()


async def test_a_misdeclared_queue_is_named_with_what_differs_and_work_goes_on(world: World) -> None:
    settings = a_settings(delivery_limit=2)
    await world.started(settings)
    broker = world.broker(settings.model_copy(update={"delivery_limit": 3}))
    await broker.start()

    with pytest.raises(BrokerMisdeclared) as refused:
        await broker.declare([COMMON, URGENT])
    consumer = broker.consumer([COMMON], 10)
    await broker.publish(some(1))

    for part in (f"{settings.queue_prefix}.{COMMON}", f"{settings.queue_prefix}.{URGENT}", "x-delivery-limit"):
        assert part in str(refused.value)
    assert ids(await receive(consumer, 1)) == [a_message(1).task_id]
    assert broker.problem == str(refused.value)
    assert broker.connected


async def test_a_corrected_misdeclaration_is_no_problem_any_more(rabbit: RabbitNode, world: World) -> None:
    settings = a_settings(delivery_limit=2)
    await world.started(settings)
    broker = world.broker(settings.model_copy(update={"delivery_limit": 3}))
    await broker.start()
    with pytest.raises(BrokerMisdeclared):
        await broker.declare([COMMON])

    await delete_queue(rabbit, f"{settings.queue_prefix}.{COMMON}")
    await broker.declare([COMMON])

    assert broker.problem is None


async def test_every_queue_says_explicitly_what_versions_differ_in(rabbit: RabbitNode, world: World) -> None:
    settings = a_settings(delivery_limit=7, dead_letter_max_length=123)
    await world.started(settings)

    listed = await rabbit.ctl("list_queues", "--silent", "name", "type", "durable", "arguments")

    rows = [row for row in listed.splitlines() if row.startswith(f"{settings.queue_prefix}.")]
    assert len(rows) == 3
    for row in rows:
        assert "\tquorum\ttrue\t" in row
        assert '"x-delivery-limit",' in row
        if ".dead\t" in row:
            assert '{"x-max-length",123}' in row
        else:
            assert '{"x-delivery-limit",7}' in row
            assert f'{{"x-dead-letter-exchange","{settings.queue_prefix}.dead"}}' in row


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (("guest:guest@", "guest:sk-CANARY@"), "ACCESS_REFUSED"),
        (("guest:guest@", "sk-CANARY:guest@"), "ACCESS_REFUSED"),
        (("/", "/no-such-host"), "no-such-host"),
    ],
)
async def test_a_refused_login_says_why_and_never_quotes_the_password(
    rabbit: RabbitNode, change: tuple[str, str], problem: str, caplog: pytest.LogCaptureFixture
) -> None:
    old, new = change
    url = rabbit.url.removesuffix("/") + new if old == "/" else rabbit.url.replace(old, new)
    broker = RabbitBroker(url, a_settings())
    await broker.start()

    await eventually(lambda: problem in (broker.problem or ""))
    await broker.close()

    assert "CANARY" not in caplog.text


async def test_several_addresses_are_tried_in_turn(rabbit: RabbitNode) -> None:
    (unused,) = free_ports(1)
    broker = RabbitBroker(f"amqp://guest:guest@127.0.0.1:{unused}/,{rabbit.url}", a_settings())
    await broker.start()

    await broker.declare([COMMON])

    assert broker.connected
    await broker.close()


async def test_nothing_grows_over_many_messages_and_a_reconnection(rabbit: RabbitNode, world: World) -> None:
    broker = await world.started(a_settings())
    consumer = broker.consumer([COMMON, URGENT], 500)

    async def thousand_times(count: int) -> None:
        for _ in range(count):
            outcomes, _ = await asyncio.gather(broker.publish(some(1000)), _ack(consumer, 1000))
            assert set(outcomes) == {CONFIRMED}
            await broker.depths([COMMON, URGENT, "unheard-of"])

    async def channels() -> int:
        listed = await rabbit.ctl("list_channels", "--silent", "pid")
        return len(listed.split())

    await thousand_times(4)
    tasks, opened, before_bytes = len(asyncio.all_tasks()), await channels(), psutil.Process().memory_info().rss
    await thousand_times(10)
    await rabbit.close_all_connections()
    await eventually(lambda: publishes(broker, 1))
    await _ack(consumer, 1)
    await eventually(lambda: has_consumers(broker, 1))
    await thousand_times(10)

    assert await channels() == opened == 3
    assert len(asyncio.all_tasks()) == tasks
    assert psutil.Process().memory_info().rss - before_bytes < 30_000_000


async def _ack(consumer: Consumer, count: int) -> None:
    while count:
        deliveries = await consumer.receive(count)
        consumer.ack(deliveries)
        count -= len(deliveries)
