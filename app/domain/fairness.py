"""Whose turn it is inside one class: start-time fair queueing over tenants, first come first served inside a tenant.

Each tenant has a virtual time, the class a clock. The next task goes to the tenant with the smallest *start*, the later
of its virtual time and the clock; then its virtual time becomes start + cost / weight and the clock becomes that start.
So a tenant that was away has no credit to spend, a burst of one tenant waits behind the others' next tasks, and between
any two tenants that both have work, the service they got per weight never differs by more than one task of each (the
bound of Goyal, Vin and Cheng, "Start-time fair queueing", 1997).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from heapq import heapify, heappop, heappush, heapreplace
from operator import attrgetter
from typing import Protocol

MINIMUM_COST = 1e-6


@dataclass(frozen=True, slots=True)
class Head:
    """A task near the front of its lane (tenant, type, group), with all that its release depends on."""

    task_id: str
    task_type: str
    group: str
    order_at: datetime
    cost: float = 1.0
    timeout_seconds: float = 60.0
    preemptible: bool = False
    depends_on: tuple[str, ...] = ()
    attempt: int = 1


@dataclass(frozen=True, slots=True)
class TenantHeads:
    """One tenant's part of a class: its virtual time, its weight (above 0) and its first tasks, in any order."""

    tenant_id: str
    virtual_time: float
    weight: float
    heads: Sequence[Head]


class Gate(Protocol):
    """What stops tasks beside seats and turns: limits and pauses. What it stops once stays stopped in this plan."""

    def stops(self, tenant_id: str, head: Head) -> bool:
        """Say whether the task may not go; called once per task that is looked at, so it may count the reason."""

    def pass_through(self, tenant_id: str, head: Head) -> None:
        """Count a task that goes."""


_in_order = attrgetter("order_at", "task_id")
_Entry = tuple[float, float, datetime, str, float, list[Head]]  # start, virtual time, …, weight, its tasks, first last


class Turns:
    """The tenants of one class in the order of their turn, while one plan is made."""

    def __init__(self, tenants: Sequence[TenantHeads], clock: float, gate: Gate | None = None) -> None:
        self.clock = clock
        self.virtual_times: dict[str, float] = {}
        self._gate = gate
        self._entries: list[_Entry] = []
        for tenant in tenants:
            weight, time, heads = tenant.weight, tenant.virtual_time, tenant.heads
            if not weight > 0:
                raise ValueError(f"the weight of tenant {tenant.tenant_id!r} is {weight}; it must be above 0")
            if heads:
                left = [heads[0]] if len(heads) == 1 else sorted(heads, key=_in_order, reverse=True)
                start = time if time > clock else clock
                self._entries.append((start, time, left[-1].order_at, tenant.tenant_id, weight, left))
        heapify(self._entries)

    def take(self, count: int, fits: Callable[[Head], bool] | None = None) -> list[tuple[str, Head]]:
        """Take up to `count` tasks in fair order, only those that fit; returns (tenant, task) pairs."""
        entries = self._entries
        taken: list[tuple[str, Head]] = []
        passed: list[_Entry] = []
        while len(taken) < count and entries:
            start, _, _, tenant_id, weight, left = entries[0]
            head = self._next(tenant_id, left, fits)
            if head is None:
                entry = heappop(entries)
                if left:
                    passed.append(entry)
                continue
            cost = head.cost if head.cost > MINIMUM_COST else MINIMUM_COST
            finish = start + cost / weight
            if start > self.clock:
                self.clock = start
            self.virtual_times[tenant_id] = finish
            taken.append((tenant_id, head))
            if left:
                heapreplace(entries, (finish, finish, left[-1].order_at, tenant_id, weight, left))
            else:
                heappop(entries)
        for entry in passed:
            heappush(entries, entry)
        return taken

    def _next(self, tenant_id: str, left: list[Head], fits: Callable[[Head], bool] | None) -> Head | None:
        """Take a tenant's first task that may go; drop those that the gate stops, pass over those that do not fit."""
        gate = self._gate
        if gate is None and fits is None:
            return left.pop()
        for position in range(len(left) - 1, -1, -1):
            head = left[position]
            if gate is not None and gate.stops(tenant_id, head):
                del left[position]
            elif fits is None or fits(head):
                del left[position]
                if gate is not None:
                    gate.pass_through(tenant_id, head)
                return head
        return None

    def waiting(self) -> bool:
        """Say whether any task is left that the gate does not stop."""
        entries = self._entries
        while entries:
            tenant_id, left = entries[0][3], entries[0][5]
            while self._gate is not None and left and self._gate.stops(tenant_id, left[-1]):
                left.pop()
            if left:
                return True
            heappop(entries)
        return False

    def left(self) -> tuple[int, int, float | None]:
        """Count what is left: tenants whose turn is next, all tasks, and the start of the next turn."""
        if not self._entries:
            return 0, 0, None
        first = self._entries[0][0]
        following = sum([entry[0] <= first for entry in self._entries])
        return following, sum([len(entry[5]) for entry in self._entries]), first
