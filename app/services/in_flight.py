"""What the leader remembers between two full reads of the database, and how often those may happen."""

import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from app.store.tallies import Tally

READ_SHARE = 0.05
"""Full reads (counts, heads from the very start of a lane) take at most this share of the leader's time."""

AHEAD_MOST = 6.0
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

    From the tallies it also learns how long a task of a class keeps its slot.
    """

    count: Counter[str] = field(default_factory=Counter)
    _seen: dict[str, Tally] = field(default_factory=dict)
    _mean_seconds: dict[str, float] = field(default_factory=dict)
    _is_counted: bool = False

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
            took = max(0.0, tally.busy_seconds - before.busy_seconds) / ran
            weight = min(0.5, ran / 100)
            self._mean_seconds[name] = took + (self._mean_seconds.get(name, took) - took) * (1 - weight)

    def counted(self, in_flight: Mapping[str, int], tallies: Mapping[str, Tally]) -> None:
        """Take a full count; `tallies` were read after it, so that a departure in between is not taken off twice."""
        self.count = Counter(in_flight)
        self._seen = dict(tallies)
        self._is_counted = True

    def shortest_seconds(self) -> float | None:
        """Tell how long the shortest tasks in flight keep their slot; None when nothing known is in flight."""
        return min((self._mean_seconds[name] for name in self._mean_seconds if self.count[name] > 0), default=None)

    def stretch(self, name: str, window_seconds: float) -> float:
        """Tell how many tasks of a class may be in flight per seat: the running one, and what it starts in the window.

        The window covers the way from the release to the slot, so that a seat with short tasks never runs dry. What is
        released ahead still goes in turns between tenants (the worker's inbox), and never more than AHEAD_MOST a seat.
        """
        mean_seconds = self._mean_seconds.get(name)
        return 1.0 if mean_seconds is None else 1.0 + min(AHEAD_MOST, window_seconds / max(mean_seconds, 0.001))
