"""What every broker behind the seam does, the unhappy rows first; runs on RabbitMQ and on the in-process broker."""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable

import pytest
import pytest_asyncio

from app.broker.base import (
    Broker,
    BrokerClosed,
    BrokerUnreachable,
    Consumer,
    Delivery,
    Depth,
    Malformed,
    Published,
    TaskMessage,
)
from tests.broker.worlds import COMMON, URGENT, World, a_message, a_settings, ids, memory_world, rabbit_world, receive
from tests.broker.worlds import some as some_messages
from tests.support.eventually import eventually
from tests.support.rabbitmq import RabbitNode

TRACEPARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
GOOD_BODY = (
    b'{"task_id":"t1","type":"a","tenant_id":"acme","attempt":1,"dispatch":1,"created_at":"2026-11-30T12:00:00Z"}'
)
BAD_BODIES = {
    "broken JSON": b"{bad",
    "empty": b"",
    "five megabytes": b"x" * 5_000_000,
    "just too long": GOOD_BODY + b" " * (65_537 - len(GOOD_BODY)),
    "not UTF-8": b'{"task_id":"\xff\xfe"}',
    "an array": b"[1, 2]",
    "null": b"null",
    "deeply nested": b"[" * 20_000,
    "a field missing": b'{"task_id":"t1"}',
    "a secret field": GOOD_BODY[:-1] + b',"sk-CANARY":"sk-CANARY"}',
    "a text for a number": GOOD_BODY.replace(b'"attempt":1', b'"attempt":"sk-CANARY"'),
    "a fraction": GOOD_BODY.replace(b'"attempt":1', b'"attempt":1.5'),
    "a negative number": GOOD_BODY.replace(b'"dispatch":1', b'"dispatch":-1'),
    "a number beyond 64 bits": GOOD_BODY.replace(b'"dispatch":1', b'"dispatch":99999999999999999999'),
    "NaN": GOOD_BODY.replace(b'"dispatch":1', b'"dispatch":NaN'),
    "a NUL": GOOD_BODY.replace(b'"t1"', b'"t\\u0000"'),
    "a lone surrogate": GOOD_BODY.replace(b'"t1"', b'"\\ud800"'),
    "an empty id": GOOD_BODY.replace(b'"t1"', b'""'),
    "an id that is too long": GOOD_BODY.replace(b'"t1"', b'"' + b"t" * 65 + b'"'),
}


@pytest_asyncio.fixture(params=["memory", "rabbitmq"])
async def world(request: pytest.FixtureRequest, rabbit: RabbitNode) -> AsyncIterator[World]:
    made = memory_world() if request.param == "memory" else rabbit_world(rabbit.url)
    yield made
    await made.close()


async def nothing_arrives(consumer: Consumer) -> None:
    """Look for a while: a delivery that should not come has no fact to wait for."""
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.2):
            await consumer.receive(1)


async def is_empty(broker: Broker, priority_class: str = COMMON) -> bool:
    return (await broker.depths([priority_class]))[priority_class].ready == 0


async def test_before_the_start_nothing_leaves_and_the_caller_knows(world: World) -> None:
    broker = world.broker(a_settings())

    outcomes = await broker.publish(some_messages(2))

    assert outcomes == [Published.UNREACHABLE] * 2
    assert not broker.connected
    assert broker.problem is not None
    with pytest.raises(BrokerUnreachable):
        await broker.depths([COMMON])


async def test_after_the_close_nothing_leaves_and_receivers_are_told(world: World) -> None:
    broker = await world.started(a_settings())
    consumer = broker.consumer([COMMON], 10)
    waiting = asyncio.create_task(consumer.receive(1))

    await broker.close()

    assert await broker.publish(some_messages(1)) == [Published.UNREACHABLE]
    assert not broker.connected
    with pytest.raises(BrokerClosed):
        await waiting
    with pytest.raises(BrokerClosed):
        await consumer.receive(1)


async def test_a_message_without_a_queue_is_unroutable_and_its_neighbours_go(world: World) -> None:
    broker = await world.started(a_settings())
    items = [(COMMON, a_message(1)), ("unheard-of", a_message(2)), (URGENT, a_message(3)), ("unknown", a_message(4))]

    outcomes = await broker.publish(items)

    unroutable, confirmed = Published.UNROUTABLE, Published.CONFIRMED
    assert outcomes == [confirmed, unroutable, confirmed, unroutable]


@pytest.mark.parametrize("name", ["", "dead", "a.b", "with space", "é", "x" * 65, "a\n"])
async def test_a_class_that_cannot_name_a_queue_is_refused(world: World, name: str) -> None:
    broker = await world.started(a_settings())

    with pytest.raises(ValueError, match="priority class is 1 to 64"):
        await broker.declare([name])
    with pytest.raises(ValueError, match="priority class is 1 to 64"):
        broker.consumer([name], 1)
    with pytest.raises(ValueError, match="priority class is 1 to 64"):
        await broker.publish([(name, a_message())])


