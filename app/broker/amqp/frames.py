"""The bytes of AMQP 0-9-1: encoding and decoding of frames, methods and field tables. Pure; no I/O, no state.

The numbers come from the 0-9-1 specification (amqp0-9-1.xml) and RabbitMQ's extensions to it.
"""

from collections.abc import Mapping, Sequence
from struct import Struct, error, pack
from typing import TypeAlias

from app.broker.amqp.errors import FrameError

FieldValue: TypeAlias = "bool | int | float | str | bytes | Sequence[FieldValue] | Mapping[str, FieldValue] | None"

PROTOCOL_HEADER = b"AMQP\x00\x00\x09\x01"
METHOD, HEADER, BODY, HEARTBEAT = 1, 2, 3, 8
FRAME_END = 0xCE
FRAME_OVERHEAD = 8
HEARTBEAT_FRAME = b"\x08\x00\x00\x00\x00\x00\x00\xce"

# A method is its class and its number within the class: class << 16 | method.
CONNECTION_START, CONNECTION_START_OK = 0x000A000A, 0x000A000B
CONNECTION_SECURE = 0x000A0014
CONNECTION_TUNE, CONNECTION_TUNE_OK = 0x000A001E, 0x000A001F
CONNECTION_OPEN, CONNECTION_OPEN_OK = 0x000A0028, 0x000A0029
CONNECTION_CLOSE, CONNECTION_CLOSE_OK = 0x000A0032, 0x000A0033
CONNECTION_BLOCKED, CONNECTION_UNBLOCKED = 0x000A003C, 0x000A003D
CHANNEL_OPEN, CHANNEL_OPEN_OK = 0x0014000A, 0x0014000B
CHANNEL_FLOW, CHANNEL_FLOW_OK = 0x00140014, 0x00140015
CHANNEL_CLOSE, CHANNEL_CLOSE_OK = 0x00140028, 0x00140029
EXCHANGE_DECLARE, EXCHANGE_DECLARE_OK = 0x0028000A, 0x0028000B
QUEUE_DECLARE, QUEUE_DECLARE_OK = 0x0032000A, 0x0032000B
QUEUE_BIND, QUEUE_BIND_OK = 0x00320014, 0x00320015
QUEUE_DELETE, QUEUE_DELETE_OK = 0x00320028, 0x00320029
BASIC_QOS, BASIC_QOS_OK = 0x003C000A, 0x003C000B
BASIC_CONSUME, BASIC_CONSUME_OK = 0x003C0014, 0x003C0015
BASIC_CANCEL, BASIC_CANCEL_OK = 0x003C001E, 0x003C001F
BASIC_PUBLISH, BASIC_RETURN, BASIC_DELIVER = 0x003C0028, 0x003C0032, 0x003C003C
BASIC_ACK, BASIC_REJECT, BASIC_NACK = 0x003C0050, 0x003C005A, 0x003C0078
CONFIRM_SELECT, CONFIRM_SELECT_OK = 0x0055000A, 0x0055000B

BASIC_CLASS = 60
FLAG_CONTENT_TYPE, FLAG_CONTENT_ENCODING, FLAG_HEADERS = 0x8000, 0x4000, 0x2000
FLAG_DELIVERY_MODE, FLAG_PRIORITY, FLAG_CORRELATION_ID = 0x1000, 0x0800, 0x0400
FLAG_REPLY_TO, FLAG_EXPIRATION, FLAG_MESSAGE_ID = 0x0200, 0x0100, 0x0080

FRAME_HEADER = Struct(">BHI")
METHOD_ID = Struct(">I")
SETTLE = Struct(">BHIIQBB")
"""ack, nack and reject are one shape: frame header, method, delivery tag, bits, frame end."""

_U16, _U32, _U64 = Struct(">H"), Struct(">I"), Struct(">Q")
_FIXED = {
    "b": Struct(">b"), "B": Struct(">B"), "s": Struct(">h"), "u": Struct(">H"), "I": Struct(">i"), "i": Struct(">I"),
    "l": Struct(">q"), "L": Struct(">Q"), "T": Struct(">Q"), "f": Struct(">f"), "d": Struct(">d"),
}  # fmt: skip
_MAX_DEPTH = 32


def frame(kind: int, channel: int, payload: bytes) -> bytes:
    """Wrap a payload in a frame."""
    return b"%b%b\xce" % (FRAME_HEADER.pack(kind, channel, len(payload)), payload)


def method(channel: int, method_id: int, *arguments: bytes) -> bytes:
    """Build the frame of a method from its already encoded arguments."""
    return frame(METHOD, channel, METHOD_ID.pack(method_id) + b"".join(arguments))


def u8(value: int) -> bytes:
    """Encode one octet (also: packed bits)."""
    return value.to_bytes(1, "big")


def u16(value: int) -> bytes:
    """Encode a short."""
    return _U16.pack(value)


def u32(value: int) -> bytes:
    """Encode a long."""
    return _U32.pack(value)


