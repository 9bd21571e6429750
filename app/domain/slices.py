"""Dividing a limit between workers in slices: fair shares of what may run at once, and buckets for rates.

A rate of so many a minute is a bucket whose burst and refill are chosen so that no minute, however it is cut, sees more
than the limit, the time included that a worker may keep what it was given before it uses it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, floor

import msgspec

MINUTE_SECONDS = 60.0


def fair_share(limit: float, mine: float, others: Sequence[float]) -> float:
    """Divide `limit` by demand: nobody gets more than it wants while another wants more than it has (max-min)."""
    left, count = limit, len(others) + 1
    for wanted in sorted([*others, mine]):
        share = left / count
        if mine <= share:
            return mine
        if wanted > share:
            return max(0.0, share)
        left -= wanted
        count -= 1
    return max(0.0, left)


def whole_share(limit: int, mine: int, others: Sequence[int]) -> int:
    """Divide whole permits; what does not divide goes to who asks, as far as it is free."""
    share = ceil(fair_share(limit, mine, others) - 1e-9)
    spare = limit - mine - sum(others)
    return min(limit, share + (spare // (len(others) + 1) if spare > 0 else 0))


class Bucket(msgspec.Struct, frozen=True):
    """What may be given out, as of `at`. Below zero after a call that used more than was estimated."""

    level: float
    at: float


@dataclass(frozen=True, slots=True)
class Rate:
    """A limit per minute as a bucket: at most `burst` at once, `per_second` afterwards."""

    burst: float
    per_second: float

    @classmethod
    def of(cls, per_minute: int, kept_seconds: float, burst_share: float) -> "Rate":
        """Make the bucket of a whole number a minute, where what was given may be used up to `kept_seconds` later."""
        burst = max(1.0, floor(per_minute * burst_share))
        return cls(burst, (per_minute + 1 - burst) / (MINUTE_SECONDS + kept_seconds) * (1 - 1e-9))

    def at(self, bucket: Bucket | None, now: float) -> Bucket:
        """Bring a bucket up to now; a clock that went back adds nothing."""
        if bucket is None:
            return Bucket(self.burst, now)
        gained = max(0.0, now - bucket.at) * self.per_second
        return Bucket(min(self.burst, bucket.level + gained), max(now, bucket.at))

    def seconds_until(self, level: float, wanted: float) -> float:
        """Say when the bucket will hold `wanted`, or all that it can hold."""
        return max(0.0, min(wanted, self.burst) - level) / self.per_second
