"""Tasks that somebody outside completes later: what may be said in a callback, and what a run makes of it. Pure.

Each delivery to an endpoint has a callback address of its own, with a token that only its receiver knows. Any address
of the task's present life completes it, since a receiver that knows a repeated delivery by its key answers by the
first one's address. The first call counts; after an error that lets the task be tried again, the next delivery has a
new one.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

ERROR_TYPE = re.compile(r"[A-Za-z][A-Za-z0-9_.]{0,99}", re.ASCII)
TOKEN = re.compile(r"dsp_cb_[A-Za-z0-9_-]{43}", re.ASCII)
"""The prefix is one that redaction knows, so that a token hides itself in logs."""


@dataclass(frozen=True, slots=True)
class CallbackOutcome:
    """What a receiver said: a result as exact JSON text, or an error."""

    result: str | None = None
    error_type: str | None = None
    error_message: str = ""
    retryable: bool = False


@dataclass(frozen=True, slots=True)
class Callback:
    """One address, as its task sees it. `left_seconds` is None until the endpoint has promised to call back.

    `closed` says that it belongs to an earlier life of the task, before a reprocessing.
    """

    token_sha256: bytes
    left_seconds: float | None
    called: bool
    read: bool
    outcome: CallbackOutcome
    closed: bool = False


@dataclass(frozen=True, slots=True)
class Called:
    """Somebody has called, and nobody has read it."""

    token_sha256: bytes
    outcome: CallbackOutcome


@dataclass(frozen=True, slots=True)
class Pending:
    """A call is still expected, for `seconds` at most."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Overdue:
    """Nobody called in time."""


@dataclass(frozen=True, slots=True)
class Undelivered:
    """There is nothing to wait for: the task is to be delivered.

    `over` counts the deliveries that were accepted and came to nothing, in all lives of the task; `returned` those of
    them that the endpoint gave back itself, by calling an error.
    """

    over: int = 0
    returned: int = 0


Standing = Called | Pending | Overdue | Undelivered


def standing_of(callbacks: Sequence[Callback]) -> Standing:
    """Say how a task stands with its callbacks, the newest first."""
    present = [one for one in callbacks if not one.closed]
    for one in present:
        if one.called and not one.read:
            return Called(one.token_sha256, one.outcome)
    promised = [one.left_seconds for one in present if one.left_seconds is not None and not one.called]
    waiting = [seconds for seconds in promised if seconds > 0]
    if waiting:
        return Pending(max(waiting))
    if any(one.left_seconds is not None and not one.called and not one.read for one in present):
        return Overdue()
    accepted = [one for one in callbacks if one.called or one.left_seconds is not None]
    over = [one for one in accepted if one.read or one.closed]
    return Undelivered(len(over), sum(one.called and one.outcome.error_type is not None for one in over))
