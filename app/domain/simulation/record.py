"""What is counted while a load runs: waits, seats by whose they are, starvation, give-back, and tenants' shares."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from app.domain.capacity import SeatBook
from app.domain.policy import Policy, PriorityClass
from app.domain.simulation.figures import COUNTS, Figures, percentile, waits
from app.domain.simulation.tasks import Task


@dataclass(slots=True)
class OfClass:
    """The counts of one class."""

    one: PriorityClass
    counts: Counter[str] = field(default_factory=Counter)
    waits: array[float] = field(default_factory=lambda: array("d"))
    approvals: array[float] = field(default_factory=lambda: array("d"))
    give_backs: array[float] = field(default_factory=lambda: array("d"))
    in_window: int = 0
    too_late: int = 0
    held: int = 0
    nominal_seconds: float = 0.0
    shared_seconds: float = 0.0
    borrowed_seconds: float = 0.0
    lent_seconds: float = 0.0
    most_seats: int = 0
    hungry_since: float | None = None
    starvation: float = 0.0
    demand_since: float | None = None
    shares: Shares = field(default_factory=lambda: Shares())

    @property
    def held_seconds(self) -> float:
        """Add up the seats that the class held, whoever's they were."""
        return self.nominal_seconds + self.shared_seconds + self.borrowed_seconds

    def fed(self, now: float, waiting: int) -> None:
        """Note a start (or that nobody waits any more): how long nobody of the class had started before it."""
        if self.hungry_since is not None:
            self.starvation = max(self.starvation, now - self.hungry_since)
        self.hungry_since = now if waiting else None


@dataclass(slots=True)
class Shares:
    """How far tenants are ahead of their fair share: against a server that serves all who wait at the same time.

    Each release is owed to all tenants with work, by weight; `lead` is what a tenant got beyond what it was owed since
    it began to wait, in tasks of the size it got.
    """

    owed: float = 0.0
    weight: float = 0.0
    since: dict[str, tuple[float, float]] = field(default_factory=dict)
    most: dict[str, float] = field(default_factory=dict)

    def came(self, tenant: str, weight: float) -> None:
        """Note that a tenant has work again."""
        if tenant not in self.since:
            self.since[tenant] = (self.owed, 0.0)
            self.weight += weight

    def went(self, tenant: str, weight: float) -> None:
        """Note that nothing of a tenant waits any more."""
        if self.since.pop(tenant, None) is not None:
            self.weight -= weight

    def served(self, tenant: str, weight: float, cost: float) -> None:
        """Note a release."""
        if tenant not in self.since or self.weight <= 1e-12:
            return
        self.owed += cost / self.weight
        began, got = self.since[tenant]
        got += cost
        self.since[tenant] = (began, got)
        lead = (got - weight * (self.owed - began)) / cost
        self.most[tenant] = max(self.most.get(tenant, 0.0), lead)


