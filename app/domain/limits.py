"""Running caps and pauses at release: what stops a task although its class has a seat and its tenant has the turn."""

from collections.abc import Mapping

from app.domain.fairness import Head
from app.domain.policy import LimitKind, Policy


class Limits:
    """How many more tasks each limit lets through in this plan, and what is paused.

    `in_flight` counts what is released or running by the limit's spelling (`type:x`); `paused` holds such spellings.
    """

    def __init__(self, policy: Policy, in_flight: Mapping[str, int], paused: frozenset[str]) -> None:
        self.left: dict[LimitKind, dict[str, int]] = {kind: {} for kind in LimitKind}
        for limit in policy.limits:
            self.left[limit.kind][limit.name] = limit.concurrency - in_flight.get(limit.on, 0)
        self.paused = paused
        self.idle = not policy.limits and not paused

    def full(self) -> tuple[str, ...]:
        """List the limits that let nothing more through."""
        return tuple(f"{kind}:{name}" for kind, names in self.left.items() for name, left in names.items() if left <= 0)


class ClassGate:
    """The limits as one class meets them; `stopped` counts its tasks by what stopped them (`limit` or `paused`)."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._paused = limits.paused
        self._types = limits.left[LimitKind.TYPE]
        self._tenants = limits.left[LimitKind.TENANT]
        self._groups = limits.left[LimitKind.GROUP]
        self._dependencies = limits.left[LimitKind.DEPENDENCY]
        self.stopped: dict[str, int] = {}

    def stops(self, tenant_id: str, head: Head) -> bool:
        """Say whether a limit or a pause stops the task, and count it."""
        if self._paused and self._is_paused(tenant_id, head):
            self.stopped["paused"] = self.stopped.get("paused", 0) + 1
            return True
        if self._is_limited(tenant_id, head):
            self.stopped["limit"] = self.stopped.get("limit", 0) + 1
            return True
        return False

    def pass_through(self, tenant_id: str, head: Head) -> None:
        """Take the task off every limit that covers it."""
        for left, name in ((self._types, head.task_type), (self._tenants, tenant_id), (self._groups, head.group)):
            if name in left:
                left[name] -= 1
        for dependency in head.depends_on:
            if dependency in self._dependencies:
                self._dependencies[dependency] -= 1

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
