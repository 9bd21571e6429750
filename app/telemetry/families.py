"""Counters, gauges and histograms that take a whole batch at once; prometheus-client renders them.

The client's own objects cost 0.3 µs per increment and 0.8-1.2 µs per observation (a lock and a walk over the buckets
each time, measured on Python 3.11), three of which would double the cost of a task on the hot path. Here a batch takes
one lock and a binary search per value (0.15 µs). Gauges are replaced as a whole, so that a class or an error type that
is gone leaves the page instead of staying at its last value. Safe to use from any thread.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from math import isfinite
from threading import Lock

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

Labels = tuple[str, ...]


class CounterFamily(Collector):
    """A counter with labels."""

    def __init__(self, name: str, documentation: str, labels: Sequence[str] = ()) -> None:
        self.name, self._documentation, self.labels = name, documentation, tuple(labels)
        self._values: dict[Labels, float] = {} if labels else {(): 0.0}
        self._lock = Lock()

    def add(self, labels: Labels, amount: float = 1.0) -> None:
        """Count `amount` more; a counter never goes down, so anything but a positive finite amount is left out."""
        if not (amount > 0 and isfinite(amount)):
            return
        with self._lock:
            self._values[labels] = self._values.get(labels, 0.0) + amount

    def collect(self) -> Iterator[Metric]:
        """Yield the family as it is now."""
        family = CounterMetricFamily(self.name, self._documentation, labels=self.labels)
        with self._lock:
            values = list(self._values.items())
        for labels, value in values:
            family.add_metric(labels, value)
        yield family


class GaugeFamily(Collector):
    """A gauge with labels."""

    def __init__(self, name: str, documentation: str, labels: Sequence[str] = ()) -> None:
        self.name, self._documentation, self.labels = name, documentation, tuple(labels)
        self._values: dict[Labels, float] = {}
        self._read: dict[Labels, Callable[[], float]] = {}
        self._lock = Lock()

    def put(self, labels: Labels, value: float) -> None:
        """Set one value."""
        with self._lock:
            self._values[labels] = value

    def replace(self, values: Mapping[Labels, float]) -> None:
        """Set all values at once; what is not named is gone."""
        with self._lock:
            self._values = dict(values)

    def watch(self, labels: Labels, read: Callable[[], float]) -> None:
        """Have one value read at every scrape; a read that fails leaves its value out of that scrape."""
        with self._lock:
            self._read[labels] = read

    def collect(self) -> Iterator[Metric]:
        """Yield the family as it is now."""
        family = GaugeMetricFamily(self.name, self._documentation, labels=self.labels)
        with self._lock:
            values = dict(self._values)
            watched = list(self._read.items())
        for labels, read in watched:
            try:
                values[labels] = float(read())
            except Exception:  # noqa: S112 - whatever a probe does, the page must come
                continue
        for labels, value in values.items():
            family.add_metric(labels, value)
        yield family


class HistogramFamily(Collector):
    """A histogram with labels and fixed upper bounds."""

    def __init__(self, name: str, documentation: str, labels: Sequence[str], bounds: Sequence[float]) -> None:
        self.name, self._documentation, self.labels = name, documentation, tuple(labels)
        self._bounds = tuple(sorted(bounds))
        self._names = [*(_bound_name(bound) for bound in self._bounds), "+Inf"]
        self._counts: dict[Labels, list[int]] = {}
        self._sums: dict[Labels, float] = {}
        self._lock = Lock()

    def observe(self, labels: Labels, values: Sequence[float]) -> None:
        """Count every value; below zero (clocks that differ) counts as zero, as does what is no number."""
        total = sum(values)
        if not isfinite(total) or min(values, default=0.0) < 0:
            values = [value if value > 0 and isfinite(value) else 0.0 for value in values]
            total = sum(values)
        bounds = self._bounds
        with self._lock:
            counts = self._counts.get(labels)
            if counts is None:
                counts = self._counts[labels] = [0] * len(self._names)
                self._sums[labels] = 0.0
            for value in values:
                counts[bisect_left(bounds, value)] += 1
            self._sums[labels] += total

    def collect(self) -> Iterator[Metric]:
        """Yield the family as it is now."""
        family = HistogramMetricFamily(self.name, self._documentation, labels=self.labels)
        with self._lock:
            children = [(labels, list(counts), self._sums[labels]) for labels, counts in self._counts.items()]
        for labels, counts, total in children:
            running = 0
            buckets: list[tuple[str, float]] = []
            for name, count in zip(self._names, counts, strict=True):
                running += count
                buckets.append((name, float(running)))
            family.add_metric(labels, buckets, total)
        yield family


def _bound_name(bound: float) -> str:
    return str(float(bound))
