"""Which waiting tasks go now: seats between classes (`capacity`), turns inside a class (`fairness`), limits, pauses.

A plan is made in four passes over the classes that have work:
1. *Nominal*: each class fills its own reserve.
2. *Turns*: a class that has no reserve (few seats, or a nominal share of 0) and was passed over too often takes one
   unreserved seat, or keeps what is free until it makes a whole seat.
3. *Shared*: unreserved seats go by rank, up to each class's maximum.
4. *Borrowed*: what is left of idle reserves goes by rank to tasks that are bound to leave in time: their timeout is not
   longer than the lender's `reclaim_within`, or they are preemptible and the lender may preempt their class.

What follows, and is tested: no class holds more than its maximum; a reserve is denied only while borrowers that are
bound to leave sit on it; a waiting class without a reserve gets a seat at the latest when one is free that it reaches
after `Allotment.turn` releases of others; between tenants the bound of `fairness` holds; limits are never exceeded.
The cost follows the tasks handed in and the seats given, never the backlog.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from app.domain.budgets import Purse
from app.domain.capacity import Capacity, Seats
from app.domain.dependencies import DependencyGate
from app.domain.fairness import Head, TenantHeads, Turns
from app.domain.limits import ClassGate, Limits
from app.domain.policy import Policy, PriorityClass


class SeatKind(StrEnum):
    """Whose seat a released task gets."""

    NOMINAL = "nominal"
    SHARED = "shared"
    BORROWED = "borrowed"


class Waiting(StrEnum):
    """Why a task was put off, as far as a plan can tell."""

    NO_CONSUMERS = "no_consumers"
    PAUSED = "paused"
    LIMIT = "limit"
    DEPENDENCY_CLOSED = "dependency_closed"
    DEPENDENCY_LIMIT = "dependency_limit"
    BUDGET = "budget"
    NO_SEAT = "no_seat"
    TENANTS_TURN = "tenants_turn"


@dataclass(frozen=True, slots=True)
class Demand:
    """What waits, and all that a plan carries from round to round.

    `heads` gives per class the tenants with the lowest virtual times and the first tasks of each. `in_flight` counts
    released and running tasks by limit (`type:x`, `tenant:y`, `group:z`, `dependency:d`). `paused` has the spellings
    `class:…`, `type:…`, `tenant:…`, `group:…`, `dependency:…`. `dependencies` are those that stop or bound something,
    by name; `purse` holds the budgets. `passed_over` comes from the previous plan; when it is lost (a new leader), a
    turn only comes later.
    """

    heads: Mapping[str, Sequence[TenantHeads]]
    clocks: Mapping[str, float] = field(default_factory=dict)
    in_flight: Mapping[str, int] = field(default_factory=dict)
    paused: frozenset[str] = frozenset()
    passed_over: Mapping[str, int] = field(default_factory=dict)
    max_releases: int = 1_000
    dependencies: Mapping[str, DependencyGate] = field(default_factory=dict)
    purse: Purse | None = None


@dataclass(frozen=True, slots=True)
class Release:
    """One task that goes now, on whose seat."""

    task_id: str
    tenant_id: str
    priority_class: str
    seat: SeatKind


@dataclass(frozen=True, slots=True)
class PutOff:
    """What a class has waiting after the plan, of the tasks handed in: counts by reason, and the figures behind them.

    `load` and the others are seats. `next_start` is the virtual time of the next tenant's turn; None when no task is
    left that a seat would help.
    """

    reasons: Mapping[Waiting, int]
    reach: int
    reserve: int
    maximum: int
    load: float
    next_start: float | None


@dataclass(frozen=True, slots=True)
class Plan:
    """What to release, in order, and what to write down with it.

    `virtual_times` and `clocks` hold only what changed. `capped` says that the round ended at `max_releases`.
    """

    releases: tuple[Release, ...]
    virtual_times: Mapping[tuple[str, str], float]
    clocks: Mapping[str, float]
    passed_over: Mapping[str, int]
    waiting: Mapping[str, PutOff]
    limits_full: tuple[str, ...]
    capped: bool


def plan_release(capacity: Capacity, demand: Demand, policy: Policy) -> Plan:
    """Decide what goes now. Pure and deterministic: the order in which tenants and tasks are handed in is irrelevant.

    Raises ValueError for a tenant's weight that is not above 0.
    """
    return _Round(capacity, demand, policy).plan()


class _Round:
    """The state of one plan while it is made."""

    def __init__(self, capacity: Capacity, demand: Demand, policy: Policy) -> None:
        self.policy = policy
        self.demand = demand
        self.seats = Seats(policy, capacity)
        self.limits = Limits(policy, demand.in_flight, demand.paused, demand.dependencies, demand.purse)
        self.gates: dict[str, ClassGate] = {}
        self.turns: dict[str, Turns] = {}
        self.active: list[PriorityClass] = []
        self.releases: list[Release] = []
        self.remaining = demand.max_releases
        for one in policy.classes:
            if demand.heads.get(one.name) and self._open(one):
                self.active.append(one)
                gate = None if self.limits.idle else self.gates.setdefault(one.name, ClassGate(self.limits, one.name))
                self.turns[one.name] = Turns(demand.heads[one.name], demand.clocks.get(one.name, 0.0), gate)

    def plan(self) -> Plan:
        """Make the passes and write down what came of them."""
        if self.active:
            self._nominal()
            self._owed_turns()
            self._shared()
            self._borrowed()
        virtual_times = {
            (name, tenant): time for name, turns in self.turns.items() for tenant, time in turns.virtual_times.items()
        }
        clocks = {name: turns.clock for name, turns in self.turns.items() if turns.virtual_times}
        waiting = self._put_off()
        return Plan(
            tuple(self.releases),
            virtual_times,
            clocks,
            self._passed_over(waiting),
            waiting,
            self.limits.full(),
            self.remaining <= 0,
        )

    def _open(self, one: PriorityClass) -> bool:
        return f"class:{one.name}" not in self.demand.paused and self.seats.book.allotments[one.name].reach > 0

    def _owed(self, name: str) -> float:
        """How overdue the class is: 1 and more when its turn has come."""
        return self.demand.passed_over.get(name, 0) / self.seats.book.allotments[name].turn

    def _nominal(self) -> None:
        """Fill the reserves, at first so that no class uses up the whole round before another had its part."""
        order = sorted(
            self.active, key=lambda one: (-self._owed(one.name) if self._owed(one.name) >= 1 else 0, one.rank)
        )
        total = sum(one.nominal for one in self.active) or 1.0
        whole = self.remaining
        parts = {one.name: max(1, int(whole * one.nominal / total)) for one in order}
        for limit in (parts, dict.fromkeys(parts, whole)):
            for one in order:
                ceiling = self.seats.below(one.name, self.seats.book.allotments[one.name].reserve)
                if ceiling > 0:
                    self._take(one, min(ceiling, limit[one.name], self._room(one.name)), SeatKind.NOMINAL)

    def _owed_turns(self) -> None:
        for one in sorted(self.active, key=lambda one: (-self._owed(one.name), one.rank)):
            name = one.name
            if self._owed(name) < 1 or self.seats.book.allotments[name].reserve or not self._wants(name):
                continue
            if not self._take(one, min(1, self._room(name)), SeatKind.SHARED):
                self.seats.hold(name)

    def _shared(self) -> None:
        for one in self.active:
            self._take(one, min(self._below_maximum(one.name), self._room(one.name)), SeatKind.SHARED)
            if self._wants(one.name):
                self.seats.hold(one.name)

    def _borrowed(self) -> None:
        for one in self.active:
            if self.remaining <= 0:
                return
            if not self._wants(one.name):
                continue
            lenders = self._lenders(one.name)
            for last in range(len(lenders)):
                lent = lenders[: last + 1]
                kept = {lender.name: self._kept(lender) for lender in lent}
                room = self.seats.places(one.name, self.seats.room(one.name, kept))
                if room > 0:
                    fits = _bound_to_leave(one.name, lent)
                    self._take(one, min(self._below_maximum(one.name), room), SeatKind.BORROWED, fits)

    def _lenders(self, borrower: str) -> list[PriorityClass]:
        """List the classes with an idle reserve, the most patient first; one that waits for its own seat lends none."""
        idle = [
            one
            for one in self.policy.classes
            if one.name != borrower
            and self.seats.book.allotments[one.name].reserve > self.seats.load(one.name)
            and not (one.name in self.turns and self.turns[one.name].waiting())
        ]
        return sorted(idle, key=lambda one: (-one.reclaim_within_seconds, one.rank))

    def _kept(self, lender: PriorityClass) -> float:
        reserve = self.seats.book.allotments[lender.name].reserve
        return reserve - int(lender.lendable * reserve + 1e-9)

    def _room(self, name: str) -> int:
        return self.seats.places(name, self.seats.room(name))

    def _below_maximum(self, name: str) -> int:
        return self.seats.below(name, self.seats.book.allotments[name].maximum)

    def _wants(self, name: str) -> bool:
        return self._below_maximum(name) > 0 and self.turns[name].waiting()

    def _take(self, one: PriorityClass, count: int, seat: SeatKind, fits: Callable[[Head], bool] | None = None) -> int:
        count = min(count, self.remaining)
        if count <= 0:
            return 0
        taken = self.turns[one.name].take(count, fits)
        self.seats.take(one.name, len(taken))
        self.remaining -= len(taken)
        self.releases.extend([Release(head.task_id, tenant, one.name, seat) for tenant, head in taken])
        return len(taken)

    def _put_off(self) -> dict[str, PutOff]:
        waiting = {}
        for one in self.policy.classes:
            tenants = self.demand.heads.get(one.name)
            if tenants and (put_off := self._put_off_in(one.name, tenants)) is not None:
                waiting[one.name] = put_off
        return waiting

    def _put_off_in(self, name: str, tenants: Sequence[TenantHeads]) -> PutOff | None:
        reasons: dict[Waiting, int] = {}
        next_start = None
        if name in self.turns:
            following, left, next_start = self.turns[name].left()
            stopped = self.gates[name].stopped if name in self.gates else {}
            counts = (
                *((Waiting(why), count) for why, count in stopped.items()),
                (Waiting.NO_SEAT, following),
                (Waiting.TENANTS_TURN, left - following),
            )
            reasons = {reason: count for reason, count in counts if count}
        else:
            reason = Waiting.PAUSED if f"class:{name}" in self.demand.paused else Waiting.NO_CONSUMERS
            if count := sum(len(tenant.heads) for tenant in tenants):
                reasons = {reason: count}
        if not reasons:
            return None
        own = self.seats.book.allotments[name]
        return PutOff(reasons, own.reach, own.reserve, own.maximum, self.seats.load(name), next_start)

    def _passed_over(self, waiting: Mapping[str, PutOff]) -> dict[str, int]:
        """Count, for each class that released nothing and could use a seat, what went past it."""
        passed = {}
        for name, put_off in waiting.items():
            if name in self.turns and not self.turns[name].virtual_times and put_off.next_start is not None:
                passed[name] = self.demand.passed_over.get(name, 0) + len(self.releases)
        return passed


def _bound_to_leave(borrower: str, lenders: Sequence[PriorityClass]) -> Callable[[Head], bool]:
    """Make the test of a task that may sit on the idle reserves of all `lenders`."""
    patience = min(lender.reclaim_within_seconds for lender in lenders)
    strict = [lender.reclaim_within_seconds for lender in lenders if borrower not in lender.may_preempt]
    preemptible_patience = min(strict, default=float("inf"))

    def fits(head: Head) -> bool:
        return head.timeout_seconds <= (preemptible_patience if head.preemptible else patience)

    return fits
