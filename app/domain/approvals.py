"""Approvals: what a handler may ask a person, how two questions are told apart, and what a yes covers.

An approval belongs to (task, action, fingerprint of the detail): the same question asked again is the same approval,
the same action with another detail is another one. A yes stays a yes for the life of its task.
"""

import hashlib
import json
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from app.domain.clean_text import clean_message

MOST_ACTION_CHARACTERS = 200
MOST_EXPIRES_SECONDS = 366 * 86400.0
MOST_DEPTH = 64
DENIED = "approval_denied"
EXPIRED = "approval_expired"


class ApprovalState(StrEnum):
    """Where an approval stands; the values are part of the REST contract.

    `withdrawn`: nobody asks any more, because the task ended some other way before anybody decided.
    """

    PENDING = "pending"
    APPROVED = "approved"
    DENIED = "denied"
    EXPIRED = "expired"
    WITHDRAWN = "withdrawn"


@dataclass(frozen=True, slots=True)
class Approval:
    """A yes: who gave it, when (aware, UTC), and what was said with it."""

    approval_id: str
    decided_by: str
    comment: str | None
    decided_at: datetime


@dataclass(frozen=True, slots=True)
class Question:
    """What a handler asks for, checked and written down: `detail` is exact JSON text, None for no detail."""

    action: str
    detail: str | None
    fingerprint: bytes
    expires_seconds: float


class InvalidQuestion(ValueError):
    """The handler asks for something that cannot be asked; the text says what, and never repeats a value."""


def question(action: object, detail: object, *, expires_seconds: float, most_detail_bytes: int) -> Question:
    """Check and write down what a handler asks for. Raises InvalidQuestion."""
    if not isinstance(action, str):
        raise InvalidQuestion("action: should be a text")
    if not 1 <= len(action) <= MOST_ACTION_CHARACTERS or not action.isprintable():
        raise InvalidQuestion(
            f"action: should be 1 to {MOST_ACTION_CHARACTERS} printable characters, such as 'refund' or 'delete_branch'"
        )
    if isinstance(expires_seconds, bool) or not isinstance(expires_seconds, int | float):
        raise InvalidQuestion("expires_seconds: should be a number of seconds")
    if not 0 < expires_seconds <= MOST_EXPIRES_SECONDS:
        raise InvalidQuestion(f"expires_seconds: should be above 0 and at most {MOST_EXPIRES_SECONDS:.0f} (366 days)")
    written = None if detail is None else _written(detail, most_detail_bytes)
    return Question(action, written, _fingerprint(written), float(expires_seconds))


def _written(detail: object, most_bytes: int) -> str:
    if hasattr(detail, "model_dump"):
        detail = detail.model_dump(mode="json")
    try:
        text = json.dumps(detail, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        # Read back, so that what is held against the limits is what will be read: a number may have been a key.
        _check(json.loads(text), 1)
        size = len(text.encode())
    except InvalidQuestion:
        raise
    except UnicodeEncodeError:
        raise InvalidQuestion("detail: holds half of a surrogate pair, which cannot be kept") from None
    except RecursionError:
        raise InvalidQuestion(f"detail: is nested deeper than {MOST_DEPTH} levels") from None
    except (TypeError, ValueError) as error:
        kind = type(error).__name__
        raise InvalidQuestion(f"detail: should be JSON without NaN, Infinity or foreign objects ({kind})") from None
    if size > most_bytes:
        raise InvalidQuestion(f"detail: has {size} bytes as JSON; it may have {most_bytes}")
    return text


def _check(value: object, depth: int) -> None:
    if depth > MOST_DEPTH:
        raise InvalidQuestion(f"detail: is nested deeper than {MOST_DEPTH} levels")
    match value:
        case str() if "\0" in value:
            raise InvalidQuestion("detail: holds NUL, which cannot be kept")
        case dict():
            for key, one in value.items():
                _check(key, depth)
                _check(one, depth + 1)
        case list():
            for one in value:
                _check(one, depth + 1)


def _fingerprint(written: str | None) -> bytes:
    """Hash a detail as canonical JSON: the order of keys does not matter."""
    if written is None:
        return hashlib.sha256(b"").digest()
    canonical = json.dumps(json.loads(written), sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(canonical.encode()).digest()


def denied_because(comment: str | None) -> str:
    """Say why a task was rejected by a no."""
    return clean_message(comment or "", "the approval was denied without a comment")


def covers(action: str, detail: str | None, effect_type: str, key: str) -> bool:
    """Say whether a yes to `action` with `detail` (JSON text) is a yes to this very effect.

    The action is the effect's type. A detail that is an object with the member `key` names one effect, and is a yes to
    that one alone; without it the yes is to every effect of the type in its task.
    """
    if action != effect_type:
        return False
    named = json.loads(detail) if detail is not None else None
    return not (isinstance(named, dict) and "key" in named) or named["key"] == key
