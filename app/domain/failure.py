"""What an exception means for the task: whether trying again can help, under which name it is counted, what is kept.

Total: whatever a handler raises, however broken, comes out as a `Failure` with short, clean, non-empty texts. Values
of the task's input are never in them: of a validation error only places and messages are kept.
"""

import errno
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from math import isfinite

from app.domain.clean_text import clean_message, clean_name
from app.domain.errors import DeadLetter, KnownFailure, NotAccepted, NotSent, Retry
from app.domain.retry_after import parse_retry_after

MAXIMUM_MEMBERS = 100
MAXIMUM_LISTED = 20
_RECOVERABLE_STATUS = {
    408: "timeout",
    425: "unavailable",
    429: "rate_limit",
    500: "http_500",
    502: "unavailable",
    503: "unavailable",
    504: "timeout",
}
_PERMISSION_STATUS = frozenset({401, 403})
_NETWORK_ERRNO = frozenset(
    {
        errno.ECONNRESET,
        errno.ECONNREFUSED,
        errno.ECONNABORTED,
        errno.EPIPE,
        errno.ENETDOWN,
        errno.ENETUNREACH,
        errno.ENETRESET,
        errno.EHOSTDOWN,
        errno.EHOSTUNREACH,
        errno.ENOTCONN,
        errno.EADDRNOTAVAIL,
        errno.ESHUTDOWN,
    }
)
# (package, class name) → (error type, retryable). The domain imports none of these packages: a class is known by the
# name that it or one of its bases has, together with the package that defines it.
_BY_NAME: Mapping[tuple[str, str], tuple[str, bool]] = {
    ("pydantic", "ValidationError"): ("invalid_payload", False),
    ("pydantic_core", "ValidationError"): ("invalid_payload", False),
    ("msgspec", "ValidationError"): ("invalid_payload", False),
    ("jsonschema", "ValidationError"): ("invalid_payload", False),
    ("httpx", "TimeoutException"): ("timeout", True),
    ("httpx", "TransportError"): ("connection", True),
    ("httpcore", "TimeoutException"): ("timeout", True),
    ("httpcore", "NetworkError"): ("connection", True),
    ("requests", "Timeout"): ("timeout", True),
    ("requests", "ConnectionError"): ("connection", True),
    ("urllib3", "TimeoutError"): ("timeout", True),
    ("urllib3", "HTTPError"): ("connection", True),
    ("aiohttp", "ServerTimeoutError"): ("timeout", True),
    ("aiohttp", "ClientConnectionError"): ("connection", True),
    ("aiormq", "AMQPConnectionError"): ("connection", True),
    ("socket", "gaierror"): ("connection", True),
    ("asyncpg", "PostgresConnectionError"): ("database_unavailable", True),
    ("asyncpg", "OperatorInterventionError"): ("database_unavailable", True),
    ("asyncpg", "InsufficientResourcesError"): ("database_unavailable", True),
    ("asyncpg", "ReadOnlySQLTransactionError"): ("database_unavailable", True),
    ("asyncpg", "TransactionRollbackError"): ("database_unavailable", True),
    ("asyncpg", "InterfaceError"): ("database_unavailable", True),
    ("asyncpg", "InvalidCachedStatementError"): ("database_unavailable", True),
    ("app", "DatabaseUnavailable"): ("database_unavailable", True),
    ("app", "LockTimeout"): ("database_unavailable", True),
    ("sqlalchemy", "OperationalError"): ("database_unavailable", True),
    ("sqlalchemy", "InterfaceError"): ("database_unavailable", True),
    ("sqlalchemy", "TimeoutError"): ("database_unavailable", True),
    ("psycopg", "OperationalError"): ("database_unavailable", True),
    ("psycopg2", "OperationalError"): ("database_unavailable", True),
    ("builtins", "TimeoutError"): ("timeout", True),
    ("concurrent", "TimeoutError"): ("timeout", True),
    ("builtins", "ConnectionError"): ("connection", True),
    ("builtins", "FileNotFoundError"): ("missing_input", False),
    ("builtins", "PermissionError"): ("permission", False),
    ("builtins", "UnicodeDecodeError"): ("corrupted_input", False),
}


@dataclass(frozen=True, slots=True)
class Failure:
    """How an attempt failed. `spent` says whether it counts against the attempts allowed."""

    error_type: str
    message: str
    retryable: bool
    retry_after_seconds: float | None = None
    spent: bool = True


def classify(error: BaseException, now: datetime) -> Failure:
    """Classify anything that was raised; `now` (aware) is what a Retry-After date counts from. Never raises.

    A group of one error is that error; another group goes by its own class name, and can be retried only if every
    member can.
    """
    if not isinstance(error, BaseExceptionGroup):
        return _classify_one(error, now)
    members = [_classify_one(member, now) for member in _members(error)]
    if len(members) == 1:
        return members[0]
    if not members:
        return _classify_one(error, now)
    worst = next((member for member in members if not member.retryable), members[0])
    asked = [member.retry_after_seconds for member in members if member.retry_after_seconds is not None]
    listed = "; ".join(dict.fromkeys(f"{member.error_type}: {member.message[:300]}" for member in members[:10]))
    name = clean_name(_class_name(type(error)), "ExceptionGroup")
    message = clean_message(f"{len(members)} errors together: {listed}", name)
    return Failure(name, message, worst.retryable, max(asked, default=None))


