"""Describe an exception for a log line: types, places and redacted messages; no locals, no source lines, no values.

What libraries put into their messages is left out where it quotes data: pydantic's input values, SQLAlchemy's
statement and parameters, PostgreSQL's DETAIL (the offending row).
"""

from collections.abc import Callable
from types import TracebackType

Redact = Callable[[str, int], str]
MAX_MESSAGE_CHARACTERS = 500
MAX_FRAMES = 20
MAX_CHAIN = 4


def message_of(error: BaseException) -> str:
    """Return the message of `error` without the data it quotes; never raises, whatever its `__str__` does."""
    try:
        if (listed := _validation_errors(error)) is not None:
            return listed
        library = type(error).__module__.partition(".")[0]
        if library == "asyncpg" and error.args:
            return str(error.args[0])
        if library == "sqlalchemy":
            inner = getattr(error, "orig", None) or error.__cause__
            return str(error.args[0]) if inner is None and error.args else message_of(inner or Exception())
        return str(error)
    except Exception as failure:
        return f"<{type(error).__name__} whose message cannot be shown: {type(failure).__name__}>"


def describe(error: BaseException, redact: Redact, chain: int = MAX_CHAIN) -> dict[str, object]:
    """Return the exception and its causes as fields of a log line; bounded in depth, frames and text."""
    described: dict[str, object] = {
        "type": _type_name(error),
        "message": redact(message_of(error), MAX_MESSAGE_CHARACTERS),
        "frames": _frames(error.__traceback__),
    }
    if chain == 1:
        return described
    if isinstance(error, BaseExceptionGroup):
        described["exceptions"] = [describe(part, redact, 1) for part in error.exceptions[:MAX_CHAIN]]
    cause = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    if cause is not None:
        described["cause"] = describe(cause, redact, chain - 1)
    return described


def _type_name(error: BaseException) -> str:
    return f"{type(error).__module__}.{type(error).__qualname__}"[:200]


def _frames(traceback: TracebackType | None) -> list[str]:
    frames: list[str] = []
    while traceback is not None:
        code = traceback.tb_frame.f_code
        frames.append(f"{code.co_filename}:{traceback.tb_lineno} {code.co_qualname}")
        traceback = traceback.tb_next
    return frames[-MAX_FRAMES:]


def _validation_errors(error: BaseException) -> str | None:
    """List pydantic's errors without the input they quote; None for any other exception."""
    if type(error).__name__ not in {"ValidationError", "RequestValidationError"}:
        return None
    errors = getattr(error, "errors", None)
    if not callable(errors):
        return None
    try:
        items = errors(include_input=False, include_context=False, include_url=False)
    except TypeError:
        items = errors()
    return "; ".join(f"{'.'.join(str(part) for part in item['loc'])}: {item['type']}" for item in items[:20])
