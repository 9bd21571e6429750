"""RabbitMQ behind the broker seam, from 3.10 to 4.x.

Two connections: one to publish and one to consume, since a broker that is short of memory stops reading from
connections that publish, and acks must go on. Their upkeep is in `link.py`, what goes over them in `publishing.py` and
`consuming.py`, the queues in `topology.py`.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence

from app.broker.amqp.address import parse_addresses
from app.broker.amqp.channel import Body, Channel
from app.broker.amqp.connection import Connection
from app.broker.amqp.errors import NOT_FOUND, AmqpError, ChannelLost
from app.broker.amqp.frames import FieldValue
from app.broker.base import BrokerMisdeclared, BrokerUnreachable, Delivery, Depth, Published, TaskMessage
from app.broker.consuming import Decode, RabbitConsumer, Source
from app.broker.link import Link
from app.broker.message import decode, headers
from app.broker.publishing import Publisher
from app.broker.stuck import STUCK_AFTER_SECONDS, StuckQueues
from app.broker.topology import DECLARE_AGAIN_AFTER_SECONDS, Topology, declare
from app.settings import BrokerSettings

_log = logging.getLogger(__name__)
_MEND_WITHIN_SECONDS = 30.0


class RabbitBroker:
    """The `Broker` of RabbitMQ; see `base.py`."""

    def __init__(self, url: str, settings: BrokerSettings, *, stuck_after_seconds: float = STUCK_AFTER_SECONDS) -> None:
        """Take the address or addresses. Raises AmqpUrlError, which never quotes them."""
        addresses = parse_addresses(url)
        self._settings = settings
        self._topology = Topology.of(settings)
        self._classes: set[str] = set()
        self._publisher: Publisher | None = None
        self._consumers: list[RabbitConsumer] = []
        self._declaring = asyncio.Lock()
        self._misdeclared: Mapping[str, str] = {}
        self._again: asyncio.Task[None] | None = None
        self._stuck = StuckQueues(stuck_after_seconds)
        self._mending: dict[str, asyncio.Task[None]] = {}
        self._publishing = Link(addresses, settings, "publish", self._prepare_publishing)
        self._consuming = Link(addresses, settings, "consume", self._prepare_consuming)

    async def start(self) -> None:
        """See Broker."""
        self._publishing.start()

    async def close(self) -> None:
        """See Broker."""
        for consumer in self._consumers:
            await consumer.close()
        background = [*self._mending.values(), *([self._again] if self._again is not None else [])]
        for task in background:
            task.cancel()
        if background:
            await asyncio.wait(background)
        await self._consuming.close()
        await self._publishing.close()

    async def declare(self, classes: Collection[str]) -> None:
        """See Broker."""
        for name in classes:
            self._topology.queue(name)
        self._classes.update(classes)
        try:
            async with asyncio.timeout(self._settings.publish_deadline_seconds):
                await self._declare(await self._publishing.connection(), classes)
        except TimeoutError:
            raise BrokerUnreachable(self.problem or "the broker did not declare the queues in time") from None
        except AmqpError as error:
            raise BrokerUnreachable(f"the queues could not be declared: {error}") from error

    async def publish(self, items: Sequence[tuple[str, TaskMessage]]) -> list[Published]:
        """See Broker."""
        publisher = self._publisher
        if not items or publisher is None or self._publishing.up is None:
            return [Published.UNREACHABLE] * len(items)
        asked_at = time.monotonic()
        outcomes = await publisher.publish(items, self._settings.publish_deadline_seconds)
        if Published.UNROUTABLE in outcomes:
            self._declare_again()
        if publisher is not self._publisher or not self.connected:
            self._stuck.forget()
        else:
            answers = ((name, outcome) for (name, _), outcome in zip(items, outcomes, strict=True))
            for name in self._stuck.seen(answers, asked_at, time.monotonic()):
                self._mend(name)
        return outcomes

    def consumer(self, classes: Collection[str], prefetch: int) -> RabbitConsumer:
        """See Broker."""
        return self._consume([self._source(name) for name in classes], prefetch)

    def dead_letter_consumer(self, prefetch: int) -> RabbitConsumer:
        """See Broker."""
        source = Source(self._topology.dead, self._declarer(), _of_dead(self._topology))
        return self._consume([source], prefetch)

    async def depths(self, classes: Collection[str]) -> Mapping[str, Depth]:
        """See Broker."""
        link = self._consuming if self._consuming.up is not None else self._publishing
        if (connection := link.up) is None:
            raise BrokerUnreachable(self.problem or "there is no connection to the broker")
        try:
            async with asyncio.timeout(self._settings.publish_deadline_seconds):
                return await self._look(connection, classes)
        except TimeoutError:
            raise BrokerUnreachable(self.problem or "the broker did not say how its queues stand in time") from None
        except AmqpError as error:
            raise BrokerUnreachable(f"the broker did not say how its queues stand: {error}") from error

    @property
    def connected(self) -> bool:
        """See Broker."""
        publishing = self._publishing.up
        if publishing is None or publishing.blocked is not None:
            return False
        return not self._consumes or self._consuming.up is not None

    @property
    def problem(self) -> str | None:
        """See Broker."""
        if self._publishing.problem is not None:
            return self._publishing.problem
        if (up := self._publishing.up) is not None and up.blocked is not None:
            return f"the broker takes no messages for now: {up.blocked}"
        if self._consumes and self._consuming.problem is not None:
            return self._consuming.problem
        return str(BrokerMisdeclared(self._misdeclared)) if self._misdeclared else None

    @property
    def _consumes(self) -> bool:
        return any(not consumer.closed for consumer in self._consumers)

    def _source(self, priority_class: str) -> Source:
        source = Source(self._topology.queue(priority_class), self._declarer(priority_class), _of_class(priority_class))
        self._classes.add(priority_class)
        return source

    def _consume(self, sources: list[Source], prefetch: int) -> RabbitConsumer:
        consumer = RabbitConsumer(self._consuming, sources, prefetch, self._settings, self._source)
        self._consuming.start()
        self._consumers = [known for known in self._consumers if not known.closed] + [consumer]
        return consumer

    async def _prepare_publishing(self, connection: Connection) -> None:
        await self._declare_or_note(connection, self._classes)
        self._publisher = await Publisher.on(connection, self._topology)

    async def _prepare_consuming(self, connection: Connection) -> None:
        """Nothing: each queue is declared by the task that consumes it."""

    def _declarer(self, *classes: str) -> Callable[[Connection], Awaitable[None]]:
        return lambda connection: self._declare_or_note(connection, classes)

    async def _declare(self, connection: Connection, classes: Collection[str]) -> None:
        """Declare one at a time: the making of a quorum queue twice at once can fail inside the broker."""
        async with self._declaring:
            try:
                await declare(connection, self._topology, classes)
            except BrokerMisdeclared as error:
                if not error.queues.items() <= self._misdeclared.items():
                    _log.error("broker queues misdeclared: %s", error)
                self._note_misdeclared(classes, error.queues)
                raise
            self._note_misdeclared(classes, {})

    def _note_misdeclared(self, classes: Collection[str], found: Mapping[str, str]) -> None:
        asked = {self._topology.dead, *map(self._topology.queue, classes)}
        kept = {queue: said for queue, said in self._misdeclared.items() if queue not in asked}
        self._misdeclared = {**kept, **found}

    async def _declare_or_note(self, connection: Connection, classes: Collection[str]) -> None:
        try:
            await self._declare(connection, set(classes))
        except BrokerMisdeclared:
            return  # noted and logged; the queue exists and is used as it is

    def _declare_again(self) -> None:
        """Have the queues exist again in the background, once at a time."""
        if self._again is None or self._again.done():
            self._again = asyncio.create_task(self._declare_now(), name="despacho-declare")

    async def _declare_now(self) -> None:
        await asyncio.sleep(DECLARE_AGAIN_AFTER_SECONDS)
        try:
            await self.declare(set(self._classes))
        except BrokerUnreachable as error:
            _log.warning("queues could not be declared again: %s", error)

    def _mend(self, priority_class: str) -> None:
        if priority_class not in self._mending:
            mending = asyncio.create_task(self._make_anew(priority_class), name="despacho-mend")
            self._mending[priority_class] = mending
            mending.add_done_callback(lambda _: self._mending.pop(priority_class, None))

    async def _make_anew(self, priority_class: str) -> None:
        """Delete a queue that answers nothing, and declare it again; see `stuck.py`."""
        queue = self._topology.queue(priority_class)
        _log.error("queue %s answers nothing: it is deleted and declared anew", queue)
        try:
            async with asyncio.timeout(_MEND_WITHIN_SECONDS):
                connection = await self._publishing.connection()
                channel = await connection.channel()
                await channel.delete_queue(queue)
                await channel.close()
                await asyncio.sleep(DECLARE_AGAIN_AFTER_SECONDS)
                await self._declare_or_note(connection, {priority_class})
        except (TimeoutError, AmqpError) as error:
            _log.warning("queue %s could not be made anew: %s", queue, error or type(error).__name__)

    async def _look(self, connection: Connection, classes: Collection[str]) -> Mapping[str, Depth]:
        depths: dict[str, Depth] = {}
        channel: Channel | None = None
        for name in classes:
            if channel is None:
                channel = await connection.channel()
            try:
                ready, consumers = await channel.declare_queue(self._topology.queue(name), passive=True)
                depths[name] = Depth(ready, consumers)
            except ChannelLost as error:
                if error.code != NOT_FOUND:
                    raise
                channel = None
        if channel is not None:
            await channel.close()
        return depths


def _of_class(priority_class: str) -> Decode:
    def make(tag: int, redelivered: bool, properties: bytes, body: Body, epoch: int) -> Delivery:
        return Delivery(priority_class, decode(properties, body), redelivered, tag, epoch)

    return make


def _of_dead(topology: Topology) -> Decode:
    def make(tag: int, redelivered: bool, properties: bytes, body: Body, epoch: int) -> Delivery:
        queue, reason = _last_death(headers(properties))
        return Delivery(topology.class_of(queue), decode(properties, body), redelivered, tag, epoch, reason)

    return make


def _last_death(found: Mapping[str, FieldValue]) -> tuple[str, str]:
    """Read the queue a message was dead-lettered from and why; the newest entry of `x-death` is the first."""
    deaths = found.get("x-death")
    if isinstance(deaths, list) and deaths and isinstance(deaths[0], dict):
        queue, reason = deaths[0].get("queue"), deaths[0].get("reason")
        if isinstance(queue, str) and isinstance(reason, str):
            return queue, reason
    return "", "unknown"
