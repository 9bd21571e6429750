"""What the dependencies let through: the leader's view of them from round to round."""

from collections import Counter
from collections.abc import Iterable, Mapping

from app.domain.breaker import Phase, phase_at
from app.domain.dependencies import DependencyGate, gate_of
from app.domain.policy import Policy
from app.store.looks import Look
from app.task_modules import TaskType


class Gates:
    """Dependencies that stop or bound releases now, by name, and how many probes went since each became half-open."""

    def __init__(self) -> None:
        self.now: dict[str, DependencyGate] = {}
        self._opening: dict[str, float] = {}
        self._probes: Counter[str] = Counter()

    def look(self, policy: Policy, seen: Look, in_flight: Mapping[str, int]) -> None:
        """Take in how they stand; `in_flight` counts tasks by `dependency:name`."""
        self.now = {}
        for name, standing in seen.dependencies.items():
            until = standing.breaker.until
            if phase_at(standing.breaker, seen.now) is Phase.HALF_OPEN and self._opening.get(name) != until:
                self._opening[name] = until
                self._probes[name] = 0
            gate = gate_of(
                policy.dependency(name),
                standing,
                seen.now,
                in_flight=in_flight.get(f"dependency:{name}", 0),
                probes_released=self._probes[name],
            )
            if not gate.lets_all:
                self.now[name] = gate

    def released(self, types: Iterable[str], registry: Mapping[str, TaskType]) -> None:
        """Count what was released on dependencies that are half-open."""
        if not self.now:
            return
        for task_type in types:
            known = registry.get(task_type)
            for name in known.spec.depends_on if known is not None else ():
                self._probes[name] += 1

    def stopped(self, policy: Policy, registry: Mapping[str, TaskType], paused: frozenset[str]) -> list[str]:
        """List, as `class:type`, what need not be looked at: every task of it would be stopped."""
        shut = {name for name, gate in self.now.items() if gate.left is not None and gate.left <= 0}
        shut |= {name.removeprefix("dependency:") for name in paused if name.startswith("dependency:")}
        if not shut and not self.now:
            return []
        found = []
        for name, known in registry.items():
            depends_on = known.spec.depends_on
            if not depends_on:
                continue
            if not shut.isdisjoint(depends_on):
                found += [f"{one.name}:{name}" for one in policy.classes]
                continue
            gates = [self.now[dependency] for dependency in depends_on if dependency in self.now]
            found += [f"{one.name}:{name}" for one in policy.classes if any(g.is_saturated(one.name) for g in gates)]
        return found
