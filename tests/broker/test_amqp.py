"""The AMQP client alone: its bytes, its addresses, and peers that misbehave."""

import asyncio
import ssl
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.broker.amqp import frames
from app.broker.amqp.address import Address, parse_addresses
from app.broker.amqp.channel import Body, Oversized
from app.broker.amqp.connection import Connection
from app.broker.amqp.errors import AmqpUrlError, ConnectionLost, FrameError
from app.broker.amqp.frames import FieldValue, Reader, frame, headers_of, method, short_string, table, u8, u16, u32
from app.broker.amqp.settling import Settlements
from app.broker.base import Published
from app.broker.publishing import Confirms

scalars = st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | st.text()
names = st.text(max_size=60)
values = st.recursive(
    scalars | st.binary(), lambda inner: st.lists(inner) | st.dictionaries(names, inner), max_leaves=20
)


@given(st.dictionaries(names, values))
def test_a_field_table_reads_back_as_it_was_written(fields: dict[str, FieldValue]) -> None:
    assert Reader(table(fields)).table() == fields


@given(st.binary())
def test_no_bytes_make_reading_headers_do_anything_but_answer_or_refuse(octets: bytes) -> None:
    try:
        assert isinstance(headers_of(octets), dict)
    except FrameError as refused:
        assert str(refused)


def test_a_table_nested_beyond_reason_is_refused() -> None:
    octets = table({})
    for _ in range(200):
        entry = short_string("k") + b"F" + octets
        octets = u32(len(entry)) + entry

    with pytest.raises(FrameError, match="nested"):
        Reader(octets).table()


@given(st.lists(st.lists(st.integers(1, 12), min_size=1), max_size=12), st.data())
def test_settlements_settle_each_tag_once_and_never_one_that_nobody_named(
    calls: list[list[int]], data: st.DataObject
) -> None:
    settlements, outstanding = Settlements(3), set(range(1, 13))
    for tags in calls:
        acks = data.draw(st.booleans())
        octets = settlements.ack(tags) if acks else settlements.give_back(tags, requeue=True)
        expected = outstanding - set(tags)
        for start in range(0, len(octets), frames.SETTLE.size):
            kind, channel, size, method_id, tag, bits, end = frames.SETTLE.unpack_from(octets, start)
            assert (kind, channel, size, end) == (1, 3, 13, 0xCE)
            assert tag in outstanding, "the broker closes the channel for a tag that is not out"
            assert method_id == (frames.BASIC_ACK if acks else frames.BASIC_REJECT)
            outstanding -= {t for t in outstanding if t <= tag} if acks and bits else {tag}
        assert outstanding == expected


def test_a_run_of_settled_tags_is_one_ack() -> None:
    settlements = Settlements(1)

    late, rest, all_before = settlements.ack([3, 5]), settlements.ack([2]), settlements.ack([1, 4])

    sizes = [len(octets) // frames.SETTLE.size for octets in (late, rest, all_before)]
    assert sizes == [2, 1, 1]


@given(st.data())
async def test_confirms_give_every_message_its_own_answer(data: st.DataObject) -> None:
    confirms = Confirms()
    batches = [confirms.add(size) for size in data.draw(st.lists(st.integers(1, 5), min_size=1, max_size=5))]
    expected = dict.fromkeys(range(1, confirms.next_tag), Published.UNKNOWN)
    for tag in data.draw(st.lists(st.sampled_from(list(expected)), max_size=20)):
        multiple, positive = data.draw(st.booleans()), data.draw(st.booleans())
        confirms.on_confirm(tag, multiple, positive)
        for answered in range(1, tag + 1) if multiple else [tag]:
            if expected[answered] is Published.UNKNOWN:
                expected[answered] = Published.CONFIRMED if positive else Published.REFUSED

    found = {batch.first + index: outcome for batch in batches for index, outcome in enumerate(batch.outcomes)}
    assert found == expected
    for batch in batches:
        assert batch.done.done() == (Published.UNKNOWN not in batch.outcomes)


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("amqp://host", Address("host", 5672, "guest", "guest", "/")),
        ("amqp://host/", Address("host", 5672, "guest", "guest", "/")),
        ("amqp://u%40:p%2F%2C@host:1/v%2Fh", Address("host", 1, "u@", "p/,", "v/h")),
        ("amqp://u:p@[::1]:7/vhost", Address("::1", 7, "u", "p", "vhost")),
    ],
)
def test_an_address_is_read(url: str, expected: Address) -> None:
    assert parse_addresses(url) == [expected]


