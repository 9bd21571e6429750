"""The two brokers under one name each, so that one suite runs on both."""

import itertools
import os
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from app.broker.amqp import frames
from app.broker.amqp.address import parse_addresses
from app.broker.amqp.connection import Connection
from app.broker.base import Broker, Consumer, Delivery, TaskMessage
from app.broker.memory import MemoryBroker
from app.broker.rabbitmq import RabbitBroker
from app.settings import BrokerSettings

COMMON, URGENT = "common", "urgent"
_numbers = itertools.count(1)


def a_settings(**changes: object) -> BrokerSettings:
    """Settings with queues of their own and quick reconnection."""
    defaults = {
        "queue_prefix": f"t{os.getpid()}-{next(_numbers)}",
        "reconnect_seconds": 0.05,
        "delivery_limit": 2,
        "publish_deadline_seconds": 5.0,
    }
    return BrokerSettings.model_validate({**defaults, **changes})


def a_message(number: int = 1, trace: Mapping[str, str] | None = None, **changes: object) -> TaskMessage:
    """A task message; those with different numbers differ in their id."""
    fields = {
        "task_id": f"01KB{number:022d}",
        "type": "classify_document",
        "tenant_id": "acme",
        "attempt": 1,
        "dispatch": 7,
        "created_at": "2026-11-30T12:00:00.000000Z",
    }
    return TaskMessage(**{**fields, **changes}, trace=trace or {})  # type: ignore[arg-type]


def some(count: int, priority_class: str = COMMON) -> list[tuple[str, TaskMessage]]:
    """Messages 1 to `count` for one class."""
    return [(priority_class, a_message(number)) for number in range(1, count + 1)]


async def receive(consumer: Consumer, count: int) -> list[Delivery]:
    """Receive exactly `count` deliveries; settle none."""
    received: list[Delivery] = []
    while len(received) < count:
        received += await consumer.receive(count - len(received))
    return received


def ids(deliveries: list[Delivery]) -> list[str]:
    """The task ids of deliveries, in order; a malformed one shows its reason."""
    return [d.message.task_id if isinstance(d.message, TaskMessage) else d.message.reason for d in deliveries]


@dataclass(slots=True)
class World:
    """A kind of broker: making one with given settings, and putting foreign bodies into its queues."""

    make: Callable[[BrokerSettings], Broker]
    put_body: Callable[[Broker, BrokerSettings, str, bytes], Awaitable[None]]
    brokers: list[Broker] = field(default_factory=list)

    def broker(self, settings: BrokerSettings) -> Broker:
        """A broker that has not been started."""
        self.brokers.append(broker := self.make(settings))
        return broker

    async def started(self, settings: BrokerSettings) -> Broker:
        """A started broker with the queues of two classes."""
        broker = self.broker(settings)
        await broker.start()
        await broker.declare([COMMON, URGENT])
        return broker

    async def close(self) -> None:
        """Close all brokers."""
        for broker in self.brokers:
            await broker.close()


def memory_world() -> World:
    """The in-process broker."""

    async def put_body(broker: Broker, settings: BrokerSettings, priority_class: str, body: bytes) -> None:
        assert isinstance(broker, MemoryBroker)
        broker.publish_body(priority_class, body)

    return World(MemoryBroker, put_body)


def rabbit_world(url: str) -> World:
    """RabbitMQ."""

    async def put_body(broker: Broker, settings: BrokerSettings, priority_class: str, body: bytes) -> None:
        await put_on_queue(url, f"{settings.queue_prefix}.{priority_class}", body)

    return World(lambda settings: RabbitBroker(url, settings), put_body)


async def connect(url: str) -> Connection:
    """A bare connection."""
    return await Connection.open(parse_addresses(url)[0], heartbeat_seconds=15, timeout_seconds=5, name="test")


async def put_on_queue(url: str, queue: str, body: bytes, properties: bytes = b"\x00\x00") -> None:
    """Publish a body as a foreign client would, in as many frames as it takes."""
    connection = await connect(url)
    channel = await connection.channel()
    await channel.select_confirms()
    arguments = (frames.u16(0), frames.short_string(""), frames.short_string(queue), frames.u8(0))
    octets = frames.method(channel.number, frames.BASIC_PUBLISH, *arguments)
    header = frames.u16(frames.BASIC_CLASS) + frames.u16(0) + len(body).to_bytes(8, "big") + properties
    octets += frames.frame(frames.HEADER, channel.number, header)
    step = connection.frame_max - frames.FRAME_OVERHEAD
    for start in range(0, len(body), step):
        octets += frames.frame(frames.BODY, channel.number, body[start : start + step])
    connection.write(octets)
    await channel.close()
    await connection.close()
