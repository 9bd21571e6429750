"""The pulse of an event loop: how late it runs its timers, and whether it still runs at all."""

import asyncio
from time import monotonic

from app.telemetry.metrics import Metrics

BEAT_SECONDS = 0.5


class Pulse:
    """Measures the loop that `run` is started on; `beating` may be asked from any thread."""

    def __init__(self, metrics: Metrics, beat_seconds: float = BEAT_SECONDS) -> None:
        self._metrics = metrics
        self._beat_seconds = beat_seconds
        self._last_beat = monotonic()

    async def run(self) -> None:
        """Beat until cancelled, recording how late each beat is."""
        while True:
            due = monotonic() + self._beat_seconds
            await asyncio.sleep(self._beat_seconds)
            self._last_beat = monotonic()
            self._metrics.loop_lag(max(0.0, self._last_beat - due))

    def beating(self, within_seconds: float) -> bool:
        """Say whether the loop has run its timer within this time."""
        return monotonic() - self._last_beat <= within_seconds