def short_string(text: str) -> bytes:
    """Encode a short string. Raises ValueError above 255 bytes."""
    encoded = text.encode()
    if len(encoded) > 255:
        raise ValueError(f"an AMQP name may have 255 bytes, this one has {len(encoded)}")
    return u8(len(encoded)) + encoded


def long_string(value: bytes) -> bytes:
    """Encode a long string."""
    return u32(len(value)) + value


def table(fields: Mapping[str, FieldValue]) -> bytes:
    """Encode a field table, its length included."""
    return long_string(b"".join(short_string(name) + _field(value) for name, value in fields.items()))


def _field(value: FieldValue) -> bytes:
    match value:
        case None:
            return b"V"
        case bool():
            return b"t" + u8(value)
        case int():
            return pack(">cq", b"l", value)
        case float():
            return pack(">cd", b"d", value)
        case str():
            return b"S" + long_string(value.encode())
        case bytes():
            return b"x" + long_string(value)
        case Mapping():
            return b"F" + table(value)
        case _:
            return b"A" + long_string(b"".join(_field(item) for item in value))


class Reader:
    """Reads arguments one after the other from a payload; raises FrameError where it ends early or makes no sense."""

    __slots__ = ("_data", "offset")

    def __init__(self, data: bytes, offset: int = 0) -> None:
        self._data = data
        self.offset = offset

    def _number(self, shape: Struct) -> int:
        try:
            (value,) = shape.unpack_from(self._data, self.offset)
        except error as short:
            raise FrameError("a frame ends in the middle of an argument") from short
        self.offset += shape.size
        return int(value)

    def _bytes(self, length: int) -> bytes:
        start = self.offset
        self.offset += length
        if self.offset > len(self._data):
            raise FrameError("a frame ends in the middle of an argument")
        return self._data[start : self.offset]

    def u8(self) -> int:
        """Read one octet."""
        return self._number(_FIXED["B"])

    def u16(self) -> int:
        """Read a short."""
        return self._number(_U16)

    def u32(self) -> int:
        """Read a long."""
        return self._number(_U32)

    def u64(self) -> int:
        """Read a long long."""
        return self._number(_U64)

    def short_string(self) -> str:
        """Read a short string; bytes that are not UTF-8 are replaced."""
        return self._bytes(self.u8()).decode(errors="replace")

    def long_string(self) -> bytes:
        """Read a long string."""
        return self._bytes(self.u32())

    def table(self, depth: int = 0) -> dict[str, FieldValue]:
        """Read a field table. Raises FrameError when nested deeper than anybody would."""
        if depth > _MAX_DEPTH:
            raise FrameError("a field table is nested too deeply")
        stop = self.u32() + self.offset
        fields: dict[str, FieldValue] = {}
        while self.offset < stop:
            name = self.short_string()
            fields[name] = self._field(depth)
        if self.offset != stop:
            raise FrameError("a field table does not end where it says")
        return fields

    def _field(self, depth: int) -> FieldValue:
        kind = self._bytes(1).decode("latin-1")
        match kind:
            case "S":
                return self.long_string().decode(errors="replace")
            case "x":
                return self.long_string()
            case "t":
                return bool(self.u8())
            case "V":
                return None
            case "F":
                return self.table(depth + 1)
            case "A":
                return self._array(depth + 1)
            case "D":
                scale = self.u8()
                return self._number(_FIXED["I"]) / 10.0**scale
            case "f" | "d":
                shape = _FIXED[kind]
                (value,) = shape.unpack(self._bytes(shape.size))
                return float(value)
            case _ if kind in _FIXED:
                return self._number(_FIXED[kind])
            case _:
                raise FrameError("a field table holds a value of an unknown kind")

    def _array(self, depth: int) -> list[FieldValue]:
        if depth > _MAX_DEPTH:
            raise FrameError("a field table is nested too deeply")
        stop = self.u32() + self.offset
        items: list[FieldValue] = []
        while self.offset < stop:
            items.append(self._field(depth))
        if self.offset != stop:
            raise FrameError("an array does not end where it says")
        return items


def headers_of(properties: bytes) -> dict[str, FieldValue]:
    """Read the headers table out of a content header's property flags and list; empty when there is none."""
    reader = Reader(properties)
    flags = reader.u16()
    if not flags & FLAG_HEADERS:
        return {}
    if flags & FLAG_CONTENT_TYPE:
        reader.short_string()
    if flags & FLAG_CONTENT_ENCODING:
        reader.short_string()
    return reader.table()


def message_id_of(properties: bytes) -> str | None:
    """Read the message id out of a content header's property flags and list; None when there is none."""
    reader = Reader(properties)
    flags = reader.u16()
    for flag in (FLAG_CONTENT_TYPE, FLAG_CONTENT_ENCODING):
        if flags & flag:
            reader.short_string()
    if flags & FLAG_HEADERS:
        reader.table()
    for flag in (FLAG_DELIVERY_MODE, FLAG_PRIORITY):
        if flags & flag:
            reader.u8()
    for flag in (FLAG_CORRELATION_ID, FLAG_REPLY_TO, FLAG_EXPIRATION):
        if flags & flag:
            reader.short_string()
    return reader.short_string() if flags & FLAG_MESSAGE_ID else None
