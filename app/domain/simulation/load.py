"""A load as values: what arrives, who works, what happens to them meanwhile, and what is expected of it all.

Times are seconds of virtual time since the start of the load. What a file must look like is `load_file`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from random import Random

from app.domain.task_types import TaskTypeSpec

START = datetime(2026, 1, 5, 9, tzinfo=UTC)
"""When a load begins that names no `start_at`: a Monday morning."""


class Spread(StrEnum):
    """How run times spread around their mean, and arrivals around their rate."""

    FIXED = "fixed"
    UNIFORM = "uniform"
    EXPONENTIAL = "exponential"


class Happening(StrEnum):
    """What may change while the load runs."""

    SEATS = "seats"
    DIE = "die"
    PAUSE = "pause"
    RESUME = "resume"
    DEPENDENCY = "dependency"
    REVIEWERS = "reviewers"


class Health(StrEnum):
    """How a dependency is."""

    UP = "up"
    SLOW = "slow"
    DOWN = "down"


class Need(StrEnum):
    """Decisions that a scenario is about; a version that does not take them cannot be judged by it."""

    AGING = "aging"
    PREEMPTION = "preemption"
    SATURATION = "saturation"
    SOURCES = "sources"


@dataclass(frozen=True, slots=True)
class Tenant:
    """Who submits."""

    name: str
    weight: float = 1.0
    service_class: str = "standard"
    may_claim: bool = False


@dataclass(frozen=True, slots=True)
class Work:
    """What a task of a type does: its declaration, and how it behaves.

    `checkpoint_every_seconds` is how often a preemptible one confirms a checkpoint; `loses_checkpoint` the chance that
    it is gone when the task comes back. `asks_approval` is the share of tasks that wait for a person after their run,
    and then run `after_approval_seconds` more.
    """

    spec: TaskTypeSpec
    run_seconds: float
    spread: Spread = Spread.FIXED
    fails: float = 0.0
    checkpoint_every_seconds: float | None = None
    loses_checkpoint: float = 0.0
    asks_approval: float = 0.0
    after_approval_seconds: float = 1.0


@dataclass(frozen=True, slots=True)
class SeatPool:
    """Workers that serve the same classes; no classes means all."""

    name: str
    seats: int
    classes: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Arrivals:
    """Tasks that arrive: `count` at `at`, and again every `every_seconds` (or as often on average) until `until`.

    They go in turn to `tenants`. `source_closes_after_seconds` is when the system of record no longer needs the task,
    counted from its arrival. `run_seconds` replaces the type's.
    """

    task_type: str
    tenants: tuple[str, ...]
    at_seconds: float = 0.0
    count: int = 1
    every_seconds: float | None = None
    until_seconds: float | None = None
    spread: Spread = Spread.FIXED
    group: str = ""
    due_in_seconds: float | None = None
    valid_for_seconds: float | None = None
    not_before_seconds: float = 0.0
    claims: Mapping[str, object] = field(default_factory=dict)
    source: Mapping[str, object] = field(default_factory=dict)
    source_closes_after_seconds: float | None = None
    run_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Change:
    """Something that happens at a time: `name` is of the pool, the dependency, or what is paused (`class:common`)."""

    at_seconds: float
    what: Happening
    name: str = ""
    count: int = 0
    health: Health = Health.UP
    slower: float = 1.0


@dataclass(frozen=True, slots=True)
class Reviewers:
    """People who decide approvals, the one that is due first first: so many at a time, each taking so long."""

    count: int = 0
    takes_seconds: float = 60.0
    spread: Spread = Spread.FIXED
    denies: float = 0.0


@dataclass(frozen=True, slots=True)
class Expectation:
    """A bound on one figure: of a class, of a tenant, or of all (neither named)."""

    figure: str
    priority_class: str | None = None
    tenant: str | None = None
    at_least: float | None = None
    at_most: float | None = None


@dataclass(frozen=True, slots=True)
class Load:
    """Everything that a simulation needs beside the policy. `policy_file` is the policy that it was written for."""

    title: str
    hours: float
    tenants: Mapping[str, Tenant]
    work: Mapping[str, Work]
    pools: tuple[SeatPool, ...]
    arrivals: tuple[Arrivals, ...]
    changes: tuple[Change, ...] = ()
    reviewers: Reviewers = field(default_factory=Reviewers)
    expectations: tuple[Expectation, ...] = ()
    needs: tuple[Need, ...] = ()
    seed: int = 1
    start_at: datetime = START
    policy_file: str | None = None


def drawn(mean: float, spread: Spread, draw: Random) -> float:
    """Draw a duration around its mean: as it is, between its half and one and a half, or exponential."""
    match spread:
        case Spread.FIXED:
            return mean
        case Spread.UNIFORM:
            return draw.uniform(0.5 * mean, 1.5 * mean)
        case Spread.EXPONENTIAL:
            return draw.expovariate(1.0 / mean)


def expected_tasks(load: Load, hours: float) -> float:
    """Say how many tasks arrive in `hours`, about."""
    end = hours * 3600.0
    total = 0.0
    for one in load.arrivals:
        until = min(end, one.until_seconds if one.until_seconds is not None else end)
        times = 1.0 if one.every_seconds is None else 1.0 + max(0.0, until - one.at_seconds) / one.every_seconds
        total += one.count * times if one.at_seconds <= end else 0
    return total
