"""Request headers with rules of their own: Idempotency-Key, Prefer, traceparent; and the waits that a query names."""

import re
from dataclasses import dataclass

from starlette.requests import Request

from app.services.errors import FieldError, Invalid
from app.services.rates import RateStanding
from app.telemetry.tracing import accept

_VISIBLE = re.compile(r"^[\x21-\x7e]{1,255}$")
_QUOTED = re.compile(r'^"((?:[\x20\x21\x23-\x5b\x5d-\x7e]|\\["\\])*)"$')
_WAIT = re.compile(r'^\s*wait\s*=\s*"?(\d{1,9})"?\s*(?:;.*)?$', re.IGNORECASE)
_SECONDS = re.compile(r"^\d{1,9}(?:\.\d{1,6})?$")


def idempotency_key(request: Request) -> str | None:
    """Read `Idempotency-Key`; the quoted form of the draft and the bare one are the same key. Raises Invalid."""
    values = request.headers.getlist("idempotency-key")
    if not values:
        return None
    value = values[0].strip() if len(values) == 1 else ""
    if quoted := _QUOTED.match(value):
        value = re.sub(r"\\(.)", r"\1", quoted.group(1))
    if not _VISIBLE.match(value):
        raise Invalid(
            [FieldError(":Idempotency-Key", "should be given once, 1 to 255 visible ASCII characters")],
            code="invalid_parameter",
            detail="The idempotency key is not valid.",
        )
    return value


@dataclass(frozen=True, slots=True)
class Wait:
    """How long to wait, in seconds; `applied` is the value for `Preference-Applied` when the header decided it."""

    seconds: float = 0.0
    applied: str | None = None


NO_WAIT = Wait()


def wait_of(request: Request, longest_seconds: float) -> Wait:
    """Read `?wait=` (which wins) or `Prefer: wait=`. Raises Invalid for a query that is no number of seconds."""
    if not request.scope["query_string"] and "prefer" not in request.headers:
        return NO_WAIT
    named = request.query_params.getlist("wait")
    if named:
        if len(named) > 1 or not _SECONDS.fullmatch(named[0]):
            raise Invalid(
                [FieldError("?wait", "should be a number of seconds, 0 or more, given once")],
                code="invalid_parameter",
                detail="The time to wait is not valid.",
            )
        return Wait(min(float(named[0]), longest_seconds))
    for header in request.headers.getlist("prefer"):
        for preference in header.split(","):
            if match := _WAIT.match(preference):
                seconds = min(float(match.group(1)), longest_seconds)
                return Wait(seconds, f"wait={seconds:g}")
    return NO_WAIT


def trace_of(request: Request) -> tuple[str, str | None]:
    """Take up the caller's trace or begin one; returns traceparent and tracestate to store with the task."""
    headers = request.headers
    context = accept(headers.get("traceparent"), headers.get("tracestate"))
    return context.traceparent, context.tracestate


def rate_headers(standing: RateStanding | None) -> dict[str, str]:
    """Say how the tenant stands against its rate, where it has one (draft-ietf-httpapi-ratelimit-headers)."""
    if standing is None:
        return {}
    return {
        "RateLimit-Policy": f'"submit";q={standing.quota};w={standing.window_seconds}',
        "RateLimit": f'"submit";r={standing.remaining};t={standing.reset_seconds}',
    }
