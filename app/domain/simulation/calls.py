"""Dependencies while a load runs: their health, their breakers, and who waits for one of their call slots.

A task holds one call of each of its dependencies while it runs. Where the class's own part and the shared one are full
it waits for a call on its seat, and the release plan is told that calls wait. Rates per minute are not simulated.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from math import inf

from app.domain import breaker
from app.domain.breaker import RAMP_STEPS, Breaker, Outcomes, Phase
from app.domain.dependencies import Dependency, DependencyGate, Part, Standing, gate_of
from app.domain.policy import Policy
from app.domain.simulation.load import Health, Work
from app.domain.simulation.tasks import State, Task


@dataclass(slots=True)
class Line:
    """One dependency as it is now."""

    dependency: Dependency
    breaker: Breaker = field(default_factory=Breaker)
    health: Health = Health.UP
    slower: float = 1.0
    in_flight: int = 0
    probes_released: int = 0
    probes_of: float = 0.0
    used: dict[str, int] = field(default_factory=dict)
    waiting: list[tuple[int, int, Task]] = field(default_factory=list)
    parts: dict[str, Part] = field(init=False)

    def __post_init__(self) -> None:
        self.parts = self.dependency.parts()

    def free_pool(self, name: str) -> str | None:
        """Name the part that a call of the class can take, its own first; None when it must wait."""
        for pool in self.dependency.pools_of(name):
            limit = self.parts[pool].concurrency
            if limit is None or self.used.get(pool, 0) < limit:
                return pool
        return None

    def gate(self, now: float) -> DependencyGate:
        """Say what a plan may release on it."""
        if self.breaker.until != self.probes_of:
            self.probes_of, self.probes_released = self.breaker.until, 0
        names = {pool for _, _, task in self.waiting for pool in self.dependency.pools_of(task.class_name)}
        standing = Standing(self.breaker, saturated=dict.fromkeys(names, inf))
        return gate_of(self.dependency, standing, now, in_flight=self.in_flight, probes_released=self.probes_released)


class Calls:
    """All dependencies that the load's types name."""

    def __init__(self, policy: Policy, work: Iterable[Work]) -> None:
        names = sorted({name for one in work for name in one.spec.depends_on})
        self.lines = {name: Line(policy.dependency(name)) for name in names}
        self._count = 0

    def gates(self, now: float) -> dict[str, DependencyGate]:
        """Give the dependencies as a plan meets them."""
        return {name: line.gate(now) for name, line in self.lines.items()}

    def released(self, task: Task, now: float) -> None:
        """Count a release; while the breaker is half-open it is a probe."""
        task.is_probe = False
        for name in task.work.spec.depends_on:
            line = self.lines[name]
            line.in_flight += 1
            if breaker.phase_at(line.breaker, now) is Phase.HALF_OPEN:
                line.probes_released += 1
                task.is_probe = True

    def departed(self, task: Task) -> None:
        """Count a task that is in flight no more."""
        for name in task.work.spec.depends_on:
            self.lines[name].in_flight -= 1

    def begin(self, task: Task) -> bool:
        """Take a call of each dependency; False when the task waits for one, on its seat."""
        pools = {name: self.lines[name].free_pool(task.class_name) for name in task.work.spec.depends_on}
        for name, pool in pools.items():
            if pool is None:
                self._count += 1
                self.lines[name].waiting.append((task.chosen.rank, self._count, task))
                return False
        for name, pool in pools.items():
            task.calls[name] = pool or ""
            self.lines[name].used[pool or ""] = self.lines[name].used.get(pool or "", 0) + 1
        return True

    def end(self, task: Task) -> list[Task]:
        """Give the calls back; returns those that waited for them and hold theirs now."""
        names = list(task.calls)
        for name, pool in task.calls.items():
            self.lines[name].used[pool] -= 1
        task.calls.clear()
        begun = []
        for name in names:
            line = self.lines[name]
            waiting, line.waiting = sorted(line.waiting, key=lambda one: one[:2]), []
            begun += [one for _, _, one in waiting if one.state is State.RUNNING and self.begin(one)]
        return begun

    def forget(self, task: Task) -> list[Task]:
        """Take a task out that lost its seat; returns those that hold calls because of it."""
        for line in self.lines.values():
            line.waiting = [one for one in line.waiting if one[2] is not task]
        return self.end(task)

    def slower(self, task: Task) -> float:
        """Say by which factor the task's run is longer because of what it calls."""
        slow = [self.lines[name] for name in task.work.spec.depends_on]
        return max((line.slower for line in slow if line.health is Health.SLOW), default=1.0)

    def is_down(self, task: Task) -> bool:
        """Say whether anything that the task calls is down."""
        return any(self.lines[name].health is Health.DOWN for name in task.work.spec.depends_on)

    def report(self, task: Task, now: float) -> list[float]:
        """Tell the breakers how the task's calls ended; returns when a plan should look at them again."""
        wakes: list[float] = []
        for name in task.work.spec.depends_on:
            line = self.lines[name]
            failed = line.health is Health.DOWN
            outcomes = _outcomes(failed, task.is_probe)
            before, policy = line.breaker, line.dependency.breaker
            line.breaker = state = breaker.report(policy, before, outcomes, now)
            if state.phase is Phase.OPEN:
                wakes += [state.until + step * policy.probe_after_seconds for step in range(4)]
            elif before.phase is not Phase.CLOSED:
                wakes += [now + step * policy.ramp_seconds / RAMP_STEPS for step in range(RAMP_STEPS + 1)]
        return wakes


def _outcomes(failed: bool, probe: bool) -> Outcomes:
    if probe:
        return Outcomes(probes_failed=int(failed), probes_succeeded=int(not failed), in_a_row=int(failed))
    return Outcomes(failed=int(failed), succeeded=int(not failed), in_a_row=int(failed))