@pytest.mark.parametrize("prefetch", [0, -1, 65_536])
async def test_a_prefetch_that_no_broker_takes_is_refused(world: World, prefetch: int) -> None:
    broker = await world.started(a_settings())

    with pytest.raises(ValueError, match="1 to 65535"):
        broker.consumer([COMMON], prefetch)


@pytest.mark.parametrize("kind", BAD_BODIES)
async def test_a_bad_body_is_delivered_once_and_parked_with_its_reason(world: World, kind: str) -> None:
    settings = a_settings()
    broker = await world.started(settings)
    consumer, dead = broker.consumer([COMMON], 10), broker.dead_letter_consumer(10)
    body = BAD_BODIES[kind]

    await world.put_body(broker, settings, COMMON, body)
    await broker.publish([(COMMON, a_message(2))])
    bad, good = await receive(consumer, 2)
    consumer.reject([bad])
    consumer.ack([good])
    (parked,) = await receive(dead, 1)
    dead.ack([parked])

    assert isinstance(bad.message, Malformed)
    assert bad.message.size_bytes == len(body)
    assert "CANARY" not in bad.message.reason
    assert isinstance(good.message, TaskMessage)
    assert (parked.priority_class, parked.dead_reason) == (COMMON, "rejected")
    assert parked.message == bad.message
    await nothing_arrives(consumer)
    await nothing_arrives(dead)


async def test_a_message_that_keeps_coming_back_is_dead_lettered_after_its_limit(world: World) -> None:
    broker = await world.started(a_settings(delivery_limit=2))
    consumer, dead = broker.consumer([COMMON], 10), broker.dead_letter_consumer(10)
    await broker.publish([(COMMON, a_message(1, {"traceparent": TRACEPARENT}))])

    redelivered = []
    for _ in range(3):
        (delivery,) = await receive(consumer, 1)
        redelivered.append(delivery.redelivered)
        consumer.requeue([delivery])
    (parked,) = await receive(dead, 1)

    assert redelivered == [False, True, True]
    assert (parked.priority_class, parked.dead_reason) == (COMMON, "delivery_limit")
    assert parked.message == a_message(1, {"traceparent": TRACEPARENT})
    assert delivery.dead_reason is None
    await nothing_arrives(consumer)


async def test_what_a_closed_consumer_had_goes_to_another(world: World) -> None:
    broker = await world.started(a_settings())
    await broker.publish(some_messages(3))
    first = broker.consumer([COMMON], 10)
    received = await receive(first, 3)
    first.ack(received[:1])

    await first.close()
    second = broker.consumer([COMMON], 10)
    again = await receive(second, 2)

    assert sorted(ids(again)) == ids(received)[1:]
    assert all(delivery.redelivered for delivery in again)
    await nothing_arrives(second)


async def test_settling_twice_or_after_the_close_harms_nothing(world: World) -> None:
    broker = await world.started(a_settings())
    consumer = broker.consumer([COMMON], 10)
    await broker.publish(some_messages(2))
    first, second = await receive(consumer, 2)

    consumer.ack([second, second])
    consumer.reject([second])
    consumer.requeue([second])
    consumer.ack([first, second])
    await broker.publish([(COMMON, a_message(3))])
    (third,) = await receive(consumer, 1)
    await consumer.close()
    consumer.ack([first, second, third])

    assert ids([third]) == [a_message(3).task_id]
    other = broker.consumer([COMMON], 10)
    assert ids(await receive(other, 1)) == ids([third])
    await nothing_arrives(other)


async def test_a_rejected_dead_letter_is_gone(world: World) -> None:
    broker = await world.started(a_settings())
    consumer, dead = broker.consumer([COMMON], 10), broker.dead_letter_consumer(10)
    await broker.publish(some_messages(1))
    consumer.reject(await receive(consumer, 1))

    dead.reject(await receive(dead, 1))

    await nothing_arrives(dead)
    await nothing_arrives(consumer)


async def test_the_dead_letter_queue_keeps_the_newest(world: World) -> None:
    broker = await world.started(a_settings(dead_letter_max_length=3))
    consumer = broker.consumer([COMMON], 10)
    await broker.publish(some_messages(5))
    for delivery in await receive(consumer, 5):
        consumer.reject([delivery])

    async def kept() -> list[str]:
        dead = broker.dead_letter_consumer(10)
        received = await receive(dead, 3)
        await dead.close()
        return sorted(ids(received))

    newest = [a_message(number).task_id for number in (3, 4, 5)]
    await eventually(lambda: _equal(kept(), newest))


async def _equal(found: Awaitable[list[str]], expected: list[str]) -> bool:
    return await found == expected


