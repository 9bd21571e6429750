"""People who decide approvals: the one that is due first goes first, as the list of approvals shows them."""

from heapq import heappop, heappush
from math import inf
from random import Random

from app.domain.simulation.load import Reviewers, drawn
from app.domain.simulation.tasks import Task


class Reviews:
    """The open approvals and the reviewers."""

    def __init__(self, reviewers: Reviewers) -> None:
        self.reviewers = reviewers
        self.count = reviewers.count
        self.busy = 0
        self._open: list[tuple[float, str, float, Task]] = []

    def ask(self, task: Task, now: float, within_seconds: float | None) -> None:
        """Open an approval; without a target of its class it is due last."""
        heappush(self._open, (now + (inf if within_seconds is None else within_seconds), task.task_id, now, task))

    def take(self) -> tuple[Task, float] | None:
        """Let a free reviewer take the next: the task, and when it was asked."""
        if self.busy >= self.count or not self._open:
            return None
        _, _, asked_at, task = heappop(self._open)
        self.busy += 1
        return task, asked_at

    def seconds(self, draw: Random) -> float:
        """Draw how long a decision takes."""
        return drawn(self.reviewers.takes_seconds, self.reviewers.spread, draw)
