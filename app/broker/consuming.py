"""Consuming: one channel and one consumer per queue, so that a queue that dies takes no other with it.

Each queue has a task that subscribes, waits for the channel to end and subscribes again; deliveries are handed over
from inside the connection's read, without a task or future of their own.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable
from dataclasses import dataclass

from app.broker.amqp.channel import Body, Channel
from app.broker.amqp.connection import Connection
from app.broker.amqp.errors import AmqpError
from app.broker.amqp.settling import Settlements
from app.broker.arrivals import Arrivals
from app.broker.base import Delivery
from app.broker.link import Link
from app.broker.message import MAX_BODY_BYTES
from app.broker.topology import DECLARE_AGAIN_AFTER_SECONDS
from app.settings import BrokerSettings

_log = logging.getLogger(__name__)

Decode = Callable[[int, bool, bytes, Body, int], Delivery]
"""Makes a delivery of (tag, redelivered, property flags and list, body, epoch)."""


@dataclass(frozen=True, slots=True)
class Source:
    """A queue to consume: how to have it exist, and how to read what comes from it."""

    queue: str
    declare: Callable[[Connection], Awaitable[None]]
    decode: Decode


@dataclass(frozen=True, slots=True)
class _Subscription:
    connection: Connection
    channel: Channel
    settlements: Settlements


class RabbitConsumer:
    """The `Consumer` of RabbitMQ; see `base.py`."""

    def __init__(
        self,
        link: Link,
        sources: Iterable[Source],
        prefetch: int,
        settings: BrokerSettings,
        source_of: Callable[[str], Source],
    ) -> None:
        if not 1 <= prefetch <= 65_535:
            raise ValueError("prefetch is a number of deliveries from 1 to 65535")
        self._link = link
        self._prefetch = prefetch
        self._settings = settings
        self._arrivals = Arrivals()
        self._live: dict[int, _Subscription] = {}
        self._epoch = 0
        self._stopped = False
        self.closed = False
        self._source_of = source_of
        self._tasks: dict[str, asyncio.Task[None]] = {}
        for source in sources:
            self._subscribe(source)

    async def receive(self, max_items: int) -> list[Delivery]:
        """See Consumer."""
        return await self._arrivals.receive(max_items)

    def ack(self, deliveries: Iterable[Delivery]) -> None:
        """See Consumer."""
        self._settle(deliveries, lambda settlements, tags: settlements.ack(tags))

    def requeue(self, deliveries: Iterable[Delivery]) -> None:
        """See Consumer."""
        self._settle(deliveries, lambda settlements, tags: settlements.give_back(tags, requeue=True))

    def reject(self, deliveries: Iterable[Delivery]) -> None:
        """See Consumer."""
        self._settle(deliveries, lambda settlements, tags: settlements.give_back(tags, requeue=False))

    def extend(self, classes: Collection[str]) -> None:
        """See Consumer."""
        for source in [self._source_of(name) for name in classes]:
            self._subscribe(source)

    def _subscribe(self, source: Source) -> None:
        if source.queue not in self._tasks and not self._stopped:
            self._tasks[source.queue] = asyncio.create_task(self._keep(source), name=f"despacho-{source.queue}")

    async def pause(self) -> None:
        """See Consumer."""
        self._stopped = True
        cancelled = [asyncio.create_task(self._cancel(subscription)) for subscription in self._live.values()]
        if cancelled:
            await asyncio.wait(cancelled)
        self.requeue(self._arrivals.stop())

    async def close(self) -> None:
        """See Consumer."""
        self._stopped = self.closed = True
        for task in self._tasks.values():
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks.values())
        self._arrivals.stop()

    def _settle(self, deliveries: Iterable[Delivery], settle: Callable[[Settlements, list[int]], bytes]) -> None:
        by_epoch: dict[int, list[int]] = {}
        for delivery in deliveries:
            epoch = delivery.epoch
            if epoch in by_epoch:
                by_epoch[epoch].append(delivery.tag)
            else:
                by_epoch[epoch] = [delivery.tag]
        lost = 0
        writes: dict[Connection, bytes] = {}
        for epoch, tags in by_epoch.items():
            if (subscription := self._live.get(epoch)) is None:
                lost += len(tags)
            else:
                octets = settle(subscription.settlements, tags)
                writes[subscription.connection] = writes.get(subscription.connection, b"") + octets
        for connection, octets in writes.items():
            connection.write(octets)
        if lost:
            _log.warning(
                "settlements dropped: their channel is gone and the broker delivers again", extra={"deliveries": lost}
            )

    async def _keep(self, source: Source) -> None:
        """Subscribe, and again after every loss, until stopped; settle-only from then on."""
        failures = 0
        while not self._stopped:
            connection = await self._link.connection()
            try:
                reason: AmqpError = await self._serve(source, connection)
                failures = 0
            except AmqpError as error:
                reason = error
            if not self._stopped:
                _log.warning("consumer lost, subscribing again: %s", reason, extra={"queue": source.queue})
                await asyncio.sleep(max(self._link.pause_seconds(failures), DECLARE_AGAIN_AFTER_SECONDS))
                failures += 1

    async def _serve(self, source: Source, connection: Connection) -> AmqpError:
        await source.declare(connection)
        channel = await connection.channel(max_body_bytes=MAX_BODY_BYTES)
        self._epoch += 1
        epoch = self._epoch
        subscription = self._live[epoch] = _Subscription(connection, channel, Settlements(channel.number))
        try:
            await channel.limit_unsettled(self._prefetch)
            await channel.consume(source.queue, self._sink(source.decode, epoch))
            if self._stopped:
                await self._cancel(subscription)
            return await channel.wait_lost()
        finally:
            del self._live[epoch]
            # What arrived on a lost channel and nobody received is delivered again by the broker.
            self._arrivals.drop(lambda delivery: delivery.epoch == epoch)
            if channel.lost is None:
                await self._close(channel)

    def _sink(self, decode: Decode, epoch: int) -> Callable[[int, bool, bytes, Body], None]:
        put = self._arrivals.put

        def take(tag: int, redelivered: bool, properties: bytes, body: Body) -> None:
            put(decode(tag, redelivered, properties, body, epoch))

        return take

    async def _cancel(self, subscription: _Subscription) -> None:
        try:
            async with asyncio.timeout(self._settings.publish_deadline_seconds):
                await subscription.channel.cancel()
        except (AmqpError, TimeoutError) as error:
            _log.warning("a consumer could not be cancelled: %s", error or "no answer")

    async def _close(self, channel: Channel) -> None:
        try:
            async with asyncio.timeout(self._settings.publish_deadline_seconds):
                await channel.close()
        except (AmqpError, TimeoutError) as error:
            _log.warning("a consumer's channel could not be closed: %s", error or "no answer")
