"""W3C trace context (Recommendation of 2021-11-23): read, check, mint and pass on; pure but for the random ids.

No tracing SDK: Despacho records no spans of its own. It carries the caller's trace through row, message, attempt, call
and effect, so that all of them are found by one id; the times a span would hold are in the attempt rows already. That
needs two headers and neither a dependency nor an exporter on the hot path. A handler may run any SDK under the context
that it is given.
"""

import re
import secrets
from dataclasses import dataclass
from urllib.parse import quote

MAX_TRACESTATE_CHARACTERS = 512
MAX_TRACESTATE_MEMBERS = 32

_TRACEPARENT = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?", re.ASCII | re.DOTALL)
_MEMBER = re.compile(
    r"(?:[a-z][a-z0-9_\-*/]{0,255}|[a-z0-9][a-z0-9_\-*/]{0,240}@[a-z][a-z0-9_\-*/]{0,13})"
    r"=[\x20-\x2b\x2d-\x3c\x3e-\x7e]{0,255}[\x21-\x2b\x2d-\x3c\x3e-\x7e]"
)
_KNOWN_FLAGS = 0x03
"""`sampled` and (level 2) `random`; the others must be sent as zero."""


@dataclass(frozen=True, slots=True)
class TraceContext:
    """One position in a trace. `trace_id` is 32 and `span_id` 16 lower-case hexadecimal digits."""

    trace_id: str
    span_id: str
    flags: int = 1
    tracestate: str | None = None

    @property
    def traceparent(self) -> str:
        """Return the header's value."""
        return f"00-{self.trace_id}-{self.span_id}-{self.flags:02x}"

    @property
    def sampled(self) -> bool:
        """Say whether the caller may have recorded this trace."""
        return bool(self.flags & 1)

    def headers(self) -> dict[str, str]:
        """Return the headers that carry this context in a message or a request."""
        if self.tracestate:
            return {"traceparent": self.traceparent, "tracestate": self.tracestate}
        return {"traceparent": self.traceparent}


def parse(traceparent: str | None, tracestate: str | None = None) -> TraceContext | None:
    """Read the two headers; None when `traceparent` is missing or invalid. An invalid `tracestate` is dropped alone."""
    found = _TRACEPARENT.fullmatch(traceparent) if traceparent else None
    if found is None:
        return None
    version, trace_id, span_id, flags, rest = found.groups()
    if version == "ff" or (version == "00" and rest is not None):
        return None
    if trace_id == "0" * 32 or span_id == "0" * 16:
        return None
    return TraceContext(trace_id, span_id, int(flags, 16) & _KNOWN_FLAGS, _tracestate(tracestate))


def mint() -> TraceContext:
    """Start a new trace."""
    return TraceContext(secrets.token_hex(16), _span_id())


def child(parent: TraceContext) -> TraceContext:
    """Return a new position in the same trace."""
    return TraceContext(parent.trace_id, _span_id(), parent.flags, parent.tracestate)


def accept(traceparent: str | None, tracestate: str | None = None) -> TraceContext:
    """Go on with the caller's trace where its headers are valid, or start a new one."""
    parent = parse(traceparent, tracestate)
    return mint() if parent is None else child(parent)


def trace_id_of(traceparent: str | None) -> str | None:
    """Return the trace id of a stored `traceparent`, for log lines and links."""
    found = parse(traceparent)
    return found.trace_id if found else None


def trace_link(template: str | None, traceparent: str | None) -> str | None:
    """Fill the setting `trace_url` (`…{trace_id}…`); None without a template or a trace."""
    trace_id = trace_id_of(traceparent)
    return None if template is None or trace_id is None else template.replace("{trace_id}", trace_id)


def logs_link(template: str | None, task_id: str) -> str | None:
    """Fill the setting `logs_url` (`…{task_id}…`); None without a template."""
    return None if template is None else template.replace("{task_id}", quote(task_id, safe=""))


def _span_id() -> str:
    span_id = secrets.token_hex(8)
    return span_id if span_id != "0" * 16 else "0" * 15 + "1"


def _tracestate(value: str | None) -> str | None:
    """Return a valid list as it came, without its empty members; None for anything else."""
    if not value or len(value) > MAX_TRACESTATE_CHARACTERS:
        return None
    members = [member for part in value.split(",") if (member := part.strip(" \t"))]
    keys = {member.partition("=")[0] for member in members}
    valid = all(_MEMBER.fullmatch(member) for member in members)
    if not members or not valid or len(members) > MAX_TRACESTATE_MEMBERS or len(keys) != len(members):
        return None
    return ",".join(members)
