"""What the leader remembers between two full reads of the database, and how often those may happen."""

import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from app.store.tallies import Tally

READ_SHARE = 0.05
"""Full reads (counts, heads from the very start of a lane) take at most this share of the leader's time."""

_RATE_HALF_LIFE_SECONDS = 0.25
_RUN_UP = 4.0
_NONE = Tally(0, 0, 0.0)


@dataclass(slots=True)
class Pace:
    """Spaces an expensive read so that it takes at most READ_SHARE of the time, and at least `every_seconds` apart."""

    every_seconds: float
    next_at: float = 0.0

    def due(self) -> bool:
        """Say whether it may run now."""
        return time.monotonic() >= self.next_at

    def ran(self, started: float) -> None:
        """Note a run that began at `started` (`time.monotonic()`)."""
        now = time.monotonic()
        self.next_at = now + max(self.every_seconds, (now - started) / READ_SHARE)


@dataclass(slots=True)
class InFlight:
    """What is in flight per class: counted in full now and then, kept up by releases and the tallies in between.

    From the tallies it also learns how many tasks of a class leave per second and how long one keeps its slot.
    """

    count: Counter[str] = field(default_factory=Counter)
    _seen: dict[str, Tally] = field(default_factory=dict)
    _rate: dict[str, float] = field(default_factory=dict)
    _mean_seconds: dict[str, float] = field(default_factory=dict)
    _since: Counter[str] = field(default_factory=Counter)
    _is_counted: bool = False
    _since_at: float = field(default_factory=time.monotonic)

    def tallied(self, tallies: Mapping[str, Tally]) -> None:
        """Take off what departed since the last look."""
        for name, tally in tallies.items():
            # A class without a tally at the full count had no departures then; before any count nothing is known.
            before = self._seen.get(name, _NONE if self._is_counted else tally)
            self._seen[name] = tally
            self.count[name] = max(0, self.count[name] - max(0, tally.departed - before.departed))
            ran = tally.runs - before.runs
            if ran <= 0:
                continue
            self._since[name] += ran
            took = max(0.0, tally.busy_seconds - before.busy_seconds) / ran
            weight = min(0.5, ran / 100)
            self._mean_seconds[name] = took + (self._mean_seconds.get(name, took) - took) * (1 - weight)
        self._learn_rates()

    def counted(self, in_flight: Mapping[str, int], tallies: Mapping[str, Tally]) -> None:
        """Take a full count; `tallies` were read after it, so that a departure in between is not taken off twice."""
        self.count = Counter(in_flight)
        self._seen = dict(tallies)
        self._is_counted = True

    def stretch(self, name: str, seats: int, window_seconds: float) -> float:
        """Tell how many tasks of a class keep one of its `seats` busy: those that one seat starts within the window.

        The broker should hold no more than starts within the window, so the measured rate bounds it; a class of short
        tasks may always have a few per seat, or it could never get up to its rate.
        """
        mean_seconds = self._mean_seconds.get(name)
        if mean_seconds is None:
            return 1.0
        by_length = window_seconds / max(mean_seconds, 0.0005)
        by_rate = self._rate.get(name, 0.0) * window_seconds / seats
        return 1.0 + min(by_length, max(by_rate, _RUN_UP if by_length >= _RUN_UP else 0.0))

    def _learn_rates(self) -> None:
        now = time.monotonic()
        seconds = now - self._since_at
        if seconds < 0.05:
            return
        keep = 0.5 ** (seconds / _RATE_HALF_LIFE_SECONDS)
        for name in set(self._rate) | set(self._since):
            measured = self._since[name] / seconds
            self._rate[name] = max(measured, self._rate.get(name, 0.0) * keep + measured * (1 - keep))
        self._since.clear()
        self._since_at = now
