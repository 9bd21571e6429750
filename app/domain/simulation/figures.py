"""The figures of a simulation by name, what is expected of them, and what came of that."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil

from app.domain.simulation.load import Expectation, Need

Figures = Mapping[str, float | None]

COUNTS = (
    "arrived", "started", "done", "waiting", "running", "awaiting_approval", "expired", "refused", "deferred",
    "downgraded", "promoted", "superseded", "retried", "dead_lettered", "denied", "workers_lost",
    "preempt_requested", "preempt_executed", "preempt_declined", "preempt_reverted", "checkpoints_lost",
)  # fmt: skip
WAITS = ("wait_p50_seconds", "wait_p95_seconds", "wait_p99_seconds", "wait_max_seconds")
CLASS_FIGURES = (
    *COUNTS, "started_in_window", *WAITS, "starvation_seconds", "oldest_waiting_seconds", "seat_share",
    "nominal_share", "shared_share", "borrowed_share", "lent_share", "most_seats", "give_backs",
    "give_back_p50_seconds", "give_back_p99_seconds", "give_back_max_seconds", "approval_p99_seconds",
    "approval_max_seconds", "approvals_in_window", "tenant_lead_tasks",
)  # fmt: skip
TENANT_FIGURES = ("arrived", "started", *WAITS, "lead_tasks")
TOTAL_FIGURES = (*COUNTS, "seat_use")


@dataclass(frozen=True, slots=True)
class Series:
    """What waited and ran in each class at even steps of `step_seconds`, for a plot."""

    step_seconds: float
    waiting: Mapping[str, Sequence[int]]
    running: Mapping[str, Sequence[int]]


@dataclass(frozen=True, slots=True)
class Result:
    """What came of one policy under one load. `moments` counts the points in time at which something happened."""

    policy_version: str
    hours: float
    seed: int
    moments: int
    classes: Mapping[str, Figures]
    tenants: Mapping[str, Figures]
    total: Figures
    series: Series


@dataclass(frozen=True, slots=True)
class Checked:
    """One expectation and what was found; `holds` is None where this version cannot be judged by it."""

    expectation: Expectation
    found: float | None
    holds: bool | None


def check(result: Result, expectations: Sequence[Expectation], lacking: Sequence[Need] = ()) -> tuple[Checked, ...]:
    """Hold the figures against what is expected.

    A class that nothing arrived in has no waits: a bound above holds for it, one below does not. A class or a tenant
    that is not there at all holds no expectation.
    """
    return tuple(_checked(result, one, bool(lacking)) for one in expectations)


def _checked(result: Result, one: Expectation, undecided: bool) -> Checked:
    figures: Figures | None = result.total
    if one.priority_class is not None:
        figures = result.classes.get(one.priority_class)
    elif one.tenant is not None:
        figures = result.tenants.get(one.tenant)
    found = figures.get(one.figure) if figures is not None else None
    if undecided:
        return Checked(one, found, None)
    if figures is None or (found is None and one.at_least is not None):
        return Checked(one, found, False)
    above = one.at_most is None or found is None or found <= one.at_most + 1e-9
    below = one.at_least is None or found is None or found >= one.at_least - 1e-9
    return Checked(one, found, above and below)


def percentile(ordered: Sequence[float], share: float) -> float | None:
    """Give the smallest value that at least `share` of the sorted values do not pass; None of nothing."""
    return ordered[max(0, ceil(share * len(ordered) - 1e-9) - 1)] if ordered else None


def waits(values: Sequence[float]) -> dict[str, float | None]:
    """Give the percentiles of waits by the figures' names."""
    ordered = sorted(values)
    return {name: percentile(ordered, share) for name, share in zip(WAITS, (0.5, 0.95, 0.99, 1.0), strict=True)}
