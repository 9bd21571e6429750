"""A task that was submitted, held by the program that waits for it."""

from typing import Generic

from app.client.bound import Bound, S, call
from app.client.errors import ENDINGS, ResultWithheld, StillRunning, TaskFailed
from app.client.nouns.task import Task
from app.client.nouns.waiting import read_task, until_final
from app.client.request import Flow, Json, Request, given, part, post
from app.client.shells import Awaiting, Blocking


class Handle(Bound[S], Generic[S]):
    """A task and the client that knows it; `task` is the task as it was last seen."""

    def __init__(self, shell: S, task: Task) -> None:
        super().__init__(shell)
        self.task = task

    @property
    def task_id(self) -> str:
        """Return the id of the task."""
        return self.task.task_id

    @property
    def status(self) -> str:
        """Return the status that was last seen."""
        return self.task.status

    @call
    def result(self, wait: float | None = 60.0) -> Flow[Json]:
        """Wait for the end and return the result; `wait=None` waits as long as it takes.

        Raises StillRunning when the wait is over first, TaskFailed or one of its kinds when the task ended otherwise
        than as `done`, ResultWithheld when the key may not see results.
        """
        if not self.task.is_final or (self.task.is_done and self.task.result is None):
            yield from self._until_final(wait)
        return result_of(self.task)

    @call
    def wait(self, wait: float | None = 60.0) -> Flow[Task]:
        """Wait for the end and return the task, however it ended. Raises StillRunning."""
        yield from self._until_final(wait)
        return self.task

    @call
    def refresh(self) -> Flow[Task]:
        """Read the task again."""
        self.task = yield read_task(self.task_id)
        return self.task

    @call
    def cancel(self, reason: str | None = None) -> Flow[Task]:
        """Ask for the task's end; a running one is asked to stop."""
        self.task = yield cancellation(self.task_id, reason)
        return self.task

    def _until_final(self, wait: float | None) -> Flow[None]:
        try:
            self.task = yield from until_final(self.task_id, wait)
        except StillRunning as running:
            (self.task,) = running.tasks
            raise

    def __repr__(self) -> str:
        """Name the task and its status, and nothing of its payload."""
        return f"<{type(self).__name__} {self.task_id} {self.status}>"


TaskHandle = Handle[Blocking]
"""What `Client.submit` returns."""
AsyncTaskHandle = Handle[Awaiting]
"""What `AsyncClient.submit` returns."""


def result_of(task: Task) -> Json:
    """Return the result of a task that has ended. Raises TaskFailed or ResultWithheld."""
    if not task.is_done:
        raise ENDINGS.get(task.status, TaskFailed)(task)
    if "result" in task.withheld:
        raise ResultWithheld(f"{task.task_id} is done, and this key may not see its result (scope payloads:read)")
    return task.result


def cancellation(task_id: str, reason: str | None) -> Request[Task]:
    """Ask for the end of a task; asking twice is asking once."""
    return post(f"/v1/tasks/{part(task_id)}/cancel", Task, given(reason=reason) or None, repeatable=True)
