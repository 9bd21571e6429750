"""What a handler raises to say outright what its failure means; everything else is classified by `failure`.

`Yielded` and its kinds are not failures: they carry a handler out of its frame because its attempt ends here as
expected. They are no `Exception`s, so that a handler's own `except Exception` does not swallow them.
"""

from collections.abc import Iterator
from typing import Any


class Retry(Exception):
    """Try this task again, after `after_seconds` where given, else by the type's backoff; it spends an attempt.

    `error_type` is a short name to group by, such as `office_busy`.
    """

    def __init__(self, after_seconds: float | None = None, message: str = "", error_type: str = "retry") -> None:
        super().__init__(message)
        self.after_seconds = after_seconds
        self.message = message
        self.error_type = error_type

    def __reduce__(self) -> tuple[type["Retry"], tuple[float | None, str, str]]:
        return type(self), (self.after_seconds, self.message, self.error_type)


class DeadLetter(Exception):
    """Give this task up now: no retry can help. `error_type` is a short name to group by, such as `invalid_payload`."""

    def __init__(self, error_type: str, message: str = "") -> None:
        super().__init__(message)
        self.error_type = error_type
        self.message = message

    def __reduce__(self) -> tuple[type["DeadLetter"], tuple[str, str]]:
        return type(self), (self.error_type, self.message)


class NotSent(Exception):
    """Said by the call of an effect: nothing reached the outside system, so that the effect may be tried again.

    `raise NotSent("the ticket system is read-only") from error` lets the task fail as `error` does; without a cause it
    is tried again, after `after_seconds` where given.
    """

    def __init__(self, message: str = "", after_seconds: float | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.after_seconds = after_seconds

    def __reduce__(self) -> tuple[type["NotSent"], tuple[str, float | None]]:
        return type(self), (self.message, self.after_seconds)


class NotAccepted(NotSent):
    """Said by the call of an effect: the outside system answered, and did not accept it, so that it may be tried again.

    `raise NotAccepted("the ticket system refuses the title") from error` lets the task fail as `error` does; without a
    cause it is tried again, after `after_seconds` where given.
    """


class ToolError(NotAccepted):
    """Said by a tool of an agent: it did nothing; `message` is told to the model, which may try something else."""


class KnownFailure(Exception):
    """A failure that knows its own meaning: its name to group by, and whether trying again can help."""

    def __init__(
        self, error_type: str, message: str, *, retryable: bool, retry_after_seconds: float | None = None
    ) -> None:
        super().__init__(message)
        self.error_type = error_type
        self.message = message
        self.retryable = retryable
        self.retry_after_seconds = retry_after_seconds


class Yielded(BaseException):
    """The handler gives its worker back; its task goes on later, from the top, and no attempt is spent."""


class Snoozed(Yielded):
    """Come back after `after_seconds`; `why` is a short name such as `dependency_closed`, `detail` a sentence."""

    def __init__(self, after_seconds: float, why: str, detail: str = "") -> None:
        super().__init__(why)
        self.after_seconds = after_seconds
        self.why = why
        self.detail = detail

    def __reduce__(self) -> tuple[type["Snoozed"], tuple[float, str, str]]:
        return type(self), (self.after_seconds, self.why, self.detail)


class Suspended(Yielded):
    """Wait for a person: the task goes on when the approval `approval_id` is decided."""

    def __init__(self, approval_id: str) -> None:
        super().__init__(approval_id)
        self.approval_id = approval_id

    def __reduce__(self) -> tuple[type["Suspended"], tuple[str]]:
        return type(self), (self.approval_id,)


class Rejected(Yielded):
    """The task must not go on: it ends as `rejected`. `error_type` is a short name, `message` the reason for people."""

    def __init__(self, error_type: str, message: str = "") -> None:
        super().__init__(error_type)
        self.error_type = error_type
        self.message = message

    def __reduce__(self) -> tuple[type["Rejected"], tuple[str, str]]:
        return type(self), (self.error_type, self.message)


class OwnershipLost(Yielded):
    """This attempt no longer owns its task, or was told to end: whatever it would do is somebody else's to do."""


def yielded_in(error: BaseException) -> Yielded | None:
    """Find how a handler yielded, also where a task group has wrapped it; None for a failure.

    Lost ownership outranks all, then a rejection: the task cannot go on, whatever else it waits for. Beside a failure
    the others do not count: the attempt has failed.
    """
    if isinstance(error, Yielded):
        return error
    if not isinstance(error, BaseExceptionGroup):
        return None
    members = list(_members(error))
    found = [member for member in members if isinstance(member, Yielded)]
    lost = next((member for member in found if isinstance(member, OwnershipLost)), None)
    if lost is not None or len(found) < len(members):
        return lost
    for kind in (Rejected, Suspended):
        if (first := next((member for member in found if isinstance(member, kind)), None)) is not None:
            return first
    return max(found, key=lambda member: getattr(member, "after_seconds", 0.0))


def yielded_as_message(error: Yielded) -> list[Any]:
    """Spell how a handler yielded as JSON values: the name of the kind, then what it is made of."""
    return [type(error).__name__, *error.__reduce__()[1]]


def yielded_of_message(message: list[Any]) -> Yielded:
    """Make what `yielded_as_message` spelled. Raises ValueError for a kind that there is not."""
    name, *parts = message
    for kind in _kinds(Yielded):
        if kind.__name__ == name:
            return kind(*parts)
    raise ValueError("no such kind of yielding")


def _kinds(kind: type[Yielded]) -> Iterator[type[Yielded]]:
    yield kind
    for narrower in kind.__subclasses__():
        yield from _kinds(narrower)


def _members(group: BaseExceptionGroup[BaseException]) -> Iterator[BaseException]:
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from _members(error)
        else:
            yield error