def _members(group: BaseExceptionGroup[BaseException]) -> list[BaseException]:
    """Flatten a group of groups, however deep, up to a bound."""
    waiting: list[BaseException] = [group]
    found: list[BaseException] = []
    while waiting and len(found) < MAXIMUM_MEMBERS:
        error = waiting.pop()
        if isinstance(error, BaseExceptionGroup):
            inner = _attribute(error, "exceptions")
            waiting.extend(reversed(inner) if isinstance(inner, tuple) else ())
        else:
            found.append(error)
    return found


def _classify_one(error: BaseException, now: datetime) -> Failure:
    name = clean_name(_class_name(type(error)), "Exception")
    if isinstance(error, Retry):
        return Failure(
            clean_name(_text(_attribute(error, "error_type")), "retry"),
            clean_message(_text(_attribute(error, "message")), "the handler asked for a retry"),
            True,
            _seconds(error),
        )
    if isinstance(error, DeadLetter):
        error_type = clean_name(_text(_attribute(error, "error_type")), "dead_letter")
        return Failure(error_type, clean_message(_text(_attribute(error, "message")), error_type), False)
    if isinstance(error, NotSent):
        cause = _attribute(error, "__cause__")
        if isinstance(cause, BaseException) and not isinstance(cause, NotSent):
            return _classify_one(cause, now)
        refused = isinstance(error, NotAccepted)
        message = clean_message(
            _text(_attribute(error, "message")), "it was not accepted" if refused else "nothing was sent"
        )
        return Failure("not_accepted" if refused else "not_sent", message, True, _seconds(error))
    if isinstance(error, KnownFailure):
        error_type = clean_name(_text(_attribute(error, "error_type")), name)
        message = clean_message(_text(_attribute(error, "message")), error_type)
        return Failure(error_type, message, bool(_attribute(error, "retryable")), _seconds(error))
    known = _by_status(error, now) or _by_name(error) or _by_errno(error)
    error_type, retryable, asked = known or (name, True, None)
    return Failure(
        error_type, clean_message(_message(error, error_type), f"{name} without a message"), retryable, asked
    )


_Known = tuple[str, bool, float | None]


def _by_status(error: BaseException, now: datetime) -> _Known | None:
    """Read an HTTP answer that the error carries, as httpx's, requests' and the model providers' errors do."""
    response = _attribute(error, "response")
    status = _attribute(response, "status_code")
    if not isinstance(status, int) or isinstance(status, bool) or not 400 <= status <= 599:
        return None
    if error_type := _RECOVERABLE_STATUS.get(status):
        return error_type, True, _header(response, now)
    if status in _PERMISSION_STATUS:
        return "permission", False, None
    return f"http_{status}", status >= 500, None


def _header(response: object, now: datetime) -> float | None:
    headers = _attribute(response, "headers")
    for name in ("retry-after", "Retry-After"):
        try:
            value = headers.get(name)  # type: ignore[attr-defined]
        except BaseException:  # a header object that fails must not hide the failure that is recorded
            return None
        if isinstance(value, str | bytes) and (seconds := parse_retry_after(value, now)):
            return seconds
    return None


def _by_name(error: BaseException) -> _Known | None:
    for base in type(error).__mro__:
        package = _text(_attribute(base, "__module__")).partition(".")[0]
        if known := _BY_NAME.get((package, _class_name(base))):
            return (*known, None)
    return None


def _by_errno(error: BaseException) -> _Known | None:
    if not isinstance(error, OSError):
        return None
    number = _attribute(error, "errno")
    if number == errno.ETIMEDOUT:
        return "timeout", True, None
    return ("connection", True, None) if isinstance(number, int) and number in _NETWORK_ERRNO else None


def _message(error: BaseException, error_type: str) -> str:
    if error_type != "invalid_payload":
        return _text(error)
    return _places(error) or "the input does not match the type's schema"


def _places(error: BaseException) -> str:
    """List where a validation failed and why, as pydantic tells it, without the values."""
    errors = _attribute(error, "errors")
    try:
        found = list(errors(include_url=False, include_context=False, include_input=False))  # type: ignore[operator]
        lines = [
            f"{'.'.join(_text(part)[:64] for part in one['loc']) or 'input'}: {_reason(one)}"
            for one in found[:MAXIMUM_LISTED]
        ]
    except BaseException:  # not pydantic's, or broken: its text may hold values, so none of it is kept
        return ""
    more = len(found) - len(lines)
    return "; ".join([*lines, *([f"and {more} more"] if more > 0 else [])])


def _reason(one: Mapping[str, object]) -> str:
    """Give pydantic's message; of a validator's own error only its kind, as its text may repeat the value."""
    kind = _text(one.get("type"))
    return "is not valid" if kind in ("value_error", "assertion_error") else _text(one.get("msg"))[:200]


def _seconds(error: Retry | NotSent | KnownFailure) -> float | None:
    try:
        asked = error.retry_after_seconds if isinstance(error, KnownFailure) else error.after_seconds
        seconds = float(asked)  # type: ignore[arg-type]
    except BaseException:  # absent, or no number: anything may have been passed
        return None
    return seconds if isfinite(seconds) and seconds >= 0 else None


def _attribute(owner: object, name: str) -> object:
    try:
        return getattr(owner, name, None)
    except BaseException:  # a property that fails must not hide the failure that is recorded
        return None


def _class_name(kind: type) -> str:
    return _text(_attribute(kind, "__name__"))


def _text(value: object) -> str:
    """Turn anything into text; the empty text where that fails."""
    if value is None:
        return ""
    try:
        text = str(value)
        return text if type(text) is str else str.__str__(text)
    except BaseException:  # `__str__` of a stranger may raise anything
        return ""
