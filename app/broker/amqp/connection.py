"""One AMQP connection on asyncio: handshake, heartbeats, channels, blocked notifications, and the hot read path.

Whoever makes a connection supervises it: nothing here reconnects. Callbacks of channels run inside `data_received`;
whoever needs to await something waits for it in a task of their own.
"""

import asyncio
from struct import Struct
from typing import Self, cast

from app.broker.amqp import frames
from app.broker.amqp.address import Address
from app.broker.amqp.calls import Calls
from app.broker.amqp.channel import CONSUMER_TAG, Channel
from app.broker.amqp.errors import ChannelLost, ConnectionLost, FrameError
from app.broker.amqp.frames import FRAME_END, FRAME_HEADER, Reader, long_string, short_string, table, u16, u32

MAX_FRAME_BYTES = 131_072
MAX_CHANNELS = 2047
_CLOSE_SECONDS = 1.0

# A delivery as `Channel.consume` has them: frame header, method, one-letter consumer tag, delivery tag, redelivered.
_DELIVERY = Struct(">BHIIHQB")
_TAG = int.from_bytes(short_string(CONSUMER_TAG), "big")
# Its content header: frame header, class and weight, body size; flags and properties follow.
_CONTENT = Struct(">BHIIQ")
_CONTENT_CLASS = frames.BASIC_CLASS << 16
_DELIVER = frames.BASIC_DELIVER


