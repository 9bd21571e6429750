"""Which headers a task may set on its delivery. Pure."""

import re
from collections.abc import Mapping

_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,128}", re.ASCII)
_VALUE = re.compile(r"[\x21-\x7e](?:[\t\x20-\x7e]{0,8190}[\x21-\x7e])?", re.ASCII)
_OURS = frozenset(
    {
        "host", "content-length", "content-type", "transfer-encoding", "connection", "keep-alive", "te", "trailer",
        "upgrade", "expect", "accept-encoding", "proxy-authorization", "proxy-connection", "idempotency-key",
        "traceparent", "tracestate", "webhook-id", "webhook-timestamp", "webhook-signature",
    }
)  # fmt: skip
_PREFIX = "despacho-"


def check_headers(headers: Mapping[str, str]) -> str:
    """Say what is wrong with headers, without their values; the empty text where nothing is."""
    names = [name.lower() for name in headers]
    if len(set(names)) < len(names):
        return "a header should be given once"
    if not all(_NAME.fullmatch(name) for name in names):
        return "header names should be 1 to 128 letters, digits and hyphens"
    if any(name in _OURS or name.startswith(_PREFIX) for name in names):
        return f"these headers are set by the delivery itself: {', '.join(sorted(_OURS))}, {_PREFIX}…"
    if not all(value == "" or _VALUE.fullmatch(value) for value in headers.values()):
        return "header values should be one line of at most 8192 printable ASCII characters"
    return ""
