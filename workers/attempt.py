"""The attempt as the facilities know it: whose task, which fence, which stay. One value that is handed down."""

from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from app.domain.task_types import TaskTypeSpec


# A struct, because every run makes one: a frozen dataclass of so many fields takes ten times as long.
class Attempt(msgspec.Struct, frozen=True, gc=False):
    """One claimed run. `dispatch` numbers the stays in the queue: on the first, nothing of an earlier run can exist.

    `number` is the attempt as it is counted, from 1; `fence` is what every write of this run is guarded by.
    """

    task_id: str
    tenant_id: str
    spec: "TaskTypeSpec"
    number: int
    fence: int
    dispatch: int
    priority_class: str
    worker_id: str
    timeout_seconds: float
    traceparent: str | None = None
    tracestate: str | None = None

    @property
    def task_type(self) -> str:
        """The name of the task's type."""
        return self.spec.name

    def as_message(self) -> dict[str, Any]:
        """Spell all but the spec as JSON values: a child process knows the spec by the type's name."""
        return {
            "task_id": self.task_id,
            "tenant_id": self.tenant_id,
            "number": self.number,
            "fence": self.fence,
            "dispatch": self.dispatch,
            "priority_class": self.priority_class,
            "worker_id": self.worker_id,
            "timeout_seconds": self.timeout_seconds,
            "traceparent": self.traceparent,
            "tracestate": self.tracestate,
        }
