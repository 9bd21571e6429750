"""When a failed task is tried again: exponential backoff with full jitter, a floor, a cap, and Retry-After above all.

The delay of an attempt is drawn evenly between the base delay and the envelope min(cap, base × factor ^ attempt). With
the defaults the first retries spread over 15 seconds, so that of 200 tasks that fail together no second sees more than
a few when they come back. (Drawing from zero, as "full jitter" is often written, would let some retry at once.)
"""

from dataclasses import dataclass
from enum import StrEnum
from math import inf, isfinite, log

from app.domain.failure import Failure
from app.domain.retry_after import MAXIMUM_SECONDS

JITTER_SHARE = 0.1
JITTER_FLOOR_SECONDS = 1.0
JITTER_CAP_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """The backoff of a task type; raises ValueError for values that make no sense."""

    base_seconds: float = 5.0
    cap_seconds: float = 900.0
    factor: float = 4.0

    def __post_init__(self) -> None:
        if not 0 < self.base_seconds < inf:
            raise ValueError(f"base_seconds is {self.base_seconds}; it must be a finite number above 0")
        if not self.base_seconds <= self.cap_seconds < inf:
            raise ValueError(f"cap_seconds is {self.cap_seconds}; it must be finite and at least base_seconds")
        if not 1 < self.factor < inf:
            raise ValueError(
                f"factor is {self.factor}; it must be a finite number above 1, or retries would not spread"
            )

    def envelope_seconds(self, attempt: int) -> float:
        """Give the longest backoff after the `attempt`th attempt (from 1); finite for any number."""
        exponent = max(1, attempt)
        if exponent * log(self.factor) >= log(self.cap_seconds / self.base_seconds):
            return self.cap_seconds
        return min(self.cap_seconds, self.base_seconds * self.factor**exponent)


class Ending(StrEnum):
    """Why there is no further attempt."""

    NOT_RETRYABLE = "not_retryable"
    ATTEMPTS_SPENT = "attempts_spent"


@dataclass(frozen=True, slots=True)
class RetryAfter:
    """Try again this many seconds after the failure."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Exhausted:
    """No further attempt: the task is dead-lettered."""

    why: Ending


def decide(
    failure: Failure, attempt: int, max_attempts: int, policy: RetryPolicy, jitter: float
) -> RetryAfter | Exhausted:
    """Decide what follows a failed attempt; `attempt` counts from 1 and `jitter` is drawn from [0, 1).

    Retry-After wins over the backoff and its cap, up to 24 hours, and is never undercut; up to a tenth of it (one
    second to one minute) comes on top, so that a herd that was told the same time does not return in one instant.
    """
    if not failure.retryable:
        return Exhausted(Ending.NOT_RETRYABLE)
    if failure.spent and attempt >= max_attempts:
        return Exhausted(Ending.ATTEMPTS_SPENT)
    asked = failure.retry_after_seconds
    if asked is not None and isfinite(asked) and asked >= 0:
        least = min(asked, MAXIMUM_SECONDS)
        spread = min(JITTER_CAP_SECONDS, max(JITTER_FLOOR_SECONDS, JITTER_SHARE * least))
        return RetryAfter(least + jitter * spread)
    return RetryAfter(policy.base_seconds + jitter * (policy.envelope_seconds(attempt) - policy.base_seconds))