@pytest.mark.parametrize(
    "url",
    [
        "",
        "redis://u:sk-CANARY@host",
        "amqp://u:sk-CANARY@",
        "amqp://u:sk-CANARY@host:notaport",
        "amqp://u:sk-CANARY#x@host",
        "amqp://u:sk-CANARY@host:99999",
        "amqp://u:sk-CANARY@host,",
        "amqps://u:sk-CANARY@host/?unknown=1",
        "amqp://u:sk-CANARY@host/?verify=verify_none",
        "amqps://u:sk-CANARY@host/?verify=maybe",
        "amqps://u:sk-CANARY@host/?cacertfile=/no/such/file",
    ],
)
def test_a_bad_address_is_refused_with_what_would_be_right_and_never_quoted(url: str) -> None:
    with pytest.raises(AmqpUrlError) as refused:
        parse_addresses(url)

    assert "CANARY" not in str(refused.value)


def test_a_password_shows_in_no_representation() -> None:
    assert "CANARY" not in repr(parse_addresses("amqp://u:sk-CANARY@host"))


Script = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def a_peer(script: Script, tls: ssl.SSLContext | None = None) -> AsyncIterator[Address]:
    """A server that follows a script on every connection."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await script(reader, writer)
            await reader.read()
        except (ConnectionError, asyncio.IncompleteReadError):
            return  # the client has seen enough
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls)
    try:
        yield Address("127.0.0.1", server.sockets[0].getsockname()[1], "u", "p", "/")
    finally:
        server.close()


async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, octets: bytes) -> None:
    """Read one frame and answer it."""
    header = await reader.readexactly(7)
    await reader.readexactly(int.from_bytes(header[3:7], "big") + 1)
    writer.write(octets)


async def shake_hands(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Let the client in and open channel 1 with a consumer."""
    await reader.readexactly(8)
    start = u8(0) + u8(9) + table({"version": "4.1.0"}) + (u32(5) + b"PLAIN") + (u32(5) + b"en_US")
    writer.write(method(0, frames.CONNECTION_START, start))
    await answer(reader, writer, method(0, frames.CONNECTION_TUNE, u16(0), u32(0), u16(60)))
    await answer(reader, writer, b"")
    await answer(reader, writer, method(0, frames.CONNECTION_OPEN_OK, short_string("")))
    await answer(reader, writer, method(1, frames.CHANNEL_OPEN_OK, u32(0)))
    await answer(reader, writer, method(1, frames.BASIC_CONSUME_OK, short_string("d")))


def a_delivery(tag: int, body: bytes, properties: bytes, step: int) -> bytes:
    """A delivery whose body comes in frames of `step` bytes."""
    arguments = short_string("d") + tag.to_bytes(8, "big") + u8(tag % 2) + short_string("x") + short_string("q")
    header = u16(frames.BASIC_CLASS) + u16(0) + len(body).to_bytes(8, "big") + properties
    bodies = [frame(frames.BODY, 1, body[start : start + step]) for start in range(0, len(body), step)]
    return method(1, frames.BASIC_DELIVER, arguments) + frame(frames.HEADER, 1, header) + b"".join(bodies)


async def consume_from(script: Script, count: int) -> list[tuple[int, bool, bytes, Body]]:
    """Connect to a peer with this script and return its first `count` deliveries."""
    received: list[tuple[int, bool, bytes, Body]] = []
    complete = asyncio.Event()

    def sink(tag: int, redelivered: bool, properties: bytes, body: Body) -> None:
        received.append((tag, redelivered, properties, body))
        if len(received) == count:
            complete.set()

    async with a_peer(script) as address, asyncio.timeout(10):
        connection = await Connection.open(address, heartbeat_seconds=10, timeout_seconds=2, name="test")
        channel = await connection.channel(max_body_bytes=1000)
        await channel.consume("q", sink)
        await complete.wait()
        connection.abort(ConnectionLost("the test is over"))
    return received


