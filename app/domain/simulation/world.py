"""The world of a simulation: virtual time, what is known in it, and the ways that a task goes through it."""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable
from datetime import datetime, timedelta
from heapq import heappush
from itertools import count
from random import Random

from app.domain.policy import Policy, PriorityClass
from app.domain.simulation.calls import Calls
from app.domain.simulation.floor import Floor
from app.domain.simulation.hooks import Hooks
from app.domain.simulation.lines import Line
from app.domain.simulation.load import Load
from app.domain.simulation.record import Record
from app.domain.simulation.tasks import State, Task

STEPS = 120


class World(ABC):
    """State and time. What happens in it is up to `engine`, `arrivals` and `interventions`."""

    def __init__(self, policy: Policy, load: Load, draw: Random, *, hours: float | None = None, hooks: Hooks) -> None:
        self.policy, self.load, self.draw, self.hooks = policy, load, draw, hooks
        self.hours = load.hours if hours is None else hours
        self.end = self.hours * 3600.0
        self.now = 0.0
        self.moments = 0
        self.floor = Floor(load.pools, policy.by_name)
        self.calls = Calls(policy, load.work.values())
        self.record = Record(policy)
        self.lines = {name: Line() for name in policy.by_name}
        self.states: dict[str, Counter[State]] = {name: Counter() for name in policy.by_name}
        self.in_flight: Counter[str] = Counter()
        self.by_limit: Counter[str] = Counter()
        self.paused: set[str] = set()
        self.passed_over: dict[str, int] = {}
        self.live: dict[str, Task] = {}
        self.victims: dict[str, Task] = {}
        self.events: list[tuple[float, int, Callable[..., None], tuple[object, ...]]] = []
        self.order = count()
        self.is_dirty = False
        self.looked = 1
        self.step = self.end / STEPS
        self.series: dict[State, dict[str, list[int]]] = {
            state: {name: [] for name in policy.by_name} for state in (State.WAITING, State.RUNNING)
        }

    @abstractmethod
    def leave(self, task: Task) -> None:
        """Give the task's seat and calls back, and let whoever waited for them go on."""

    @abstractmethod
    def watch(self, task: Task) -> None:
        """Take note of a task that begins to wait."""

    def at(self, when: float, what: Callable[..., None], *given: object) -> None:
        """Let something happen at a time, at the earliest now."""
        if when <= self.end:
            heappush(self.events, (max(when, self.now), next(self.order), what, given))

    def wake(self) -> None:
        """Let the plan be made again."""
        self.is_dirty = True

    def moment(self, seconds: float | None = None) -> datetime:
        """Give virtual time as the decisions want it."""
        return self.load.start_at + timedelta(seconds=self.now if seconds is None else seconds)

    def move(self, task: Task, state: State) -> None:
        """Change where a task is, and count it."""
        states = self.states[task.class_name]
        if task.state is State.WAITING:
            line = self.lines[task.class_name]
            line.left(task)
            if task.tenant.name not in line.lanes:
                self.record.classes[task.class_name].shares.went(task.tenant.name, task.tenant.weight)
        if task.state is not State.ENDED:
            states[task.state] -= 1
        task.move(state)
        if state is not State.ENDED:
            states[state] += 1

    def reclass(self, task: Task, chosen: PriorityClass) -> None:
        """Let a waiting task wait in another class."""
        self.move(task, State.ENDED)
        if not self.lines[task.class_name].count:
            self.record.classes[task.class_name].fed(self.now, 0)
        task.chosen = chosen
        self.move(task, State.DELAYED)
        self._queue(task, task.stamp)

    def enter(self, task: Task) -> None:
        """Take a new task in: it waits, or is delayed until it may start."""
        if task.valid_until is not None:
            self.at(task.valid_until, self._expire, task)
        self.delay(task, task.ready_at - self.now)

    def delay(self, task: Task, seconds: float) -> None:
        """Let a task wait for its time, and then for its turn."""
        self.move(task, State.DELAYED)
        if seconds <= 0:
            self._queue(task, task.stamp)
        else:
            self.at(self.now + seconds, self._queue, task, task.stamp)

    def _queue(self, task: Task, stamp: int) -> None:
        if task.stamp != stamp or self._is_over(task):
            return
        of, line = self.record.classes[task.class_name], self.lines[task.class_name]
        of.shares.came(task.tenant.name, task.tenant.weight)
        self.move(task, State.WAITING)
        place = line.add(task)
        if of.hungry_since is None:
            of.hungry_since = self.now
        if place <= self.looked:  # what stands further back was not in reach of the last plan, nor of this one
            self.wake()
        self.watch(task)

    def _is_over(self, task: Task) -> bool:
        if task.valid_until is not None and self.now >= task.valid_until:
            self._expired(task)
            return True
        return False

    def _expire(self, task: Task) -> None:
        if task.state in (State.WAITING, State.DELAYED, State.RELEASED):
            self._expired(task)

    def _expired(self, task: Task) -> None:
        was_released = task.state is State.RELEASED
        self.end_task(task, "expired")
        if was_released:
            self.depart(task)

    def end_task(self, task: Task, how: str) -> None:
        """End a task for good."""
        self.live.pop(task.task_id, None)
        self.move(task, State.ENDED)
        self.record.count(task, how)
        of = self.record.classes[task.class_name]
        if how == "expired" and task.first_start is None:
            of.too_late += 1
        if not self.lines[task.class_name].count:
            of.fed(self.now, 0)

    def count_flight(self, task: Task, step: int) -> None:
        """Count a task among those in flight, or take it off."""
        self.in_flight[task.class_name] += step
        spec = task.work.spec
        names = [f"type:{spec.name}", f"tenant:{task.tenant.name}", *(f"dependency:{one}" for one in spec.depends_on)]
        for name in [*names, f"group:{task.group}"] if task.group else names:
            self.by_limit[name] += step

    def depart(self, task: Task) -> None:
        """Count a task that is in flight no more."""
        self.count_flight(task, -1)
        self.record.gave(task)
        self.calls.departed(task)
        self.wake()