async def test_a_cancelled_receive_loses_nothing(world: World) -> None:
    broker = await world.started(a_settings())
    consumer = broker.consumer([COMMON], 10)
    waiting = asyncio.create_task(consumer.receive(1))
    await eventually(lambda: _consumers(broker, 1))

    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await broker.publish(some_messages(2))

    assert ids(await receive(consumer, 2)) == [a_message(1).task_id, a_message(2).task_id]


async def test_a_second_caller_of_receive_is_told_so(world: World) -> None:
    broker = await world.started(a_settings())
    consumer = broker.consumer([COMMON], 10)
    waiting = asyncio.create_task(consumer.receive(1))
    await asyncio.sleep(0)

    with pytest.raises(RuntimeError, match="two callers"):
        await consumer.receive(1)
    await broker.publish(some_messages(1))

    assert len(await waiting) == 1


async def test_prefetch_bounds_what_is_out_per_class(world: World) -> None:
    broker = await world.started(a_settings())
    consumer = broker.consumer([COMMON, URGENT], 2)
    await broker.publish(some_messages(5, COMMON) + some_messages(5, URGENT))

    first = await receive(consumer, 4)
    await nothing_arrives(consumer)
    consumer.ack([next(d for d in first if d.priority_class == COMMON)])
    (following,) = await receive(consumer, 1)

    assert sorted(d.priority_class for d in first) == [COMMON, COMMON, URGENT, URGENT]
    assert (following.priority_class, ids([following])) == (COMMON, [a_message(3).task_id])
    await nothing_arrives(consumer)


async def test_a_paused_consumer_gets_nothing_more_and_settles_what_it_has(world: World) -> None:
    broker = await world.started(a_settings())
    consumer = broker.consumer([COMMON], 3)
    await broker.publish(some_messages(3))
    (held,) = await consumer.receive(1)
    await eventually(lambda: is_empty(broker))

    await consumer.pause()
    await broker.publish([(COMMON, a_message(4))])
    with pytest.raises(BrokerClosed):
        await consumer.receive(1)
    consumer.ack([held])
    other = broker.consumer([COMMON], 10)
    taken_over = await receive(other, 3)
    other.ack(taken_over)
    await consumer.close()

    assert sorted(ids(taken_over)) == [a_message(number).task_id for number in (2, 3, 4)]
    await nothing_arrives(other)


async def test_a_consumer_can_be_paused_before_it_subscribes_and_closed_twice(world: World) -> None:
    broker = await world.started(a_settings())
    consumer = broker.consumer([COMMON], 1)

    await consumer.pause()
    await consumer.pause()
    await consumer.close()
    await consumer.close()
    await broker.publish(some_messages(1))

    assert await broker.depths([COMMON]) == {COMMON: Depth(1, 0)}


async def test_depths_are_fresh_and_leave_out_what_does_not_exist(world: World) -> None:
    broker = await world.started(a_settings())

    before = await broker.depths([COMMON, "unheard-of", URGENT])
    await broker.publish(some_messages(3))
    after = await broker.depths([COMMON, "unheard-of", "unknown"])
    consumer = broker.consumer([COMMON], 2)
    consumer.ack(await receive(consumer, 2))
    await receive(consumer, 1)

    assert before == {COMMON: Depth(0, 0), URGENT: Depth(0, 0)}
    assert after == {COMMON: Depth(3, 0)}
    assert await eventually(lambda: _consumers(broker, 1)) == {COMMON: Depth(0, 1)}


async def _consumers(broker: Broker, count: int) -> dict[str, Depth] | None:
    depths = dict(await broker.depths([COMMON]))
    return depths if depths[COMMON].consumers == count else None


async def test_acks_in_any_order_settle_everything_exactly_once(world: World) -> None:
    broker = await world.started(a_settings())
    consumer = broker.consumer([COMMON, URGENT], 500)
    await broker.publish(some_messages(300, COMMON) + some_messages(200, URGENT))
    received = await receive(consumer, 500)
    random.Random(1).shuffle(received)

    while received:
        consumer.ack(received[:7])
        del received[:7]
    await broker.publish(some_messages(500, COMMON) + some_messages(500, URGENT))
    following = await receive(consumer, 1000)  # as many as may be out: one lost ack and this waits for ever

    assert not any(delivery.redelivered for delivery in following)
    await nothing_arrives(consumer)


async def test_acks_rejects_and_requeues_between_each_other_each_do_their_own(world: World) -> None:
    broker = await world.started(a_settings())
    consumer, dead = broker.consumer([COMMON], 100), broker.dead_letter_consumer(100)
    await broker.publish(some_messages(9))
    received = await receive(consumer, 9)

    consumer.reject(received[1::3])
    consumer.requeue(received[2::3])
    consumer.ack(received[0::3])
    again, parked = await receive(consumer, 3), await receive(dead, 3)
    consumer.ack(again)

    assert ids(again) == ids(received[2::3])
    assert ids(parked) == ids(received[1::3])
    await nothing_arrives(consumer)
    await nothing_arrives(dead)


