"""What a service refuses, as a drawn tree whose leaves carry the facts of the refusal. Knows nothing of HTTP.

    ServiceError
    ├── NotFound            no such thing, or none that this caller may know of
    ├── Invalid             the request is well formed and does not validate; `errors` says where
    ├── Forbidden           the caller is known and may not do this
    ├── Conflict            the thing is not in a state that allows this
    │   └── InFlight        the same request is being worked on; ask again
    ├── QuotaExceeded       the tenant is over one of its limits
    ├── Shed                the service refuses the class for now
    └── Unavailable         something that is needed does not answer

`code` is stable snake_case and names the limit or rule; `detail` is for people and never repeats a submitted value.
Each border translates them in one table (`app/api/problem_types.py` for HTTP).
"""

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FieldError:
    """One reason why a request does not validate.

    `pointer` is a JSON Pointer fragment made of schema names: `#/input/url`. For a query parameter it is `?name`, for a
    header `:Name`.
    """

    pointer: str
    detail: str


class ServiceError(Exception):
    """A refusal with a stable `code`, a `detail` for people and the task it is about, where there is one."""

    def __init__(self, code: str, detail: str, *, task_id: str | None = None) -> None:
        super().__init__(f"{code}: {detail}")
        self.code = code
        self.detail = detail
        self.task_id = task_id


class NotFound(ServiceError):
    """There is no such thing, or it belongs to somebody else: the two must look the same."""

    def __init__(self, detail: str = "There is nothing here under this id.") -> None:
        super().__init__("not_found", detail)


class Invalid(ServiceError):
    """The request does not validate. `errors` are FieldErrors or (pointer, detail) pairs."""

    def __init__(
        self,
        errors: Iterable[FieldError | tuple[str, str]] = (),
        *,
        code: str = "invalid_payload",
        detail: str = "The request does not validate; `errors` says where.",
    ) -> None:
        super().__init__(code, detail)
        self.errors = tuple(e if isinstance(e, FieldError) else FieldError(*e) for e in errors)


class Forbidden(ServiceError):
    """The caller is known and may not do this."""

    def __init__(self, detail: str, *, code: str = "forbidden") -> None:
        super().__init__(code, detail)


class Conflict(ServiceError):
    """The thing is not in a state that allows this, and asking again changes nothing."""


class InFlight(Conflict):
    """The same request is still being worked on; ask again in `retry_after_seconds`."""

    def __init__(self, code: str, detail: str, *, retry_after_seconds: float = 1.0) -> None:
        super().__init__(code, detail)
        self.retry_after_seconds = retry_after_seconds


class QuotaExceeded(ServiceError):
    """The tenant is over the limit that `code` names; there is room again in about `retry_after_seconds`."""

    def __init__(self, code: str, detail: str, *, retry_after_seconds: float) -> None:
        super().__init__(code, detail)
        self.retry_after_seconds = retry_after_seconds


class Shed(ServiceError):
    """The service refuses this class of work for now; an honest estimate says when to come back."""

    def __init__(self, code: str, detail: str, *, retry_after_seconds: float) -> None:
        super().__init__(code, detail)
        self.retry_after_seconds = retry_after_seconds


class Unavailable(ServiceError):
    """Something that is needed does not answer; the request was not carried out, or can be repeated safely."""

    def __init__(self, code: str, detail: str, *, retry_after_seconds: float = 1.0) -> None:
        super().__init__(code, detail)
        self.retry_after_seconds = retry_after_seconds