@pytest.mark.parametrize("chunk", [1, 2, 3, 7, 8, 29, 61, 1000, 100_000])
async def test_deliveries_are_the_same_however_their_bytes_are_cut(chunk: int) -> None:
    plain, rich = b"\x00\x00", u16(0xA000) + short_string("text") + table({"k": "v" * 50})
    bodies = [b"", b"x", b"y" * 1000, b"z" * 1001, b"\xce" * 30, b"w" * 999]
    octets = b"".join(
        a_delivery(tag, body, rich if tag % 3 else plain, step)
        for tag, (body, step) in enumerate([(body, step) for body in bodies for step in (10, 500, 5000)], 1)
    )

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await shake_hands(reader, writer)
        for start in range(0, len(octets), chunk):
            writer.write(octets[start : start + chunk])
            await writer.drain()
            await asyncio.sleep(0)

    received = await consume_from(script, 18)

    assert [tag for tag, *_ in received] == list(range(1, 19))
    for tag, redelivered, properties, body in received:
        sent = bodies[(tag - 1) // 3]
        assert redelivered == bool(tag % 2)
        assert properties == (rich if tag % 3 else plain)
        if len(sent) > 1000:
            assert isinstance(body, Oversized)
            assert body.size_bytes == len(sent)
        else:
            assert body == sent


@pytest.mark.parametrize(
    "octets",
    [
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        b"AMQP\x00\x01\x00\x00",
        b"\x01\x00\x00\x00\x00\x00\x04\x00\x0a\x00\x0a\x00",
        b"\x01\x00\x00\xff\xff\xff\xff",
        frame(frames.BODY, 0, b"x"),
        method(0, frames.CONNECTION_SECURE, u32(0)),
        method(0, frames.CONNECTION_OPEN_OK),
        b"",
    ],
)
async def test_a_peer_that_is_no_broker_is_given_up_with_a_reason(octets: bytes) -> None:
    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(octets)
        await writer.drain()

    async with a_peer(script) as address:
        with pytest.raises(ConnectionLost, match=r"AMQP|no answer"):
            await Connection.open(address, heartbeat_seconds=10, timeout_seconds=0.3, name="test")


@pytest.mark.parametrize(
    "octets",
    [
        frame(frames.BODY, 1, b"x"),
        frame(frames.HEADER, 1, b"x"),
        a_delivery(1, b"", b"\x00\x00", 1)[:-1] + b"\x00",
        a_delivery(1, b"xx", b"\x00\x00", 1) + frame(frames.BODY, 1, b"x"),
        method(1, frames.QUEUE_DECLARE_OK),
        method(1, frames.BASIC_ACK)[:-9] + b"\xce",
    ],
)
async def test_a_peer_that_breaks_the_protocol_loses_the_connection_and_nothing_hangs(octets: bytes) -> None:
    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await shake_hands(reader, writer)
        writer.write(octets)
        await writer.drain()
        writer.write_eof()

    async with a_peer(script) as address, asyncio.timeout(10):
        connection = await Connection.open(address, heartbeat_seconds=10, timeout_seconds=2, name="test")
        channel = await connection.channel()
        await channel.consume("q", lambda *_: None)

        assert isinstance(await connection.wait_lost(), ConnectionLost)
        assert isinstance(await channel.wait_lost(), ConnectionLost)
        with pytest.raises(ConnectionLost):
            await connection.channel()
        with pytest.raises(ConnectionLost):
            await channel.cancel()


async def test_tls_takes_a_known_certificate_and_no_other(tmp_path: Path) -> None:
    certificate, key = tmp_path / "certificate.pem", tmp_path / "key.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    command += ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(certificate)]
    await asyncio.to_thread(subprocess.run, command, check=True, capture_output=True)
    served = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    served.load_cert_chain(certificate, key)

    async def open_with(options: str, port: int) -> Connection:
        (address,) = parse_addresses(f"amqps://u:p@127.0.0.1:{port}/{options}")
        return await Connection.open(address, heartbeat_seconds=10, timeout_seconds=2, name="test")

    async with a_peer(shake_hands, served) as at:
        for options in (f"?cacertfile={certificate}", "?verify=verify_none"):
            connection = await open_with(options, at.port)
            assert connection.server_version == "4.1.0"
            connection.abort(ConnectionLost("the test is over"))
        with pytest.raises(ConnectionLost, match="cannot reach the broker"):
            await open_with("", at.port)
