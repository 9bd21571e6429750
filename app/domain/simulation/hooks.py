"""Decisions that a version of the service may or may not take yet. The engine asks whoever is there, and acts on it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime

from app.domain.policy import Policy, PriorityClass
from app.domain.simulation.load import Need


@dataclass(frozen=True, slots=True)
class Aged:
    """A task at the head of its lane. Times are aware; `promotions` and `releases` count in the class it would join."""

    task_id: str
    priority_class: str
    submitted_at: datetime
    due_at: datetime | None
    valid_until: datetime | None
    is_needed: bool
    promotions: int
    releases: int


@dataclass(frozen=True, slots=True)
class Candidate:
    """A running task that could give its seat back at its next checkpoint.

    `checkpoint_age_seconds` is None without a confirmed checkpoint.
    """

    task_id: str
    priority_class: str
    preemptible: bool
    checkpoint_age_seconds: float | None
    valid_until: datetime | None


@dataclass(frozen=True, slots=True)
class Wanted:
    """A class that has waited past its target, and for how long its first task has."""

    priority_class: PriorityClass
    waited_seconds: float


@dataclass(frozen=True, slots=True)
class Arrived:
    """A submission at the door of a class.

    `ahead` counts the waiting tasks of the class, `starts_per_second` is its measured rate, None before any start.
    """

    priority_class: PriorityClass
    now: datetime
    valid_until: datetime | None
    ahead: int
    starts_per_second: float | None


@dataclass(frozen=True, slots=True)
class Refuse:
    """The submission is turned away."""


@dataclass(frozen=True, slots=True)
class Defer:
    """The submission is taken, and may start only after `seconds`."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Downgrade:
    """The submission is taken in a lower class."""

    to: str


Saturation = Refuse | Defer | Downgrade | None


@dataclass(frozen=True, slots=True)
class Hooks:
    """The decisions that plug in; None where this version does not take them.

    `aging` names the class that a head rises to, or None. `preempt` picks at most one victim of those running; a
    declined request is an empty answer. `saturate` decides about a submission, `revalidate` says from `is_needed`
    whether a task that is about to start still may.
    """

    aging: Callable[[Policy, Aged, datetime], str | None] | None = None
    preempt: Callable[[Policy, Wanted, Sequence[Candidate], datetime], str | None] | None = None
    saturate: Callable[[Policy, Arrived], Saturation] | None = None
    revalidate: Callable[[bool], bool] | None = None

    def lacks(self, needs: Sequence[Need]) -> tuple[Need, ...]:
        """List what is needed and not there."""
        there = {
            Need.AGING: self.aging,
            Need.PREEMPTION: self.preempt,
            Need.SATURATION: self.saturate,
            Need.SOURCES: self.revalidate,
        }
        return tuple(need for need in needs if there[need] is None)


THIS_VERSION = Hooks()
"""What the release in hand decides beyond classes, seats, turns, limits, dependencies and retries: nothing yet."""
