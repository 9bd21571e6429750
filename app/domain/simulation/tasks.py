"""A simulated task: what it carries from its arrival to its end."""

from dataclasses import dataclass, field
from enum import StrEnum

from app.domain.fairness import Head
from app.domain.policy import PriorityClass
from app.domain.simulation.load import Tenant, Work


class State(StrEnum):
    """Where a simulated task is. `released` has a seat by the plan and waits for a worker that serves its class."""

    DELAYED = "delayed"
    WAITING = "waiting"
    RELEASED = "released"
    RUNNING = "running"
    LOST = "lost"
    AWAITING_APPROVAL = "awaiting_approval"
    ENDED = "ended"


@dataclass(slots=True, eq=False)
class Task:
    """One task. Times are seconds of virtual time; `stamp` changes with its state, so that older events are stale."""

    task_id: str
    work: Work
    tenant: Tenant
    group: str
    submitted: float
    ready_at: float
    due: float | None
    valid_until: float | None
    closes_at: float | None
    run_seconds: float
    asks_approval: bool
    chosen: PriorityClass
    head: Head
    max_attempts: int
    state: State = State.DELAYED
    stamp: int = 0
    attempt: int = 1
    crashes: int = 0
    first_start: float | None = None
    pool: str = ""
    run_began: float = 0.0
    run_ends: float = 0.0
    done_seconds: float = 0.0
    is_probe: bool = False
    calls: dict[str, str] = field(default_factory=dict)
    preempted_by: str | None = None

    @property
    def class_name(self) -> str:
        """Name the class that it is in now."""
        return self.chosen.name

    def move(self, state: State) -> None:
        """Change the state; what was planned for the one before is void."""
        self.state = state
        self.stamp += 1
