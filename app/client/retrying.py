"""When a request is sent again: pure, one `Tries` per request.

Only what may be repeated is: a GET, a DELETE, a POST with an Idempotency-Key, a POST that says the same however often
it is said; anything, where nothing was sent. Pauses are exponential with full jitter, and never end before Retry-After.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from app.client.answering import Lost, Reply
from app.client.request import Request
from app.domain.retry_after import parse_retry_after

_TEMPORARY = frozenset({408, 425, 429})
_NEVER_BETTER = frozenset({501, 505})


@dataclass(frozen=True, slots=True)
class Retries:
    """How patient a client is. `for_seconds`: no request is sent again later than that after the first try began."""

    for_seconds: float = 60.0
    base_seconds: float = 0.25
    cap_seconds: float = 10.0
    lost_connections: bool = True
    """False: give up at once when no answer comes."""
    only_when_told: bool = False
    """True: only after 429 and 503 with Retry-After, which say that nothing was done; then for any POST."""

    def __post_init__(self) -> None:
        if not (self.for_seconds >= 0 and self.base_seconds >= 0 and self.cap_seconds >= 0):
            raise ValueError("for_seconds, base_seconds and cap_seconds should be numbers from 0")


NO_RETRIES = Retries(for_seconds=0.0)


@dataclass(slots=True)
class Tries:
    """The tries of one request so far."""

    request: Request[Any]
    retries: Retries
    began_at: float
    """On the clock that `pause_after` is asked with."""
    draw: Callable[[], float]
    made: int = 0
    in_doubt: bool = field(default=False)
    """An earlier try may have been carried out without our knowing."""

    def pause_after(self, outcome: Reply | Lost, *, now: float, wall: datetime) -> float | None:
        """Return how long to wait before the next try; None when this outcome is the last."""
        self.made += 1
        told = parse_retry_after(outcome.headers.get("retry-after"), wall) if isinstance(outcome, Reply) else None
        if not self._worth_it(outcome, told):
            return None
        envelope = min(self.retries.cap_seconds, self.retries.base_seconds * 2.0 ** min(self.made - 1, 30))
        pause = (told or 0.0) + self.draw() * envelope
        if now + pause > self.began_at + self.retries.for_seconds:
            return None
        self.in_doubt = self.in_doubt or not isinstance(outcome, Lost) or not outcome.nothing_sent
        return pause

    def _worth_it(self, outcome: Reply | Lost, told: float | None) -> bool:
        if isinstance(outcome, Lost):
            repeatable = self.request.repeatable or outcome.nothing_sent
            return outcome.temporary and repeatable and self.retries.lost_connections
        if self.retries.only_when_told:
            return outcome.status in (429, 503) and told is not None
        return self.request.repeatable and outcome.status not in self.request.answers and _temporary(outcome)


def _temporary(reply: Reply) -> bool:
    """Say whether the same request may be answered otherwise later; a problem's own word goes first."""
    if 200 <= reply.status < 400:
        return False
    problem = reply.problem()
    if problem is not None and problem.retryable is not None:
        return problem.retryable
    return reply.status in _TEMPORARY or (reply.status >= 500 and reply.status not in _NEVER_BETTER)
