"""Telling a receiver that a task has ended: what an event says, and what follows a try to deliver it.

Whatever the receiver answers is a value here; only the number of tries and the times are decided. The body is the same
at every try, so that a receiver may compare it.
"""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

import msgspec

from app.domain.failure import Failure
from app.domain.retry import Exhausted, RetryPolicy
from app.domain.retry import decide as decide_retry

GONE = 410
EVENT_PREFIX = "task."


class WebhookState(StrEnum):
    """Where the delivery of one event stands; the values are part of the REST contract."""

    WAITING = "waiting"
    DELIVERED = "delivered"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Try:
    """What one try came to: the status that was answered, or the type of the error that kept it from being answered."""

    status_code: int | None
    error_type: str | None = None
    retry_after_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Next:
    """What follows a try: the new state, and while it waits, in how many seconds the next try is due."""

    state: WebhookState
    after_seconds: float = 0.0


def error_type_of(answer: Try) -> str | None:
    """Name what is wrong with a try; None where the receiver has taken the event."""
    if answer.error_type is not None:
        return answer.error_type
    status = answer.status_code or 0
    if 200 <= status < 300:
        return None
    if status == GONE:
        return "gone"
    return "redirected" if 300 <= status < 400 else f"http_{status}"


def decide(answer: Try, number: int, most_tries: int, policy: RetryPolicy, jitter: float) -> Next:
    """Decide what follows the `number`th try (from 1) of this round; `jitter` is drawn from [0, 1).

    2xx is delivered; 410 says that nobody will ever listen there; everything else is tried again, redirects (which are
    never followed), other 4xx and forbidden addresses included: what is wrong there may be mended in the meantime.
    """
    error_type = error_type_of(answer)
    if error_type is None:
        return Next(WebhookState.DELIVERED)
    if answer.status_code == GONE:
        return Next(WebhookState.FAILED)
    failure = Failure(error_type, "", retryable=True, retry_after_seconds=answer.retry_after_seconds)
    decided = decide_retry(failure, number, most_tries, policy, jitter)
    if isinstance(decided, Exhausted):
        return Next(WebhookState.FAILED)
    return Next(WebhookState.WAITING, decided.seconds)


@dataclass(frozen=True, slots=True)
class Ended:
    """What an event knows of the end of its task. `result` is exact JSON text, or None where it is not sent along."""

    task_id: str
    event: str
    tenant_id: str
    type: str
    group: str | None
    source_ref: str | None
    source_version: str | None
    attempts: int
    submitted_at: datetime
    ended_at: datetime
    error_type: str | None
    error_message: str | None
    error_retryable: bool | None
    result: str | None
    link: str


def body_of(ended: Ended) -> bytes:
    """Write the event as JSON: `type`, `timestamp` and `data`, as Standard Webhooks advises."""
    error = None
    if ended.error_type is not None:
        error = {
            "type": ended.error_type,
            "message": ended.error_message or "",
            "retryable": bool(ended.error_retryable),
        }
    data: dict[str, object] = {
        "task_id": ended.task_id,
        "type": ended.type,
        "tenant_id": ended.tenant_id,
        "group": ended.group,
        "source": None if ended.source_ref is None else {"ref": ended.source_ref, "version": ended.source_version},
        "status": ended.event.removeprefix(EVENT_PREFIX),
        "attempts": ended.attempts,
        "submitted_at": ended.submitted_at,
        "finished_at": ended.ended_at,
        "error": error,
        "links": {"task": ended.link},
    }
    if ended.result is not None:
        data["result"] = msgspec.Raw(ended.result.encode())
    return msgspec.json.encode({"type": ended.event, "timestamp": ended.ended_at, "data": data})
