"""One AMQP channel: its synchronous methods, and where its deliveries, returns and confirms go.

Content usually arrives through `Connection`'s fast path; `on_frame` is the general one, for content split over frames
or reads. Bodies above `max_body_bytes` are hashed and dropped while they arrive, never kept.
"""

import asyncio
import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from app.broker.amqp import frames
from app.broker.amqp.calls import Calls
from app.broker.amqp.errors import ChannelLost, ConnectionLost, FrameError
from app.broker.amqp.frames import FieldValue, Reader, short_string, table, u8, u16, u32

CONSUMER_TAG = "d"
"""A channel has one consumer at most, so a constant names it; `Connection` knows the length of its deliveries by it."""


@dataclass(frozen=True, slots=True)
class Oversized:
    """A body above the limit: what is left of it."""

    sha256: str
    size_bytes: int


Body: TypeAlias = bytes | Oversized
Sink: TypeAlias = Callable[[int, bool, bytes, Body], None]
"""Takes (delivery tag, redelivered, property flags and list, body)."""


class Wire(Protocol):
    """What a channel needs of its connection."""

    def write(self, octets: bytes) -> None:
        """Send whole frames."""
        ...

    def forget(self, channel: "Channel", reason: ChannelLost) -> None:
        """End a channel that both sides have closed."""
        ...

    def discard(self, channel: "Channel", reason: ChannelLost) -> None:
        """End a channel of which only this side knows yet."""
        ...


class _Content:
    """A delivery or return whose frames are still coming."""

    __slots__ = ("body", "hasher", "limit", "missing", "properties", "redelivered", "returned", "size", "tag")

    def __init__(self, tag: int, redelivered: bool, returned: bool, limit: int) -> None:
        self.tag = tag
        self.redelivered = redelivered
        self.returned = returned
        self.limit = limit
        self.properties: bytes | None = None
        self.size = self.missing = 0
        self.body = bytearray()
        self.hasher = hashlib.sha256()

    def add_header(self, payload: bytes) -> None:
        reader = Reader(payload, 4)
        self.size = self.missing = reader.u64()
        self.properties = payload[reader.offset :]

    def add_body(self, payload: bytes) -> None:
        self.missing -= len(payload)
        if self.properties is None or self.missing < 0:
            raise FrameError("a body frame came where none was due")
        if self.size > self.limit:
            self.hasher.update(payload)
        else:
            self.body += payload

    @property
    def complete(self) -> bool:
        return self.properties is not None and self.missing == 0

    def result(self) -> Body:
        return Oversized(self.hasher.hexdigest(), self.size) if self.size > self.limit else bytes(self.body)


