"""What a handler raises to say outright what its failure means; everything else is classified by `failure`.

`Yielded` and its kinds are not failures: they carry a handler out of its frame because its attempt ends here as
expected. They are no `Exception`s, so that a handler's own `except Exception` does not swallow them.
"""


class Retry(Exception):
    """Try this task again, after `after_seconds` where given, else by the type's backoff; it spends an attempt."""

    def __init__(self, after_seconds: float | None = None, message: str = "") -> None:
        super().__init__(message)
        self.after_seconds = after_seconds
        self.message = message

    def __reduce__(self) -> tuple[type["Retry"], tuple[float | None, str]]:
        return type(self), (self.after_seconds, self.message)


class DeadLetter(Exception):
    """Give this task up now: no retry can help. `error_type` is a short name to group by, such as `invalid_payload`."""

    def __init__(self, error_type: str, message: str = "") -> None:
        super().__init__(message)
        self.error_type = error_type
        self.message = message

    def __reduce__(self) -> tuple[type["DeadLetter"], tuple[str, str]]:
        return type(self), (self.error_type, self.message)


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


class OwnershipLost(Yielded):
    """This attempt no longer owns its task: whatever it would write is somebody else's to write."""