class Record:
    """Everything that is counted; the engine tells what happens."""

    def __init__(self, policy: Policy) -> None:
        self.classes = {one.name: OfClass(one) for one in policy.classes}
        self.tenant_waits: dict[str, array[float]] = {}
        self.tenant_counts: dict[str, Counter[str]] = {}
        self.seat_seconds = 0.0

    def passed(self, seconds: float, seats: int, book: SeatBook) -> None:
        """Add up who held which seats for so long.

        Within its reserve a class sits on its own seats. What all hold beyond that fills the seats that are nobody's
        first; the rest sits on idle reserves, each in proportion.
        """
        self.seat_seconds += seconds * seats
        over: dict[str, int] = {}
        idle: dict[str, int] = {}
        shared = seats
        for name, of in self.classes.items():
            reserve = book.allotments[name].reserve
            shared -= reserve
            of.nominal_seconds += min(of.held, reserve) * seconds
            if of.held > reserve:
                over[name] = of.held - reserve
            elif of.held < reserve:
                idle[name] = reserve - of.held
        if not over:
            return
        beyond = sum(over.values())
        borrowed = min(max(0, beyond - max(0, shared)), sum(idle.values()))
        for name, count in over.items():
            self.classes[name].borrowed_seconds += seconds * borrowed * count / beyond
            self.classes[name].shared_seconds += seconds * (beyond - borrowed) * count / beyond
        if borrowed:
            spare = sum(idle.values())
            for name, count in idle.items():
                self.classes[name].lent_seconds += seconds * borrowed * count / spare

    def count(self, task: Task, what: str, times: int = 1) -> None:
        """Count something of the task's class."""
        self.classes[task.class_name].counts[what] += times

    def arrived(self, task: Task) -> None:
        """Count an arrival in the class that it was given."""
        self.count(task, "arrived")
        self.tenant_counts.setdefault(task.tenant.name, Counter())["arrived"] += 1

    def started(self, task: Task, now: float) -> None:
        """Count the first start of a task, and its wait."""
        of, waited = self.classes[task.class_name], now - task.ready_at
        of.counts["started"] += 1
        of.waits.append(waited)
        if waited <= of.one.start_within_seconds + 1e-9:
            of.in_window += 1
        else:
            of.too_late += 1
        name = task.tenant.name
        self.tenant_counts.setdefault(name, Counter())["started"] += 1
        self.tenant_waits.setdefault(name, array("d")).append(waited)

    def took(self, task: Task) -> None:
        """Count a seat as held."""
        of = self.classes[task.class_name]
        of.held += 1
        of.most_seats = max(of.most_seats, of.held)

    def gave(self, task: Task) -> None:
        """Count a seat as free."""
        self.classes[task.class_name].held -= 1

    def of_classes(self, lanes: Mapping[str, tuple[int, int, int, float | None]], now: float) -> dict[str, Figures]:
        """Give the figures by class; `lanes` has what waits, runs, asks people, and since when the oldest waits."""
        return {name: self._of_class(of, *lanes[name], now) for name, of in self.classes.items()}

    def _of_class(
        self, of: OfClass, waiting: int, running: int, asking: int, oldest: float | None, now: float
    ) -> Figures:
        of.fed(now, waiting)
        whole = self.seat_seconds or 1.0
        backs, approvals = sorted(of.give_backs), sorted(of.approvals)
        decided = of.in_window + of.too_late
        within = of.one.approve_within_seconds
        counts = {name: float(of.counts[name]) for name in COUNTS}
        return {
            **counts,
            "waiting": waiting, "running": running, "awaiting_approval": asking,
            "started_in_window": of.in_window / decided if decided else None,
            **waits(of.waits),
            "starvation_seconds": of.starvation,
            "oldest_waiting_seconds": None if oldest is None else now - oldest,
            "seat_share": of.held_seconds / whole,
            "nominal_share": of.nominal_seconds / whole,
            "shared_share": of.shared_seconds / whole,
            "borrowed_share": of.borrowed_seconds / whole,
            "lent_share": of.lent_seconds / whole,
            "most_seats": of.most_seats,
            "give_backs": len(backs),
            "give_back_p50_seconds": percentile(backs, 0.5),
            "give_back_p99_seconds": percentile(backs, 0.99),
            "give_back_max_seconds": percentile(backs, 1.0),
            "approval_p99_seconds": percentile(approvals, 0.99),
            "approval_max_seconds": percentile(approvals, 1.0),
            "approvals_in_window": (
                sum(one <= within for one in approvals) / len(approvals) if approvals and within is not None else None
            ),
            "tenant_lead_tasks": max(of.shares.most.values(), default=None),
        }  # fmt: skip

    def of_tenants(self) -> dict[str, Figures]:
        """Give the figures by tenant."""
        return {
            name: {
                "arrived": counts["arrived"],
                "started": counts["started"],
                **waits(self.tenant_waits.get(name, ())),
                "lead_tasks": max(
                    (of.shares.most[name] for of in self.classes.values() if name in of.shares.most), default=None
                ),
            }
            for name, counts in sorted(self.tenant_counts.items())
        }

    def of_all(self, classes: Mapping[str, Figures]) -> Figures:
        """Give the sums."""
        total: dict[str, float | None] = {name: sum(one[name] or 0 for one in classes.values()) for name in COUNTS}
        used = sum(of.held_seconds for of in self.classes.values())
        return {**total, "seat_use": used / self.seat_seconds if self.seat_seconds else None}
