"""Seats between classes: what each class may hold, of which seats, and what is left right now.

A *seat* is one slot of a live worker. Workers serve sets of classes, so a class can use only the seats it reaches,
and classes compete where their pools overlap. What may run together is decided by one family of inequalities (Hall's
condition): for every set of classes, what they hold together fits into the seats that any of them reaches. One pool
that serves everything gives one inequality, "the sum fits"; it is the same code for any mixture.

Loads are fractions of seats: a class with stretch 4 has tasks so short that four of them in flight keep one seat busy,
so each counts as a quarter of a seat (*places* = seats × stretch).

With few seats the reserves, rounded up, may be more than there is. Then reserves are trimmed, the most inflated by
rounding first and the lowest rank first among equals, until they fit *and* every class left without a reserve reaches
at least one seat that is nobody's. So one seat is nobody's reserve and serves every class; of two, one is the highest
rank's reserve and one serves all; and so on. A class without a reserve is kept from starving by `release`'s turns.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from math import ceil, floor

from app.domain.policy import Policy, PriorityClass

EPSILON = 1e-9
LONGEST_TURN = 100


@dataclass(frozen=True, slots=True)
class Pool:
    """Live workers that serve the same classes, with their seats together."""

    classes: frozenset[str]
    seats: int


@dataclass(frozen=True, slots=True)
class Capacity:
    """The seats there are and what is in flight (released or running) per class.

    `stretch` is at least 1: how many tasks of the class keep one seat busy. Absent classes have 0 and 1.
    """

    pools: tuple[Pool, ...]
    in_flight: Mapping[str, int] = field(default_factory=dict)
    stretch: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Allotment:
    """What one class may hold: seats it reaches, its reserve after trimming, its maximum, and its turn.

    A class without a reserve is owed a seat after `turn` releases of others on seats that it reaches.
    """

    name: str
    reach: int
    reserve: int
    maximum: int
    turn: int


@dataclass(frozen=True, slots=True)
class Constraint:
    """The classes that reach no seat beyond `seats`: together they hold at most that many."""

    members: tuple[str, ...]
    seats: int


@dataclass(frozen=True, slots=True)
class SeatBook:
    """The standing part of capacity: it changes with the workers and the policy, not with the tasks."""

    allotments: Mapping[str, Allotment]
    constraints: Mapping[str, tuple[Constraint, ...]]


@lru_cache(maxsize=16)
def seat_book(policy: Policy, pools: tuple[Pool, ...]) -> SeatBook:
    """Work out reserves, maxima and constraints; remembered, as workers change rarely and plans are many."""
    classes = policy.classes
    live = [pool for pool in pools if pool.seats > 0]
    reach = {one.name: sum(pool.seats for pool in live if one.name in pool.classes) for one in classes}
    constraints = _constraints([one.name for one in classes if reach[one.name]], live)
    reserves = _trimmed(classes, reach, constraints)
    allotments = {one.name: _allotment(one, reach[one.name], reserves[one.name]) for one in classes}
    by_class = {one.name: tuple(c for c in constraints if one.name in c.members) for one in classes}
    return SeatBook(allotments, by_class)


def _allotment(one: PriorityClass, reach: int, reserve: int) -> Allotment:
    most = min(reach, max(1, reserve, floor(one.maximum * reach + EPSILON)))
    turn = ceil(1 / max(one.nominal, 1 / LONGEST_TURN) - EPSILON)
    return Allotment(one.name, reach, reserve, most, turn)


def _constraints(names: Sequence[str], pools: Sequence[Pool]) -> list[Constraint]:
    """Keep of all sets of classes the widest for each union of pools: the narrower ones follow from it."""
    masks = {name: sum(1 << position for position, pool in enumerate(pools) if name in pool.classes) for name in names}
    unions = {0}
    for mask in masks.values():
        unions |= {mask | union for union in unions}
    found = []
    for union in sorted(unions - {0}):
        members = tuple(name for name in names if not masks[name] & ~union)
        seats = sum(pool.seats for position, pool in enumerate(pools) if union >> position & 1)
        found.append(Constraint(members, seats))
    return found


def _trimmed(
    classes: Sequence[PriorityClass], reach: Mapping[str, int], constraints: Sequence[Constraint]
) -> dict[str, int]:
    """Round the shares up to seats and take away what does not fit (see the module's text)."""
    share = {one.name: one.nominal * reach[one.name] for one in classes}
    reserves = {one.name: ceil(share[one.name] - EPSILON) for one in classes}
    rank = {one.name: one.rank for one in classes}
    while broken := next((c for c in constraints if not _fits(c, reserves)), None):
        holders = [name for name in broken.members if reserves[name]]
        victim = max(holders, key=lambda name: (round(reserves[name] - share[name], 6), rank[name]))
        reserves[victim] -= 1
    return reserves


def _fits(constraint: Constraint, reserves: Mapping[str, int]) -> bool:
    shared = 1 if any(not reserves[name] for name in constraint.members) else 0
    return sum(reserves[name] for name in constraint.members) + shared <= constraint.seats


class Seats:
    """What is held while one plan is made: loads grow as tasks are released, and holds keep seats free for others."""

    def __init__(self, policy: Policy, capacity: Capacity) -> None:
        self.book = seat_book(policy, capacity.pools)
        self.stretch = {one.name: max(1.0, capacity.stretch.get(one.name, 1.0)) for one in policy.classes}
        self.in_flight = {one.name: capacity.in_flight.get(one.name, 0) for one in policy.classes}
        self.held: dict[str, float] = {}

    def load(self, name: str) -> float:
        """Seats that the class keeps busy."""
        return self.in_flight[name] / self.stretch[name]

    def room(self, name: str, lenders: Mapping[str, float] | None = None) -> float:
        """Seats that the class could take without touching what others hold or have reserved.

        `lenders` are classes whose idle reserve may be used, with the part of it (in seats) that stays theirs.
        """
        free = float("inf")
        for constraint in self.book.constraints[name]:
            taken = 0.0
            for other in constraint.members:
                load = self.in_flight[other] / self.stretch[other]
                if other != name:
                    kept = (
                        self.book.allotments[other].reserve if not lenders or other not in lenders else lenders[other]
                    )
                    load = max(load, kept, self.held.get(other, 0.0))
                taken += load
            free = min(free, constraint.seats - taken)
        return free if self.book.constraints[name] else 0.0

    def places(self, name: str, seats: float) -> int:
        """Tasks of the class that fit into `seats`."""
        return max(0, floor(seats * self.stretch[name] + EPSILON))

    def below(self, name: str, ceiling: int) -> int:
        """Tasks that the class may still start before it keeps `ceiling` seats busy."""
        return max(0, floor(ceiling * self.stretch[name] + EPSILON) - self.in_flight[name])

    def take(self, name: str, count: int) -> None:
        """Count `count` more tasks in flight."""
        self.in_flight[name] += count

    def hold(self, name: str) -> None:
        """Keep what is free for the class now from those that come after it in this plan.

        A part of a seat is of no use to a class whose tasks need a whole one; without this, a class of very short
        tasks would take that part again and again, and the whole seat would never come together.
        """
        self.held[name] = self.load(name) + max(0.0, self.room(name))