class Connection(asyncio.Protocol):
    """An open connection; made by `Connection.open`."""

    def __init__(self, address: Address, heartbeat_seconds: int) -> None:
        self._address = address
        self._heartbeat_seconds = float(heartbeat_seconds)
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._calls = Calls()
        self._started = self._calls.expect(frames.CONNECTION_START)
        self._channels: dict[int, Channel] = {}
        self._max_channels = MAX_CHANNELS
        self._tail = b""
        self._heard_at = self._loop.time()
        self._wrote = False
        self._beat: asyncio.TimerHandle | None = None
        self._ended = asyncio.Event()
        self._writable = asyncio.Event()
        self._writable.set()
        self.frame_max = MAX_FRAME_BYTES
        self.server_version = ""
        self.blocked: str | None = None
        """Why the broker takes no messages at the moment (an alarm), or None."""
        self.lost: ConnectionLost | None = None

    @classmethod
    async def open(cls, address: Address, *, heartbeat_seconds: int, timeout_seconds: float, name: str) -> Self:
        """Connect, log in and open the virtual host. Raises ConnectionLost with a text that says what failed."""
        loop = asyncio.get_running_loop()
        connection = cls(address, heartbeat_seconds)
        try:
            async with asyncio.timeout(timeout_seconds):
                await loop.create_connection(lambda: connection, address.host, address.port, ssl=address.tls)
                await connection._shake_hands(name)
        except TimeoutError:
            text = f"no answer from the broker at {address} within {timeout_seconds:g} s"
            connection.abort(ConnectionLost(text))
            raise ConnectionLost(text) from None
        except OSError as error:
            raise ConnectionLost(f"cannot reach the broker at {address}: {error.strerror or error}") from error
        except BaseException:
            connection.abort(ConnectionLost("the login was given up"))
            raise
        return connection

    async def channel(self, *, max_body_bytes: int = 65_536) -> Channel:
        """Open a channel. Raises ConnectionLost, also when the peer allows no further channel."""
        if self.lost is not None:
            raise self.lost
        number = next((n for n in range(1, self._max_channels + 1) if n not in self._channels), None)
        if number is None:
            raise ConnectionLost(f"all {self._max_channels} channels of the connection are in use")
        channel = self._channels[number] = Channel(self, number, max_body_bytes)
        await channel.open()
        return channel

    def write(self, octets: bytes) -> None:
        """Send whole frames; after the connection is lost they go nowhere."""
        if self._transport is not None and self.lost is None:
            self._wrote = True
            self._transport.write(octets)

    @property
    def congested(self) -> bool:
        """Whether the peer reads more slowly than is written here."""
        return not self._writable.is_set()

    async def wait_writable(self) -> None:
        """Wait until the peer has read enough of what was written, or the connection is lost."""
        await self._writable.wait()

    async def wait_lost(self) -> ConnectionLost:
        """Wait until the connection has ended, for whatever reason, and return that."""
        await self._ended.wait()
        return self.lost or ConnectionLost("closed")

    async def close(self) -> None:
        """Close in good order within a second; never raises for the peer's sake."""
        if self.lost is None:
            answer = self._calls.expect(frames.CONNECTION_CLOSE_OK)
            self.write(
                frames.method(0, frames.CONNECTION_CLOSE, u16(200), short_string("done"), u16(0), u16(0)),
            )
            await asyncio.wait({answer}, timeout=_CLOSE_SECONDS)
        self.abort(ConnectionLost("closed by this side"))

    def abort(self, reason: ConnectionLost) -> None:
        """Drop the connection at once; every channel and call ends with `reason`."""
        if self.lost is None:
            self.lost = reason
            self._writable.set()
            self._calls.fail(reason)
            for channel in list(self._channels.values()):
                channel.end(reason)
            self._channels.clear()
            self._ended.set()
        if self._beat is not None:
            self._beat.cancel()
            self._beat = None
        if self._transport is not None:
            self._transport.abort()
            self._transport = None

    def forget(self, channel: Channel, reason: ChannelLost) -> None:
        """End a channel that both sides have closed."""
        self._channels.pop(channel.number, None)
        channel.end(reason)

    def discard(self, channel: Channel, reason: ChannelLost) -> None:
        """End a channel of which only this side knows yet; its number is free again once the peer has agreed."""
        channel.sink = None
        self.write(frames.method(channel.number, frames.CHANNEL_CLOSE, u16(200), short_string("done"), u16(0), u16(0)))
        channel.end(reason)

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._transport.write(frames.PROTOCOL_HEADER)

    def connection_lost(self, exc: Exception | None) -> None:
        self.abort(ConnectionLost(f"the connection to the broker at {self._address} broke"))

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def data_received(self, data: bytes) -> None:
        self._heard_at = self._loop.time()
        if self._tail:
            data = self._tail + data
        try:
            self._tail = data[self._read(data) :]
        except FrameError as error:
            self.abort(ConnectionLost(f"the broker at {self._address} sent what is not AMQP 0-9-1: {error}"))

    def _read(self, data: bytes) -> int:
        """Take all whole frames and return where the first partial one begins.

        A delivery whose three frames are all there, the usual case, is taken in one step without slicing frames:
        2 µs instead of 7 µs.
        """
        channels = self._channels
        delivery, content, header = _DELIVERY.unpack_from, _CONTENT.unpack_from, FRAME_HEADER.unpack_from
        offset, end = 0, len(data)
        while end - offset >= 8:
            if end - offset > 60:
                kind, number, size, method_id, consumer, tag, redelivered = delivery(data, offset)
                after = offset + size + 8
                if method_id == _DELIVER and kind == 1 and consumer == _TAG and end - after > 28:
                    kind, _, header_size, class_id, body_size = content(data, after)
                    start = after + header_size + 8
                    if kind == 2 and class_id == _CONTENT_CLASS and end - start >= 8:
                        kind, _, size = header(data, start)
                        stop = start + 7 + size
                        channel = channels.get(number)
                        if (
                            kind == 3
                            and size == body_size
                            and stop < end
                            and data[stop] == FRAME_END
                            and data[start - 1] == FRAME_END
                            and channel is not None
                            and channel.sink is not None
                            and size <= channel.max_body_bytes
                        ):
                            properties = data[after + 19 : start - 1]
                            channel.sink(tag, redelivered == 1, properties, data[start + 7 : stop])
                            offset = stop + 1
                            continue
            kind, number, size = header(data, offset)
            stop = offset + 7 + size
            if size > self.frame_max:
                raise FrameError("a frame is longer than was agreed")
            if stop >= end:
                break
            if data[stop] != FRAME_END:
                raise FrameError("a frame does not end where it says")
            self._on_frame(kind, number, data[offset + 7 : stop])
            offset = stop + 1
        return offset

    def _on_frame(self, kind: int, number: int, payload: bytes) -> None:
        if number:
            if (channel := self._channels.get(number)) is not None:
                channel.on_frame(kind, payload)
        elif kind == frames.METHOD:
            self._on_method(Reader(payload).u32(), payload)
        elif kind != frames.HEARTBEAT:
            raise FrameError("a content frame came on channel 0")

    def _on_method(self, method_id: int, payload: bytes) -> None:
        match method_id:
            case frames.CONNECTION_CLOSE:
                reader = Reader(payload, 4)
                code, text = reader.u16(), reader.short_string()
                self.write(frames.method(0, frames.CONNECTION_CLOSE_OK))
                if self._transport is not None:
                    self._transport.close()
                    self._transport = None
                self.abort(ConnectionLost(f"the broker at {self._address} closed the connection: {text}", code))
            case frames.CONNECTION_BLOCKED:
                self.blocked = Reader(payload, 4).short_string() or "no reason given"
            case frames.CONNECTION_UNBLOCKED:
                self.blocked = None
            case frames.CONNECTION_SECURE:
                raise FrameError("it asks for a login of several steps; only PLAIN is spoken here")
            case _ if not self._calls.answer(method_id, payload):
                raise FrameError(f"method {method_id:#010x} came unasked")

    async def _shake_hands(self, name: str) -> None:
        started = Reader(await self._started, 6)
        version = started.table().get("version")
        self.server_version = version if isinstance(version, str) else ""
        address = self._address
        capabilities = {
            "publisher_confirms": True,
            "basic.nack": True,
            "consumer_cancel_notify": True,
            "connection.blocked": True,
            "authentication_failure_close": True,
        }
        tuning = self._calls.expect(frames.CONNECTION_TUNE)
        self.write(
            frames.method(
                0,
                frames.CONNECTION_START_OK,
                table({"product": "Despacho", "connection_name": name, "capabilities": capabilities}),
                short_string("PLAIN"),
                long_string(f"\0{address.user}\0{address.password}".encode()),
                short_string("en_US"),
            )
        )
        tuned = Reader(await tuning, 4)
        self._max_channels = min(tuned.u16() or MAX_CHANNELS, MAX_CHANNELS)
        self.frame_max = min(tuned.u32() or MAX_FRAME_BYTES, MAX_FRAME_BYTES)
        theirs, ours = tuned.u16(), int(self._heartbeat_seconds)
        self._heartbeat_seconds = float(min(theirs, ours) if theirs else ours)
        opened = self._calls.expect(frames.CONNECTION_OPEN_OK)
        self.write(
            frames.method(
                0,
                frames.CONNECTION_TUNE_OK,
                u16(self._max_channels),
                u32(self.frame_max),
                u16(int(self._heartbeat_seconds)),
            )
            + frames.method(0, frames.CONNECTION_OPEN, short_string(address.virtual_host), short_string(""), b"\x00")
        )
        await opened
        self._schedule_beat()

    def _schedule_beat(self) -> None:
        due_at = self._loop.time() + self._heartbeat_seconds / 2
        self._beat = self._loop.call_at(due_at, self._on_beat, due_at)

    def _on_beat(self, due_at: float) -> None:
        now = self._loop.time()
        # A loop that was held up has not read yet what the peer sent meanwhile: silence counts only on time.
        punctual = now - due_at < self._heartbeat_seconds / 2
        if punctual and now - self._heard_at > 2 * self._heartbeat_seconds:
            self.abort(ConnectionLost(f"no heartbeat from the broker at {self._address}"))
            return
        if not self._wrote:
            self.write(frames.HEARTBEAT_FRAME)
        self._wrote = False
        self._schedule_beat()
