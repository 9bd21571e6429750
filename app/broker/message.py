"""A TaskMessage as bytes: a small JSON body, and the W3C trace headers as message headers. Pure.

What arrives may come from anybody: whatever is not exactly a task message decodes to Malformed with a reason that
never quotes it.
"""

import hashlib
from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated

import msgspec
from msgspec import Meta

from app.broker.amqp.channel import Body, Oversized
from app.broker.amqp.errors import FrameError
from app.broker.amqp.frames import FieldValue, headers_of, short_string, table, u32
from app.broker.base import Malformed, TaskMessage

MAX_BODY_BYTES = 64 * 1024
MAX_TRACE_CHARACTERS = 512
CONTENT_TYPE = "application/json"
TRACE_HEADERS = ("traceparent", "tracestate")

_Id = Annotated[str, Meta(min_length=1, max_length=64)]
_Name = Annotated[str, Meta(min_length=1, max_length=256)]
_Time = Annotated[str, Meta(min_length=1, max_length=64)]
_Count = Annotated[int, Meta(ge=0, le=2**31 - 1)]


class _Body(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    task_id: _Id
    type: _Name
    tenant_id: _Name
    attempt: _Count
    dispatch: _Count
    created_at: _Time


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(_Body)
_NO_TRACE: Mapping[str, str] = MappingProxyType({})

# The properties of a message with a traceparent of today's length and nothing else, up to its text: nearly all of them
# look like this, and comparing is ten times cheaper than reading a table.
_TRACEPARENT_CHARACTERS = 55
_ONE_ENTRY = short_string("traceparent") + b"S" + u32(_TRACEPARENT_CHARACTERS)
_ONE_TRACEPARENT = short_string(CONTENT_TYPE) + u32(len(_ONE_ENTRY) + _TRACEPARENT_CHARACTERS) + _ONE_ENTRY
_START, _STOP = 2, 2 + len(_ONE_TRACEPARENT)
_HEADERS_BIT = 0x20


def encode_body(message: TaskMessage) -> bytes:
    """Encode everything but the trace headers."""
    return _encoder.encode(
        _Body(
            message.task_id,
            message.type,
            message.tenant_id,
            message.attempt,
            message.dispatch,
            message.created_at,
        )
    )


def encode_trace(trace: Mapping[str, str]) -> bytes:
    """Encode the trace headers as a field table; what is not a W3C trace header of sane length is left out."""
    if len(trace) == 1 and len(parent := trace.get("traceparent", "")) == _TRACEPARENT_CHARACTERS and parent.isascii():
        return _ONE_TRACEPARENT[len(CONTENT_TYPE) + 1 :] + parent.encode()
    return table(sane_trace(trace))


def decode(properties: bytes, body: Body) -> TaskMessage | Malformed:
    """Decode a message from its property flags and list and its body."""
    if isinstance(body, Oversized):
        return _oversized(body.sha256, body.size_bytes)
    return decode_body(body, _trace_of(properties) if properties[0] & _HEADERS_BIT else _NO_TRACE)


def decode_body(body: bytes, trace: Mapping[str, str] = _NO_TRACE) -> TaskMessage | Malformed:
    """Decode a message from its body; `trace` is what its headers said."""
    if len(body) > MAX_BODY_BYTES:
        return _oversized(hashlib.sha256(body).hexdigest(), len(body))
    try:
        found = _decoder.decode(body)
    except (ValueError, RecursionError) as error:
        return _malformed(body, _reason(body, error))
    task_id, task_type, tenant_id, created_at = found.task_id, found.type, found.tenant_id, found.created_at
    if b"\\u0000" in body and "\0" in task_id + task_type + tenant_id + created_at:
        return _malformed(body, "not a task message: it holds a NUL character")
    return TaskMessage(task_id, task_type, tenant_id, found.attempt, found.dispatch, created_at, trace)


def headers(properties: bytes) -> Mapping[str, FieldValue]:
    """Read all headers of a message; empty when they are unreadable."""
    try:
        return headers_of(properties)
    except FrameError:
        return {}


def _trace_of(properties: bytes) -> Mapping[str, str]:
    stop = _STOP + _TRACEPARENT_CHARACTERS
    if properties[_START:_STOP] == _ONE_TRACEPARENT and (parent := properties[_STOP:stop]).isascii():
        return {"traceparent": parent.decode()}
    return sane_trace(headers(properties))


def sane_trace(trace: Mapping[str, FieldValue]) -> dict[str, str]:
    """Keep the W3C trace headers of printable ASCII and sane length; a bad one never fails its task."""
    return {
        name: value
        for name in TRACE_HEADERS
        if isinstance(value := trace.get(name), str)
        and 0 < len(value) <= MAX_TRACE_CHARACTERS
        and value.isascii()
        and value.isprintable()
    }


def _reason(body: bytes, error: Exception) -> str:
    if not body:
        return "the body is empty"
    match error:
        case msgspec.ValidationError() if "unknown field" in str(error):
            return "not a task message: it has a field that task messages do not have"
        case msgspec.ValidationError():
            return f"not a task message: {error}"
        case RecursionError():
            return "not a task message: it is nested too deeply"
        case _:
            return "the body is not JSON"


def _malformed(body: bytes, reason: str) -> Malformed:
    return Malformed(reason, hashlib.sha256(body).hexdigest(), len(body))


def _oversized(sha256: str, size_bytes: int) -> Malformed:
    return Malformed(f"the body is longer than {MAX_BODY_BYTES} bytes", sha256, size_bytes)
