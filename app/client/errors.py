"""What can go wrong between a program and the service, as one tree. No text holds a key, a payload or credentials.

DespachoError
├── WrongConfiguration          the address, the key or the profile cannot be used
├── Unsendable                  an argument cannot be sent (a ValueError too)
├── Unreachable                 no answer came: nothing listens, the time was over, the connection was lost, TLS
├── UnexpectedAnswer            something answered, and not as Despacho does
├── ApiError                    the API refused, with a problem by RFC 9457
├── StillRunning                the wait was over before the task
├── ResultWithheld              the key may not see results
└── TaskFailed                  the task ended, and not as `done`
    └── TaskCancelled, TaskExpired, TaskSuperseded, TaskRejected
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import msgspec

if TYPE_CHECKING:
    from app.client.nouns.task import Task


Why = Literal["refused", "timeout", "lost", "tls", "proxy", "address"]
"""Why no answer came: nobody listens, the time was over, the connection broke, TLS, a proxy, the address itself."""


class DespachoError(Exception):
    """Everything that this package raises, beside TypeError for what is no JSON and OSError for files."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Survive a process boundary, with every field: constructors differ."""
        return _rebuilt, (type(self), self.args, self.__dict__)


def _rebuilt(kind: type[DespachoError], args: tuple[Any, ...], fields: dict[str, Any]) -> DespachoError:
    error = kind.__new__(kind, *args)
    error.__dict__.update(fields)
    return error


class WrongConfiguration(DespachoError):
    """The address, the key or the profile cannot be used; the text says what would be right."""


class Unsendable(DespachoError, ValueError):
    """An argument cannot be sent; the text says what would be right, and never shows it."""


class Unreachable(DespachoError):
    """No answer came from `url`. `nothing_sent` tells that the service cannot have acted."""

    def __init__(self, text: str, *, url: str, why: Why, nothing_sent: bool) -> None:
        super().__init__(text)
        self.url = url
        self.why = why
        self.nothing_sent = nothing_sent


class UnexpectedAnswer(DespachoError):
    """Something answered with `status`, and not as Despacho does: a proxy, another service, another release."""

    def __init__(self, text: str, *, status: int) -> None:
        super().__init__(text)
        self.status = status


class FieldProblem(msgspec.Struct, frozen=True):
    """One reason why a request does not validate: a JSON pointer into the body, or a parameter or header by name."""

    detail: str = ""
    pointer: str | None = None
    parameter: str | None = None
    header: str | None = None

    @property
    def where(self) -> str:
        """Name what it is about."""
        return self.pointer or self.parameter or self.header or "#"


class Problem(msgspec.Struct, frozen=True):
    """A problem as the API tells it (RFC 9457); `code` is stable."""

    title: str = "refused"
    status: int = 0
    detail: str | None = None
    code: str = "unknown"
    type: str | None = None
    instance: str | None = None
    retryable: bool | None = None
    task_id: str | None = None
    errors: Sequence[FieldProblem] = ()

    def __str__(self) -> str:
        """Tell it to a person: title and detail, then a line for each field."""
        lines = [self.title if self.detail in (None, self.title) else f"{self.title}: {self.detail}"]
        return "\n".join(lines + [f"  {error.where}: {error.detail}" for error in self.errors])


class ApiError(DespachoError):
    """The API refused. `code` is stable and meant for programs; `retryable` is the API's own word."""

    def __init__(self, problem: Problem, *, status: int, retry_after_seconds: float | None = None) -> None:
        super().__init__(str(problem))
        self.problem = problem
        self.status = status
        self.retry_after_seconds = retry_after_seconds

    @property
    def code(self) -> str:
        """Name the problem, such as `not_found` or `open_tasks_quota`."""
        return self.problem.code

    @property
    def detail(self) -> str | None:
        """Say what is the matter with this request."""
        return self.problem.detail

    @property
    def retryable(self) -> bool:
        """Say whether the same request may succeed later without being changed."""
        return bool(self.problem.retryable)

    @property
    def errors(self) -> Sequence[FieldProblem]:
        """List what does not validate."""
        return self.problem.errors


class StillRunning(DespachoError):
    """The wait was over before the work; it goes on. `tasks` are the unfinished ones as they were last seen."""

    def __init__(self, tasks: "Sequence[Task]", text: str) -> None:
        super().__init__(text)
        self.tasks = tasks


class ResultWithheld(DespachoError):
    """The task is done and has a result, which this key may not see: it lacks the scope `payloads:read`."""


class TaskFailed(DespachoError):
    """The task ended, and not as `done`; by itself: dead-lettered. `error` says why, where anything is known."""

    def __init__(self, task: "Task") -> None:
        told = f": {task.error.type}: {task.error.message}" if task.error is not None else ""
        super().__init__(f"{task.task_id} is {task.status}{told}")
        self.task = task
        self.status = task.status
        self.error = task.error


class TaskCancelled(TaskFailed):
    """Somebody cancelled the task."""


class TaskExpired(TaskFailed):
    """The task was useless by the time it could have started (`valid_until`)."""


class TaskSuperseded(TaskFailed):
    """Its source changed, or a newer task replaced it."""


class TaskRejected(TaskFailed):
    """An approval was denied, or it was no longer authorised."""


ENDINGS: Mapping[str, type[TaskFailed]] = {
    "dead_lettered": TaskFailed,
    "cancelled": TaskCancelled,
    "expired": TaskExpired,
    "superseded": TaskSuperseded,
    "rejected": TaskRejected,
}
