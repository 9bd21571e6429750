"""How fast a tenant may submit: one token bucket per tenant and API process.

The bucket lives in this process: with n API processes behind a balancer a tenant may reach up to n times its rate for a
moment. A shared bucket would cost a database write per submission; the open-task quota, which is exact, is the
limit that protects the system.
"""

import math
import time
from dataclasses import dataclass

from app.services.errors import QuotaExceeded


@dataclass(frozen=True, slots=True)
class RateStanding:
    """How a tenant stands after a request: `quota` per window, `remaining` now, full again in `reset_seconds`."""

    quota: int
    window_seconds: int
    remaining: int
    reset_seconds: int


class Rates:
    """The buckets of one process."""

    def __init__(self, most: int = 10_000) -> None:
        self._most = most
        self._buckets: dict[str, tuple[float, float]] = {}

    def take(self, tenant_id: str, rate_per_second: float, burst: int | None, wanted: int) -> tuple[int, RateStanding]:
        """Take up to `wanted` tokens; returns how many there were and the standing afterwards.

        Raises QuotaExceeded when there was none.
        """
        size = float(burst if burst is not None else max(1, math.ceil(rate_per_second)))
        now = time.monotonic()
        level, at = self._buckets.get(tenant_id, (size, now))
        level = min(size, level + (now - at) * rate_per_second)
        taken = min(wanted, int(level))
        if len(self._buckets) >= self._most and tenant_id not in self._buckets:
            self._buckets.clear()
        self._buckets[tenant_id] = (level - taken, now)
        standing = RateStanding(
            quota=int(size),
            window_seconds=max(1, math.ceil(size / rate_per_second)),
            remaining=int(level - taken),
            reset_seconds=math.ceil((size - (level - taken)) / rate_per_second),
        )
        if taken == 0:
            raise RateExceeded(standing, retry_after_seconds=(1.0 - level) / rate_per_second)
        return taken, standing


class RateExceeded(QuotaExceeded):
    """The tenant submits faster than it may; carries how it stands."""

    def __init__(self, standing: RateStanding, *, retry_after_seconds: float) -> None:
        super().__init__(
            "submit_rate_exceeded",
            "The tenant submits tasks faster than its rate allows.",
            retry_after_seconds=retry_after_seconds,
        )
        self.standing = standing
