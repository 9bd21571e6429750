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


@dataclass(slots=True)
class _Line:
    """A tenant's tasks that are left in this plan, the first one last."""

    tenant: TenantHeads
    left: list[Head]

    def next(self, gate: Gate | None, fits: Callable[[Head], bool] | None) -> Head | None:
        """Take the first task that may go; drop those that the gate stops, pass over those that do not fit."""
        left, tenant_id = self.left, self.tenant.tenant_id
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


_Entry = tuple[float, float, datetime, str, _Line]


class Turns:
    """The tenants of one class in the order of their turn, while one plan is made."""

    def __init__(self, tenants: Sequence[TenantHeads], clock: float, gate: Gate | None = None) -> None:
        self.clock = clock
        self.virtual_times: dict[str, float] = {}
        self._gate = gate
        self._entries: list[_Entry] = []
        for tenant in tenants:
            if not tenant.weight > 0:
                raise ValueError(f"the weight of tenant {tenant.tenant_id!r} is {tenant.weight}; it must be above 0")
            if tenant.heads:
                left = _in_order(tenant.heads)
                start = max(tenant.virtual_time, clock)
                line = _Line(tenant, left)
                self._entries.append((start, tenant.virtual_time, left[-1].order_at, tenant.tenant_id, line))
        heapify(self._entries)

    def take(self, count: int, fits: Callable[[Head], bool] | None = None) -> list[tuple[str, Head]]:
        """Take up to `count` tasks in fair order, only those that fit; returns (tenant, task) pairs."""
        entries = self._entries
        taken: list[tuple[str, Head]] = []
        passed: list[_Entry] = []
        while len(taken) < count and entries:
            start, _, _, tenant_id, line = entries[0]
            head = line.next(self._gate, fits)
            if head is None:
                entry = heappop(entries)
                if line.left:
                    passed.append(entry)
                continue
            finish = start + max(head.cost, MINIMUM_COST) / line.tenant.weight
            self.clock = max(self.clock, start)
            self.virtual_times[tenant_id] = finish
            taken.append((tenant_id, head))
            if line.left:
                heapreplace(entries, (finish, finish, line.left[-1].order_at, tenant_id, line))
            else:
                heappop(entries)
        for entry in passed:
            heappush(entries, entry)
        return taken

    def waiting(self) -> bool:
        """Say whether any task is left that the gate does not stop."""
        entries = self._entries
        while entries:
            line = entries[0][-1]
            while self._gate is not None and line.left and self._gate.stops(line.tenant.tenant_id, line.left[-1]):
                line.left.pop()
            if line.left:
                return True
            heappop(entries)
        return False

    def left(self) -> tuple[int, int, float | None]:
        """Count what is left: tenants whose turn is next, all tasks, and the start of the next turn."""
        if not self._entries:
            return 0, 0, None
        first = self._entries[0][0]
        following = sum(1 for entry in self._entries if entry[0] <= first)
        return following, sum(len(entry[-1].left) for entry in self._entries), first


def _in_order(heads: Sequence[Head]) -> list[Head]:
    if len(heads) == 1:
        return [heads[0]]
    return sorted(heads, key=_order, reverse=True)


def _order(head: Head) -> tuple[datetime, str]:
    return head.order_at, head.task_id