async def test_many_publishers_at_once_each_learn_about_their_own(world: World) -> None:
    broker = await world.started(a_settings())
    calls = [
        broker.publish([(COMMON if number % 3 else "unheard-of", a_message(number * 100 + k)) for k in range(20)])
        for number in range(30)
    ]

    outcomes = await asyncio.gather(*calls)

    expected = [Published.CONFIRMED if number % 3 else Published.UNROUTABLE for number in range(30)]
    assert outcomes == [[outcome] * 20 for outcome in expected]
    assert (await broker.depths([COMMON]))[COMMON].ready == 400


async def test_consumers_share_a_queue_and_none_gets_what_another_has(world: World) -> None:
    broker = await world.started(a_settings())
    one, two = broker.consumer([COMMON], 5), broker.consumer([COMMON], 5)
    await eventually(lambda: _consumers(broker, 2))

    await broker.publish(some_messages(10))
    received = await receive(one, 5) + await receive(two, 5)

    assert sorted(ids(received)) == [a_message(number).task_id for number in range(1, 11)]


@pytest.mark.parametrize(
    ("trace", "arrives"),
    [
        ({}, {}),
        ({"traceparent": TRACEPARENT}, {"traceparent": TRACEPARENT}),
        ({"traceparent": TRACEPARENT, "tracestate": "a=1"}, {"traceparent": TRACEPARENT, "tracestate": "a=1"}),
        ({"tracestate": "a=1", "authorization": "sk-CANARY"}, {"tracestate": "a=1"}),
        ({"traceparent": "é" * 55}, {}),
        ({"traceparent": "x" * 513}, {}),
        ({"traceparent": ""}, {}),
    ],
)
async def test_a_message_arrives_as_it_was_published(
    world: World, trace: dict[str, str], arrives: dict[str, str]
) -> None:
    broker = await world.started(a_settings())
    consumer = broker.consumer([COMMON], 1)
    published = a_message(1, trace, type='quoted "type" \\u0000 é 🦀', attempt=3, dispatch=2**31 - 1)

    assert await broker.publish([(COMMON, published)]) == [Published.CONFIRMED]
    (delivery,) = await receive(consumer, 1)

    assert delivery.message == a_message(1, arrives, type=published.type, attempt=3, dispatch=2**31 - 1)
    assert (delivery.priority_class, delivery.redelivered, delivery.dead_reason) == (COMMON, False, None)


async def test_a_class_is_first_in_first_out_and_receive_takes_no_more_than_asked(world: World) -> None:
    broker = await world.started(a_settings())
    consumer = broker.consumer([COMMON], 100)
    await broker.publish(some_messages(50))
    await eventually(lambda: is_empty(broker))

    batches = [await consumer.receive(7) for _ in range(3)]
    rest = await receive(consumer, 50 - sum(map(len, batches)))

    assert all(1 <= len(batch) <= 7 for batch in batches)
    assert [task_id for batch in [*batches, rest] for task_id in ids(batch)] == [
        a_message(number).task_id for number in range(1, 51)
    ]


async def test_a_message_that_no_consumer_would_take_is_refused_and_its_neighbours_go(world: World) -> None:
    broker = await world.started(a_settings())
    too_long = a_message(2, type="x" * 70_000)

    outcomes = await broker.publish([(COMMON, a_message(1)), (COMMON, too_long), ("unheard-of", a_message(3))])

    assert outcomes == [Published.CONFIRMED, Published.REFUSED, Published.UNROUTABLE]


async def test_nothing_to_publish_is_nothing(world: World) -> None:
    broker = await world.started(a_settings())

    assert await broker.publish([]) == []


async def test_a_started_broker_says_that_it_works(world: World) -> None:
    broker = await world.started(a_settings())
    consumer = broker.consumer([COMMON], 1)
    await eventually(lambda: broker.connected)

    assert broker.problem is None
    await consumer.close()


async def test_a_consumer_takes_up_further_queues_and_none_once_it_is_paused(world: World) -> None:
    broker = await world.started(a_settings())
    consumer = broker.consumer([COMMON], prefetch=10)
    await broker.publish([(URGENT, a_message(7))])

    consumer.extend([COMMON, URGENT])
    got = await receive(consumer, 1)
    consumer.ack(got)
    await consumer.pause()
    consumer.extend(["later"])

    assert ids(got) == ids([Delivery(URGENT, a_message(7), False, 1)])
    assert not (await broker.depths(["later"])).get("later", Depth(0, 0)).consumers
