"""Publishing in batches on one confirm channel: one write per batch, one future per batch, none per message."""

import asyncio
from collections import deque
from collections.abc import Sequence
from struct import Struct

from app.broker.amqp import frames
from app.broker.amqp.channel import Channel
from app.broker.amqp.connection import Connection
from app.broker.amqp.errors import ConnectionLost
from app.broker.amqp.frames import BASIC_PUBLISH, FRAME_OVERHEAD, message_id_of, method, short_string, u8, u16
from app.broker.base import Published, TaskMessage
from app.broker.message import CONTENT_TYPE, MAX_BODY_BYTES, encode_body, encode_trace
from app.broker.topology import Topology

MAX_UNCONFIRMED = 100_000
"""Messages without an answer on one channel; with more the channel is given up, since the broker has lost its way."""

_MANDATORY = 0b01
_DURABLE = u8(2)
_TAG_CHARACTERS = 16
_CONTENT_TYPE = short_string(CONTENT_TYPE)
_FLAGS = frames.FLAG_CONTENT_TYPE | frames.FLAG_DELIVERY_MODE | frames.FLAG_MESSAGE_ID
_PLAIN = u16(_FLAGS) + _CONTENT_TYPE + _DURABLE + u8(_TAG_CHARACTERS)
_TRACED = u16(_FLAGS | frames.FLAG_HEADERS) + _CONTENT_TYPE
_CONTENT_CLASS = frames.BASIC_CLASS << 16
_HEADER_FIXED_BYTES = 12 + _TAG_CHARACTERS
# A content header up to its body size; and what follows its properties: frame end and the header of the body's frame.
_HEAD, _NECK = Struct(">BHIIQ"), Struct(">BBHI")


class Batch:
    """What became of the messages with the tags `first` …; `done` is set once all have an answer."""

    __slots__ = ("done", "first", "outcomes", "pending", "seen")

    def __init__(self, first: int, size: int) -> None:
        self.first = first
        self.outcomes = [Published.UNKNOWN] * size
        self.pending = size
        self.seen = 0
        """Everything before this index has an answer."""
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def settle(self, start: int, stop: int, outcome: Published) -> None:
        """Give the messages `start` to `stop` (indices) this outcome unless they have one; a returned one keeps its."""
        outcomes, unknown = self.outcomes, Published.UNKNOWN
        for index in range(start, stop):
            if outcomes[index] is unknown:
                outcomes[index] = outcome
                self.pending -= 1
        if self.pending == 0:
            self.give_up()

    def give_up(self) -> None:
        """Wait for no further answer."""
        if not self.done.done():
            self.done.set_result(None)


class Confirms:
    """The batches on one channel that wait for answers, in the order of their tags."""

    __slots__ = ("_batches", "next_tag")

    def __init__(self) -> None:
        self._batches: deque[Batch] = deque()
        self.next_tag = 1

    def add(self, size: int) -> Batch:
        """Number the next `size` messages."""
        batch = Batch(self.next_tag, size)
        self.next_tag += size
        self._batches.append(batch)
        return batch

    @property
    def unconfirmed(self) -> int:
        """Messages from the oldest without an answer to the newest."""
        return self.next_tag - self._batches[0].first if self._batches else 0

    def on_confirm(self, tag: int, multiple: bool, positive: bool) -> None:
        """Take the broker's answer for one message, or for all up to it."""
        outcome = Published.CONFIRMED if positive else Published.REFUSED
        for batch in self._batches:
            if batch.first > tag:
                break
            stop = min(tag - batch.first + 1, len(batch.outcomes))
            if multiple:
                batch.settle(batch.seen, stop, outcome)
                batch.seen = max(batch.seen, stop)
            elif tag - batch.first < len(batch.outcomes):
                batch.settle(stop - 1, stop, outcome)
        while self._batches and self._batches[0].pending == 0:
            self._batches.popleft()

    def on_return(self, properties: bytes) -> None:
        """Take a message that no queue wanted; its id is its tag."""
        text = message_id_of(properties) or ""
        tag = int(text, 16) if len(text) == _TAG_CHARACTERS else 0
        for batch in self._batches:
            if 0 <= tag - batch.first < len(batch.outcomes):
                batch.settle(tag - batch.first, tag - batch.first + 1, Published.UNROUTABLE)

    def give_up(self) -> None:
        """Let every batch go as it is: no more answers will come."""
        while self._batches:
            self._batches.popleft().give_up()


