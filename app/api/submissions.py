"""Reading submissions: a validated body, and the exact text of what is only kept."""

import re
from typing import Any

import msgspec

from app.api.json_body import Reader, check_json, check_syntax, check_values, malformed
from app.api.schemas.tasks import LATER_FIELDS, BatchItem, TaskSubmission
from app.services.errors import FieldError, Invalid
from app.services.intake import fingerprint
from app.services.submission import Submission

SINGLE = "POST /v1/tasks"
BATCH = "POST /v1/tasks/batch"

_single = Reader(TaskSubmission, later=LATER_FIELDS)
_item = Reader(BatchItem, later=LATER_FIELDS)


class _Kept(msgspec.Struct):
    """The fields whose exact text is kept; empty where they are absent."""

    input: msgspec.Raw = msgspec.Raw()
    metadata: msgspec.Raw = msgspec.Raw()


class _Items(msgspec.Struct):
    tasks: list[msgspec.Raw]


_kept = msgspec.json.Decoder(_Kept)
_items = msgspec.json.Decoder(_Items)
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F][0-9a-fA-F]{2}")


def read_single(
    raw: bytes, *, traceparent: str | None, tracestate: str | None, idempotency_key: str | None
) -> Submission:
    """Read the body of POST /v1/tasks. Raises malformed_json or Invalid."""
    check_json(raw)
    check_values(raw, _single.names)
    return _submission(_single, raw, traceparent, tracestate, SINGLE, idempotency_key)


def read_items(raw: bytes, most: int) -> list[bytes]:
    """Cut a batch into the texts of its items. Raises malformed_json or Invalid."""
    check_json(raw)
    try:
        parts = _parts(raw)
    except (msgspec.DecodeError, RecursionError):
        parts = _parts_with_halves(raw)
    if not 1 <= len(parts) <= most:
        raise Invalid([FieldError("#/tasks", f"should hold 1 to {most} tasks")])
    return parts


def _parts(raw: bytes) -> list[bytes]:
    try:
        parts = [bytes(part) for part in _items.decode(raw).tasks]
        names = msgspec.json.decode(raw, type=dict[str, msgspec.Raw]).keys()
    except msgspec.ValidationError:
        raise Invalid([FieldError("#/tasks", "should be a list of tasks")]) from None
    if names != {"tasks"}:
        raise Invalid([FieldError("#", "has a field that is not known here: known is tasks")])
    return parts


def _parts_with_halves(raw: bytes) -> list[bytes]:
    """Cut a batch that holds half a surrogate pair, which stops the parser although it is no wrong syntax.

    A copy with a letter in the place of each shows where the items lie; those with a half are refused, each by itself.
    """
    copy = _SURROGATE.sub(rb"\\u0041", raw)
    try:
        found = _parts(copy)
    except (msgspec.DecodeError, RecursionError):
        raise malformed("its syntax is wrong") from None
    parts, at = [], 0
    for part in found:
        start = copy.index(part, at)
        at = start + len(part)
        parts.append(raw[start:at])
    return parts


def read_item(raw: bytes, *, traceparent: str | None, tracestate: str | None) -> Submission:
    """Read one item of a batch. Raises Invalid with pointers relative to the item."""
    check_values(raw, _item.names)
    return _submission(_item, raw, traceparent, tracestate, BATCH, None)


def _submission(
    reader: Reader, raw: bytes, traceparent: str | None, tracestate: str | None, endpoint: str, key: str | None
) -> Submission:
    kept = _kept_of(raw)
    body: Any = reader.validate(raw)
    key = key or getattr(body, "idempotency_key", None)
    return Submission(
        type=body.type,
        input=_text(kept.input),
        input_ref=body.input_ref,
        group=body.group,
        source_ref=body.source.ref if body.source else None,
        source_version=body.source.version if body.source else None,
        claims=body.claims,
        requested_class=body.requested_class,
        not_before=body.not_before,
        due_at=body.due_at,
        valid_until=body.valid_until,
        max_attempts=body.max_attempts,
        timeout_seconds=body.timeout_seconds,
        metadata=_text(kept.metadata) if body.metadata is not None else None,
        traceparent=traceparent,
        tracestate=tracestate,
        idempotency_key=key,
        endpoint=endpoint if key else None,
        fingerprint=fingerprint(raw) if key else None,
        callback_url=body.callback_url,
    )


def _kept_of(raw: bytes) -> _Kept:
    """Cut out what is kept; this parser also knows, as pydantic's does not, that NaN and Infinity are not JSON."""
    try:
        return _kept.decode(raw)
    except msgspec.ValidationError:
        # No object: the model will say so, unless it is no JSON either.
        check_syntax(raw)
        return _Kept()
    except (msgspec.DecodeError, RecursionError):
        raise malformed("its syntax is wrong") from None


def _text(part: msgspec.Raw) -> str | None:
    text = bytes(part).decode()
    return None if text in ("", "null") else text
