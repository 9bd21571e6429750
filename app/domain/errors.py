"""What a handler raises to say outright what its failure means; everything else is classified by `failure`."""


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