class Publisher:
    """Publishes on one connection for as long as it lives; made by `Publisher.on`."""

    def __init__(self, connection: Connection, channel: Channel, topology: Topology) -> None:
        self._connection = connection
        self._channel = channel
        self._topology = topology
        self._confirms = Confirms()
        self._methods: dict[str, bytes] = {}
        self._watch = asyncio.create_task(self._end_with_channel(), name="despacho-publisher")
        channel.on_confirm = self._confirms.on_confirm
        channel.on_return = self._confirms.on_return

    @classmethod
    async def on(cls, connection: Connection, topology: Topology) -> "Publisher":
        """Open the channel to publish on."""
        channel = await connection.channel()
        await channel.select_confirms()
        return cls(connection, channel, topology)

    async def publish(self, items: Sequence[tuple[str, TaskMessage]], deadline_seconds: float) -> list[Published]:
        """Publish in one write and wait for the answers, both within the deadline."""
        loop = asyncio.get_running_loop()
        due_at = loop.time() + deadline_seconds
        methods = [self._method(priority_class) for priority_class, _ in items]
        bodies = [encode_body(message) for _, message in items]
        longest = min(MAX_BODY_BYTES, self._connection.frame_max - FRAME_OVERHEAD)
        if max(map(len, bodies)) > longest:
            return await self._publish_fitting(items, [len(body) <= longest for body in bodies], deadline_seconds)
        if self._connection.congested:
            await self._wait_writable(deadline_seconds)
        if self._channel.lost is not None or self._connection.blocked is not None or self._connection.congested:
            return [Published.UNREACHABLE] * len(items)
        batch = self._confirms.add(len(items))
        self._connection.write(self._encode(items, methods, bodies, batch.first))
        await asyncio.wait({batch.done}, timeout=max(0.0, due_at - loop.time()))
        if self._confirms.unconfirmed > MAX_UNCONFIRMED:
            self._connection.abort(ConnectionLost(f"the broker left over {MAX_UNCONFIRMED} messages without an answer"))
        return batch.outcomes

    async def _publish_fitting(
        self, items: Sequence[tuple[str, TaskMessage]], fits: list[bool], deadline_seconds: float
    ) -> list[Published]:
        """Publish those that no consumer would call malformed for their length, and refuse the others."""
        fitting = [item for item, fit in zip(items, fits, strict=True) if fit]
        outcomes = iter(await self.publish(fitting, deadline_seconds) if fitting else ())
        return [next(outcomes) if fit else Published.REFUSED for fit in fits]

    async def _wait_writable(self, deadline_seconds: float) -> None:
        try:
            async with asyncio.timeout(deadline_seconds):
                await self._connection.wait_writable()
        except TimeoutError:
            return

    def _method(self, priority_class: str) -> bytes:
        found = self._methods.get(priority_class)
        if found is None:
            routing_key = short_string(self._topology.queue(priority_class))
            arguments = (u16(0), short_string(""), routing_key, u8(_MANDATORY))
            found = self._methods[priority_class] = method(self._channel.number, BASIC_PUBLISH, *arguments)
        return found

    def _encode(
        self, items: Sequence[tuple[str, TaskMessage]], methods: list[bytes], bodies: list[bytes], first: int
    ) -> bytes:
        channel, end = self._channel.number, frames.FRAME_END
        head, neck = _HEAD.pack, _NECK.pack
        plain_bytes = len(_PLAIN) + _HEADER_FIXED_BYTES
        parts: list[bytes] = []
        for tag, ((_, message), publish, body) in enumerate(zip(items, methods, bodies, strict=True), first):
            size = len(body)
            if message.trace:
                properties = _TRACED + encode_trace(message.trace) + _DURABLE + u8(_TAG_CHARACTERS)
                header_bytes = len(properties) + _HEADER_FIXED_BYTES
            else:
                properties, header_bytes = _PLAIN, plain_bytes
            parts += (
                publish,
                head(frames.HEADER, channel, header_bytes, _CONTENT_CLASS, size),
                properties,
                b"%016x" % tag,
                neck(end, frames.BODY, channel, size),
                body,
                b"\xce",
            )
        return b"".join(parts)

    async def _end_with_channel(self) -> None:
        """Give every waiting batch up when the channel ends, and the connection with it: a new one starts clean."""
        reason = await self._channel.wait_lost()
        self._confirms.give_up()
        self._connection.abort(ConnectionLost(f"the publishing channel was closed: {reason}"))
