"""What waits in one class: lanes by tenant, type and group, each in order, and the tenants' virtual times."""

from bisect import insort
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from heapq import nsmallest

from app.domain.fairness import TenantHeads
from app.domain.simulation.tasks import State, Task

MOST_TENANTS = 64
_COMPACT_AFTER = 1_000
_Entry = tuple[datetime, str, int, Task]


@dataclass(slots=True)
class Lane:
    """Tasks in order; what left is passed over, and taken out when there is much of it."""

    entries: list[_Entry] = field(default_factory=list)
    first: int = 0
    alive: int = 0

    def add(self, task: Task) -> int:
        """Put a task in its place, which most have at the end; returns which it is at most, from 1."""
        entry = (task.head.order_at, task.task_id, task.stamp, task)
        if not self.entries or self.entries[-1][:3] <= entry[:3]:
            self.entries.append(entry)
            self.alive += 1
            return self.alive
        insort(self.entries, entry, lo=self.first, key=lambda one: one[:3])
        self.alive += 1
        return 1

    def tasks(self) -> Iterator[Task]:
        """Go through what waits, in order."""
        at = self.first
        while at < len(self.entries):
            _, _, stamp, task = self.entries[at]
            at += 1
            if task.stamp == stamp and task.state is State.WAITING:
                yield task
            elif at == self.first + 1:
                self.first = at
        if self.first > _COMPACT_AFTER and self.first * 2 > len(self.entries):
            del self.entries[: self.first]
            self.first = 0

    def heads(self, most: int) -> list[Task]:
        """Take a look at the first `most`."""
        found = []
        for task in self.tasks():
            found.append(task)
            if len(found) >= most:
                break
        return found


_Key = tuple[str, str]


@dataclass(slots=True)
class Line:
    """The waiting tasks of one class. `virtual_times` outlast a tenant's tasks: coming back gives no credit."""

    lanes: dict[str, dict[_Key, Lane]] = field(default_factory=dict)
    virtual_times: dict[str, float] = field(default_factory=dict)
    clock: float = 0.0
    count: int = 0

    def add(self, task: Task) -> int:
        """Let a task wait; returns its place in its lane."""
        of_tenant = self.lanes.setdefault(task.tenant.name, {})
        self.count += 1
        return of_tenant.setdefault((task.work.spec.name, task.group), Lane()).add(task)

    def left(self, task: Task) -> None:
        """Count a task that waits no more; call it before or after its state changes."""
        name, key = task.tenant.name, (task.work.spec.name, task.group)
        lane = self.lanes[name][key]
        lane.alive -= 1
        self.count -= 1
        if not lane.alive:
            del self.lanes[name][key]
            if not self.lanes[name]:
                del self.lanes[name]

    def start_of(self, tenant: str) -> float:
        """Say when the tenant's turn is, in virtual time."""
        return max(self.virtual_times.get(tenant, 0.0), self.clock)

    def heads(self, most: int) -> list[TenantHeads]:
        """Give the tenants whose turn is first, and the first `most` tasks of each of their lanes."""
        names = list(self.lanes)
        if len(names) > MOST_TENANTS:
            names = nsmallest(MOST_TENANTS, names, key=lambda name: (self.start_of(name), name))
        found = []
        for name in names:
            tasks = [task for lane in self.lanes[name].values() for task in lane.heads(most)]
            if tasks:
                weight = tasks[0].tenant.weight
                found.append(TenantHeads(name, self.start_of(name), weight, [task.head for task in tasks]))
        return found

    def first_tasks(self) -> list[Task]:
        """Give the first task of every lane."""
        return [task for lanes in self.lanes.values() for lane in lanes.values() for task in lane.heads(1)]

    def oldest(self) -> float | None:
        """Say when the task that waits longest became ready."""
        times = [task.ready_at for of in self.lanes.values() for lane in of.values() for task in lane.tasks()]
        return min(times, default=None)
