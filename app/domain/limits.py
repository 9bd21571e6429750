"""What stops a task although its class has a seat and its tenant has the turn.

Pauses, dependencies that are closed or have calls waiting, budgets, and running caps, in this order.
"""

from collections.abc import Mapping

from app.domain.budgets import BudgetGate, Purse
from app.domain.dependencies import DependencyGate
from app.domain.fairness import Head
from app.domain.policy import LimitKind, Policy


class Limits:
    """How many more tasks each limit lets through in this plan, and what is paused.

    `in_flight` counts what is released or running by the limit's spelling (`type:x`); `paused` holds such spellings.
    `dependencies` are by name; those that stop nothing may be left out.
    """

    def __init__(
        self,
        policy: Policy,
        in_flight: Mapping[str, int],
        paused: frozenset[str],
        dependencies: Mapping[str, DependencyGate] | None = None,
        purse: Purse | None = None,
    ) -> None:
        self.left: dict[LimitKind, dict[str, int]] = {kind: {} for kind in LimitKind}
        for limit in policy.limits:
            self.left[limit.kind][limit.name] = limit.concurrency - in_flight.get(limit.on, 0)
        self.paused = paused
        self.dependencies = {name: one for name, one in (dependencies or {}).items() if not one.lets_all}
        self.dependencies_left = {name: one.left for name, one in self.dependencies.items()}
        self.budgets = BudgetGate(purse) if purse is not None and not purse.is_empty else None
        self.idle = not policy.limits and not paused and not self.dependencies and self.budgets is None

    def full(self) -> tuple[str, ...]:
        """List the limits that let nothing more through."""
        return tuple(f"{kind}:{name}" for kind, names in self.left.items() for name, left in names.items() if left <= 0)


class ClassGate:
    """The limits as one class meets them; `stopped` counts its tasks by what stopped them.

    That is `paused`, `dependency_closed`, `dependency_limit`, `budget` or `limit`.
    """

    def __init__(self, limits: Limits, priority_class: str = "") -> None:
        self._limits = limits
        self._class = priority_class
        self._paused = limits.paused
        self._types = limits.left[LimitKind.TYPE]
        self._tenants = limits.left[LimitKind.TENANT]
        self._groups = limits.left[LimitKind.GROUP]
        self._dependencies = limits.left[LimitKind.DEPENDENCY]
        self.stopped: dict[str, int] = {}

    def stops(self, tenant_id: str, head: Head) -> bool:
        """Say whether something stops the task, and count what does."""
        why = self._why(tenant_id, head)
        if why is None:
            return False
        self.stopped[why] = self.stopped.get(why, 0) + 1
        return True

    def _why(self, tenant_id: str, head: Head) -> str | None:
        if self._paused and self._is_paused(tenant_id, head):
            return "paused"
        if self._limits.dependencies and (why := self._of_dependencies(head)) is not None:
            return why
        if self._limits.budgets is not None and self._limits.budgets.stops(tenant_id, head):
            return "budget"
        return "limit" if self._is_limited(tenant_id, head) else None

    def _of_dependencies(self, head: Head) -> str | None:
        gates, left = self._limits.dependencies, self._limits.dependencies_left
        for name in head.depends_on:
            if name in gates and (more := left[name]) is not None and more <= 0:
                return "dependency_closed"
        if any(name in gates and gates[name].is_saturated(self._class) for name in head.depends_on):
            return "dependency_limit"
        return None

    def pass_through(self, tenant_id: str, head: Head) -> None:
        """Take the task off every limit that covers it."""
        for left, name in ((self._types, head.task_type), (self._tenants, tenant_id), (self._groups, head.group)):
            if name in left:
                left[name] -= 1
        for dependency in head.depends_on:
            if dependency in self._dependencies:
                self._dependencies[dependency] -= 1
            if (more := self._limits.dependencies_left.get(dependency)) is not None:
                self._limits.dependencies_left[dependency] = more - 1
        if self._limits.budgets is not None:
            self._limits.budgets.pass_through(tenant_id, head)

    def _is_limited(self, tenant_id: str, head: Head) -> bool:
        return (
            self._types.get(head.task_type, 1) <= 0
            or self._tenants.get(tenant_id, 1) <= 0
            or self._groups.get(head.group, 1) <= 0
            or any(self._dependencies.get(dependency, 1) <= 0 for dependency in head.depends_on)
        )

    def _is_paused(self, tenant_id: str, head: Head) -> bool:
        paused = self._paused
        return (
            f"type:{head.task_type}" in paused
            or f"tenant:{tenant_id}" in paused
            or f"group:{head.group}" in paused
            or any(f"dependency:{dependency}" in paused for dependency in head.depends_on)
        )
