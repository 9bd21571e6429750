"""What the leader remembers between two full reads of the database, and how often those may happen."""

import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

READ_SHARE = 0.05
"""Full reads (counts, heads from the very start of a lane) take at most this share of the leader's time."""

_RATE_HALF_LIFE_SECONDS = 0.25


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
    """What is in flight per class: counted in full now and then, kept up by releases and the workers' tallies.

    `rate` is how many tasks of a class leave per second, averaged over about a second.
    """

    count: Counter[str] = field(default_factory=Counter)
    departed: dict[str, int] = field(default_factory=dict)
    rate: dict[str, float] = field(default_factory=dict)
    rate_at: float = 0.0
    _is_counted: bool = False

    def counted(self, in_flight: Mapping[str, int], tallies: Mapping[str, tuple[int, int]]) -> None:
        """Take a full count; `tallies` were read after it, so that a departure in between is not taken off twice."""
        self.count = Counter(in_flight)
        self.departed = {name: departed for name, (_, departed) in tallies.items()}
        self._is_counted = True

    def tallied(self, tallies: Mapping[str, tuple[int, int]]) -> None:
        """Take off what departed since the last look, and learn how many depart per second."""
        now = time.monotonic()
        seconds = now - self.rate_at
        for name, (_, departed) in tallies.items():
            # A class without a tally at the full count had no departures then; before any count nothing is known.
            gone = max(0, departed - self.departed.get(name, 0 if self._is_counted else departed))
            self.departed[name] = departed
            self.count[name] = max(0, self.count[name] - gone)
            self._since[name] += gone
        if seconds >= 0.05:
            keep = 0.5 ** (seconds / _RATE_HALF_LIFE_SECONDS)
            for name in set(self.rate) | set(self._since):
                self.rate[name] = self.rate.get(name, 0.0) * keep + (self._since[name] / seconds) * (1 - keep)
            self._since.clear()
            self.rate_at = now

    _since: Counter[str] = field(default_factory=Counter)
