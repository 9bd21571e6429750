"""Why a task is still waiting: one typed reason and one plain sentence, from its place and the latest plan."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from app.domain.lifecycle import FINAL, TaskStatus
from app.domain.release import PutOff


class WaitReason(StrEnum):
    """The typed answer to "why is it still waiting"; the values are part of the REST contract."""

    NOT_BEFORE = "not_before"
    BACKOFF = "backoff"
    APPROVAL = "approval"
    PAUSED = "paused"
    NO_CONSUMERS = "no_consumers"
    NO_SEAT = "no_seat"
    TENANTS_TURN = "tenants_turn"
    LIMIT = "limit"
    DEPENDENCY_CLOSED = "dependency_closed"
    DEPENDENCY_LIMIT = "dependency_limit"
    BUDGET = "budget"
    RELEASED = "released"
    RUNNING = "running"
    FINAL = "final"


@dataclass(frozen=True, slots=True)
class Place:
    """Where the task stands. `due_at` is when it may go on, while it is scheduled or backs off (aware)."""

    status: TaskStatus
    priority_class: str
    tenant_id: str
    task_type: str
    group: str = ""
    depends_on: tuple[str, ...] = ()
    due_at: datetime | None = None
    released: bool = False
    virtual_time: float | None = None
    snoozed: tuple[str, str] | None = None
    """Why the last attempt gave its worker back, and in which words, while the task waits for that."""


@dataclass(frozen=True, slots=True)
class Situation:
    """The latest plan's figures and what is paused, by its spelling (`class:common`) with the reason given.

    `served` are the classes that live workers serve. `dependencies` and `budgets` say of those that stop the task what
    is wrong with them, as a sentence by name; `saturated` are dependencies whose calls wait. `put_off` has no entry for
    a class in which nothing was put off.
    """

    served: frozenset[str]
    paused: Mapping[str, str]
    limits_full: frozenset[str]
    put_off: Mapping[str, PutOff]
    dependencies: Mapping[str, str] = field(default_factory=dict)
    saturated: frozenset[str] = frozenset()
    budgets: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Explanation:
    """The answer: the reason to build on, the sentence to read."""

    reason: WaitReason
    detail: str


_SNOOZES = frozenset({WaitReason.DEPENDENCY_CLOSED, WaitReason.DEPENDENCY_LIMIT, WaitReason.BUDGET})


def explain_waiting(place: Place, situation: Situation) -> Explanation:
    """Say why the task does not run, the first reason that applies in the order in which a release is decided."""
    return _by_status(place) or _by_obstacle(place, situation) or _by_seat(place, situation)


def _by_status(place: Place) -> Explanation | None:
    match place.status:
        case TaskStatus.RUNNING:
            return Explanation(WaitReason.RUNNING, "It is not waiting: a worker is running it.")
        case TaskStatus.SCHEDULED if place.snoozed is not None and place.snoozed[0] in _SNOOZES:
            why, words = place.snoozed
            return Explanation(WaitReason(why), f"{words} It comes back from {_when(place.due_at)} on.".strip())
        case TaskStatus.SCHEDULED:
            return Explanation(WaitReason.NOT_BEFORE, f"It may not start before {_when(place.due_at)}.")
        case TaskStatus.FAILED_RETRYABLE:
            return Explanation(
                WaitReason.BACKOFF, f"Its last attempt failed; it is tried again from {_when(place.due_at)} on."
            )
        case TaskStatus.AWAITING_APPROVAL:
            return Explanation(WaitReason.APPROVAL, "A person must decide before it goes on; it holds no worker.")
        case status if status in FINAL:
            return Explanation(WaitReason.FINAL, f"It is not waiting: it ended as {status}.")
    if place.released:
        return Explanation(WaitReason.RELEASED, "It was released and is on its way to a worker.")
    return None


def _by_obstacle(place: Place, situation: Situation) -> Explanation | None:
    names = [f"type:{place.task_type}", f"tenant:{place.tenant_id}"]
    names += [f"group:{place.group}"] if place.group else []
    names += [f"dependency:{dependency}" for dependency in place.depends_on]
    paused = next((name for name in [f"class:{place.priority_class}", *names] if name in situation.paused), None)
    if paused is not None:
        return Explanation(WaitReason.PAUSED, f"{paused} is paused: {situation.paused[paused] or 'no reason given'}.")
    if place.priority_class not in situation.served:
        detail = f"No live worker serves the class {place.priority_class}; start one that does."
        return Explanation(WaitReason.NO_CONSUMERS, detail)
    if (stopped := _by_dependency(place, situation)) is not None:
        return stopped
    full = next((name for name in names if name in situation.limits_full), None)
    if full is not None:
        return Explanation(WaitReason.LIMIT, f"{full} has as many tasks in flight as its limit allows.")
    return None


def _by_dependency(place: Place, situation: Situation) -> Explanation | None:
    closed = next((name for name in place.depends_on if name in situation.dependencies), None)
    if closed is not None:
        return Explanation(WaitReason.DEPENDENCY_CLOSED, situation.dependencies[closed])
    if situation.budgets:
        return Explanation(WaitReason.BUDGET, next(iter(situation.budgets.values())))
    busy = next((name for name in place.depends_on if name in situation.saturated), None)
    if busy is not None:
        detail = f"Calls of {busy} already wait for its limits; the task goes when they have passed."
        return Explanation(WaitReason.DEPENDENCY_LIMIT, detail)
    return None


def _by_seat(place: Place, situation: Situation) -> Explanation:
    figures = situation.put_off.get(place.priority_class)
    if figures is None:
        detail = f"Nothing of the class {place.priority_class} was put off last time; it goes with the next release."
        return Explanation(WaitReason.TENANTS_TURN, detail)
    start, following = place.virtual_time, figures.next_start
    if start is not None and following is not None and start > following:
        detail = "Its tenant had its share; tenants that got less in this class, for their weight, go first."
        return Explanation(WaitReason.TENANTS_TURN, detail)
    detail = (
        f"The class {place.priority_class} keeps {figures.load:.1f} of {figures.reach} seats busy (reserve "
        f"{figures.reserve}, maximum {figures.maximum}), and no further seat was free for it."
    )
    return Explanation(WaitReason.NO_SEAT, detail)


def _when(moment: datetime | None) -> str:
    return "its due time" if moment is None else moment.isoformat(timespec="seconds").replace("+00:00", "Z")