class Channel:
    """A channel of a `Connection`; made by `Connection.channel()`.

    `on_confirm(tag, multiple, positive)`, `on_return(properties)` and the sink of `consume` are called from inside the
    connection's read and must neither block nor raise. Every coroutine raises ChannelLost or ConnectionLost.
    """

    def __init__(self, wire: Wire, number: int, max_body_bytes: int) -> None:
        self._wire = wire
        self.number = number
        self.max_body_bytes = max_body_bytes
        self.lost: ChannelLost | ConnectionLost | None = None
        self.sink: Sink | None = None
        self.on_confirm: Callable[[int, bool, bool], None] | None = None
        self.on_return: Callable[[bytes], None] | None = None
        self._calls = Calls()
        self._ended = asyncio.Event()
        self._content: _Content | None = None

    async def open(self) -> None:
        """Open the channel."""
        await self._call(frames.CHANNEL_OPEN, frames.CHANNEL_OPEN_OK, short_string(""))

    async def close(self) -> None:
        """Close the channel; what was delivered on it and not settled goes back to its queue."""
        self.sink = None
        if self.lost is None:
            await self._call(
                frames.CHANNEL_CLOSE, frames.CHANNEL_CLOSE_OK, u16(200), short_string("done"), u16(0), u16(0)
            )

    async def wait_lost(self) -> ChannelLost | ConnectionLost:
        """Wait until the channel has ended, for whatever reason, and return that."""
        await self._ended.wait()
        assert self.lost is not None  # noqa: S101 - set before the event
        return self.lost

    async def declare_queue(
        self, name: str, arguments: Mapping[str, FieldValue] | None = None, *, passive: bool = False
    ) -> tuple[int, int]:
        """Declare a durable queue, or only look at it (`passive`); return its ready messages and its consumers."""
        payload = await self._call(
            frames.QUEUE_DECLARE,
            frames.QUEUE_DECLARE_OK,
            u16(0),
            short_string(name),
            u8(0b00001 if passive else 0b00010),
            table(arguments or {}),
        )
        reader = Reader(payload, 4)
        reader.short_string()
        return reader.u32(), reader.u32()

    async def declare_exchange(self, name: str, kind: str) -> None:
        """Declare a durable exchange."""
        await self._call(
            frames.EXCHANGE_DECLARE,
            frames.EXCHANGE_DECLARE_OK,
            u16(0),
            short_string(name),
            short_string(kind),
            u8(0b00010),
            table({}),
        )

    async def bind_queue(self, queue: str, exchange: str, routing_key: str = "") -> None:
        """Bind a queue to an exchange."""
        await self._call(
            frames.QUEUE_BIND,
            frames.QUEUE_BIND_OK,
            u16(0),
            short_string(queue),
            short_string(exchange),
            short_string(routing_key),
            u8(0),
            table({}),
        )

    async def delete_queue(self, name: str) -> None:
        """Delete a queue with whatever is in it; one that is not there is deleted already."""
        await self._call(frames.QUEUE_DELETE, frames.QUEUE_DELETE_OK, u16(0), short_string(name), u8(0))

    async def select_confirms(self) -> None:
        """Have the broker confirm every message published on this channel from now on."""
        await self._call(frames.CONFIRM_SELECT, frames.CONFIRM_SELECT_OK, u8(0))

    async def limit_unsettled(self, prefetch: int) -> None:
        """Let at most `prefetch` deliveries of the coming consumer be unsettled at a time."""
        await self._call(frames.BASIC_QOS, frames.BASIC_QOS_OK, u32(0), u16(prefetch), u8(0))

    async def consume(self, queue: str, sink: Sink) -> None:
        """Start the channel's one consumer. A cancel by the broker ends the channel: see `wait_lost`."""
        self.sink = sink
        await self._call(
            frames.BASIC_CONSUME,
            frames.BASIC_CONSUME_OK,
            u16(0),
            short_string(queue),
            short_string(CONSUMER_TAG),
            u8(0),
            table({}),
        )

    async def cancel(self) -> None:
        """Stop the consumer; when this returns nothing more will be delivered."""
        await self._call(frames.BASIC_CANCEL, frames.BASIC_CANCEL_OK, short_string(CONSUMER_TAG), u8(0))

    def on_frame(self, kind: int, payload: bytes) -> None:
        """Take one frame of this channel. Raises FrameError when it makes no sense here."""
        if kind == frames.METHOD:
            method_id = Reader(payload).u32()
            if self.lost is None or method_id in (frames.CHANNEL_CLOSE, frames.CHANNEL_CLOSE_OK):
                self._on_method(method_id, payload)
            return
        if self.lost is not None:
            return
        if self._content is None:
            raise FrameError("a content frame came where none was due")
        if kind == frames.HEADER:
            self._content.add_header(payload)
        else:
            self._content.add_body(payload)
        if self._content.complete:
            content, self._content = self._content, None
            self._deliver(content)

    def end(self, reason: ChannelLost | ConnectionLost) -> None:
        """Mark the channel as ended and let everybody who waits on it know."""
        if self.lost is None:
            self.lost = reason
            self._calls.fail(reason)
            self._ended.set()

    async def _call(self, method_id: int, answer_id: int, *arguments: bytes) -> bytes:
        if self.lost is not None:
            raise self.lost
        answer = self._calls.expect(answer_id)
        self._wire.write(frames.method(self.number, method_id, *arguments))
        return await answer

    def _deliver(self, content: _Content) -> None:
        properties = content.properties or b"\x00\x00"
        if content.returned:
            if self.on_return is not None:
                self.on_return(properties)
        elif self.sink is not None:
            self.sink(content.tag, content.redelivered, properties, content.result())

    def _on_method(self, method_id: int, payload: bytes) -> None:
        reader = Reader(payload, 4)
        match method_id:
            case frames.BASIC_ACK | frames.BASIC_NACK:
                if self.on_confirm is not None:
                    self.on_confirm(reader.u64(), bool(reader.u8() & 1), method_id == frames.BASIC_ACK)
            case frames.BASIC_DELIVER:
                reader.short_string()
                self._content = _Content(reader.u64(), bool(reader.u8()), False, self.max_body_bytes)
            case frames.BASIC_RETURN:
                self._content = _Content(0, False, True, 0)
            case frames.BASIC_CANCEL:
                self._wire.discard(self, ChannelLost("the broker cancelled the consumer: its queue is gone"))
            case frames.CHANNEL_CLOSE:
                code, text = reader.u16(), reader.short_string()
                self._wire.write(frames.method(self.number, frames.CHANNEL_CLOSE_OK))
                self._wire.forget(self, ChannelLost(text, code))
            case frames.CHANNEL_CLOSE_OK:
                self._calls.answer(method_id, payload)
                self._wire.forget(self, ChannelLost("closed by this side"))
            case frames.CHANNEL_FLOW:
                self._wire.write(frames.method(self.number, frames.CHANNEL_FLOW_OK, u8(reader.u8())))
            case _ if not self._calls.answer(method_id, payload):
                raise FrameError(f"the peer sent method {method_id:#010x} unasked")
