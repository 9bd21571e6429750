"""What came back, read: answers into types, refusals and strangers into errors. Pure."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import msgspec

from app.client.errors import ApiError, DespachoError, Problem, UnexpectedAnswer, Unreachable, Why
from app.client.request import Request, member_of
from app.domain.retry_after import parse_retry_after

_REDIRECTS = frozenset({301, 302, 303, 307, 308})


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer: a status, headers by their lower-case names, and all bytes of the body."""

    status: int
    headers: Mapping[str, str] = field(repr=False)
    body: bytes = field(repr=False)

    def problem(self) -> Problem | None:
        """Read the problem that it carries, if it is one of the API's."""
        if "json" not in self.headers.get("content-type", ""):
            return None
        try:
            found = json.loads(self.body)
            if not isinstance(found, dict) or not ("title" in found or "code" in found):
                return None
            return msgspec.convert(found, Problem)
        except (ValueError, RecursionError):
            return None


@dataclass(frozen=True, slots=True)
class Lost:
    """No answer came, and why; `temporary` where trying again may help."""

    text: str
    why: Why = "lost"
    nothing_sent: bool = False
    temporary: bool = True


def read(request: Request[Any], outcome: Reply | Lost, *, url: str, typed: bool, in_doubt: bool, now: datetime) -> Any:
    """Return the answer, as its type or (not `typed`) as plain JSON. Raises DespachoError."""
    if isinstance(outcome, Lost):
        nothing_sent = outcome.nothing_sent and not in_doubt
        raise Unreachable(outcome.text, url=url, why=outcome.why, nothing_sent=nothing_sent)
    if 200 <= outcome.status < 300 or outcome.status in request.answers:
        return _answer(request, outcome, url, typed)
    # A thing whose removal was sent before and is not there any more was removed.
    if in_doubt and request.method == "DELETE" and outcome.status == 404:
        return None
    raise _refusal(outcome, url, now)


def _answer(request: Request[Any], reply: Reply, url: str, typed: bool) -> Any:
    if request.answer is None:
        return None
    if request.answer is bytes:
        return reply.body
    if request.answer is str:
        return reply.body.decode("utf-8", "replace")
    try:
        found = json.loads(reply.body)
    except (ValueError, RecursionError):
        raise _stranger(reply, url, "with something that is not JSON") from None
    try:
        found = msgspec.convert(found, request.answer) if typed and request.answer is not Any else found
        return found if request.member is None else member_of(found, request.member)
    except (msgspec.ValidationError, AttributeError) as error:
        # Names the place and the kinds, never a value.
        raise _stranger(reply, url, f"in another form ({error})") from None


def _refusal(reply: Reply, url: str, now: datetime) -> DespachoError:
    problem = reply.problem()
    if problem is not None:
        waits = parse_retry_after(reply.headers.get("retry-after"), now)
        return ApiError(problem, status=reply.status, retry_after_seconds=waits)
    if reply.status in _REDIRECTS:
        return UnexpectedAnswer(
            f"{url} answered {reply.status} and sends elsewhere, which is not followed, since the key would go along: "
            "give the address that it leads to (https:// instead of http://, or without a part too much)",
            status=reply.status,
        )
    return _stranger(reply, url, "and not as Despacho does")


def _stranger(reply: Reply, url: str, how: str) -> UnexpectedAnswer:
    return UnexpectedAnswer(
        f"{url} answered {reply.status} {how}: is this its address, and nothing in between that answers itself?",
        status=reply.status,
    )
