"""The names and arguments of every queue, and having them exist.

    default exchange ──<prefix>.<class>──▶ quorum queue <prefix>.<class>
                                              │ rejected, or delivered more than `delivery_limit` times
                                              ▼
    fanout exchange <prefix>.dead ────────▶ quorum queue <prefix>.dead, at most `dead_letter_max_length` messages

Every argument that a RabbitMQ version has its own default for is explicit: without `x-delivery-limit` a quorum queue
redelivers for ever on 3.x and 20 times on 4.x.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from app.broker.amqp.channel import Channel
from app.broker.amqp.connection import Connection
from app.broker.amqp.errors import PRECONDITION_FAILED, ChannelLost
from app.broker.amqp.frames import FieldValue
from app.broker.base import BrokerMisdeclared
from app.settings import BrokerSettings

DEAD = "dead"
"""The one name that is not a class's."""

DEAD_DELIVERY_LIMIT = 1_000_000
"""Nothing comes after the dead-letter queue, so its messages stay until they are acked or pushed out by newer ones."""

DECLARE_AGAIN_AFTER_SECONDS = 0.25
"""How long a deleted queue stays deleted. RabbitMQ 3.x moves the consumers of a deleted queue silently to one of the
same name if there is one by the time it tells them (a few ms later), and drops as many of its first messages as they
had received before, as duplicates: they would be alive and deaf. Once it has cancelled them, they can come back."""

_CLASS = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")


@dataclass(frozen=True, slots=True)
class Topology:
    """Names and arguments under one prefix."""

    prefix: str
    delivery_limit: int
    dead_letter_max_length: int

    @classmethod
    def of(cls, settings: BrokerSettings) -> "Topology":
        """Take what concerns queues from the settings."""
        return cls(settings.queue_prefix, settings.delivery_limit, settings.dead_letter_max_length)

    def queue(self, priority_class: str) -> str:
        """Name the queue of a class. Raises ValueError when the class cannot name one."""
        if priority_class == DEAD or _CLASS.fullmatch(priority_class) is None:
            raise ValueError(
                f"a priority class is 1 to 64 letters, digits, '_' or '-' and not {DEAD!r}: it names a queue"
            )
        return f"{self.prefix}.{priority_class}"

    def class_of(self, queue: str) -> str:
        """Name the class of a queue; empty when it is none of ours."""
        prefix, _, priority_class = queue.rpartition(".")
        return priority_class if prefix == self.prefix else ""

    @property
    def dead(self) -> str:
        """Name the dead-letter exchange and the dead-letter queue."""
        return f"{self.prefix}.{DEAD}"

    @property
    def queue_arguments(self) -> Mapping[str, FieldValue]:
        """Arguments of a class's queue."""
        return {
            "x-queue-type": "quorum",
            "x-delivery-limit": self.delivery_limit,
            "x-dead-letter-exchange": self.dead,
        }

    @property
    def dead_arguments(self) -> Mapping[str, FieldValue]:
        """Arguments of the dead-letter queue: bounded, the oldest goes first."""
        return {
            "x-queue-type": "quorum",
            "x-delivery-limit": DEAD_DELIVERY_LIMIT,
            "x-max-length": self.dead_letter_max_length,
            "x-overflow": "drop-head",
        }


async def declare(connection: Connection, topology: Topology, classes: Iterable[str]) -> None:
    """Have the queues of these classes and the dead-letter queue exist.

    A queue with other arguments stops none of the others. Raises BrokerMisdeclared when there is one, ChannelLost when
    the broker refuses for another reason, ConnectionLost.
    """
    wanted = [(topology.dead, topology.dead_arguments)]
    wanted += [(topology.queue(name), topology.queue_arguments) for name in sorted(classes)]
    problems: dict[str, str] = {}
    channel: Channel | None = None
    for queue, arguments in wanted:
        try:
            if channel is None:
                channel = await connection.channel()
            if queue == topology.dead:
                await channel.declare_exchange(topology.dead, "fanout")
            await channel.declare_queue(queue, arguments)
            if queue == topology.dead:
                await channel.bind_queue(queue, topology.dead)
        except ChannelLost as refused:
            if refused.code != PRECONDITION_FAILED:
                raise
            channel = None
            problems[queue] = str(refused)
    if channel is not None:
        await channel.close()
    if problems:
        raise BrokerMisdeclared(problems)
