"""A task, its attempts and its history as the API shows them."""

from datetime import datetime
from decimal import Decimal

import msgspec

from app.client.request import Json
from app.domain import lifecycle

FINAL = frozenset(status.value for status in lifecycle.FINAL)
"""The statuses that are ends."""


class TaskSource(msgspec.Struct, frozen=True):
    """Which thing of a system of record the task is about."""

    ref: str
    version: str | None = None


class TaskError(msgspec.Struct, frozen=True):
    """Why the last attempt failed."""

    type: str
    message: str = ""
    retryable: bool | None = None


class Usage(msgspec.Struct, frozen=True):
    """What the task's model calls took. Money is in USD."""

    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: Decimal = Decimal(0)
    prompt_versions: tuple[str, ...] = ()


class TaskLinks(msgspec.Struct, frozen=True, kw_only=True):
    """Where more is to be found; None where there is nothing."""

    self: str | None = None
    attempts: str | None = None
    events: str | None = None
    effects: str | None = None
    trace: str | None = None
    logs: str | None = None


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """A task as it was when it was read. Lists leave out `result` and `input` unless they are asked for."""

    task_id: str
    type: str
    status: str
    tenant_id: str | None = None
    group: str | None = None
    priority_class: str | None = None
    priority_reason_code: str | None = None
    policy_version: str | None = None
    requested_class: str | None = None
    source: TaskSource | None = None
    input_ref: str | None = None
    cost_class: str | None = None
    preemptible: bool = False
    attempts: int = 0
    max_attempts: int | None = None
    timeout_seconds: float | None = None
    next_attempt_at: datetime | None = None
    submitted_at: datetime | None = None
    not_before: datetime | None = None
    due_at: datetime | None = None
    valid_until: datetime | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    updated_at: datetime | None = None
    cancel_requested_at: datetime | None = None
    progress: Json = None
    result: Json = None
    error: TaskError | None = None
    usage: Usage = Usage()
    metadata: Json = None
    links: TaskLinks = TaskLinks()
    input: Json = None
    withheld: tuple[str, ...] = ()
    """What there is and this key may not see (scope payloads:read)."""

    @property
    def is_final(self) -> bool:
        """Say whether it has ended."""
        return is_final(self.status)

    @property
    def is_done(self) -> bool:
        """Say whether it has ended well."""
        return self.status == "done"


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """One run; the running one has no `finished_at` and `outcome`. `counted` says whether the budget paid."""

    attempt: int
    worker_id: str | None = None
    queued_at: datetime | None = None
    released_at: datetime | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    queue_seconds: float | None = None
    duration_seconds: float | None = None
    outcome: str | None = None
    counted: bool | None = None
    provider: str | None = None
    model: str | None = None
    prompt_version: str | None = None
    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: Decimal = Decimal(0)
    retry_after_seconds: float | None = None
    error: TaskError | None = None


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of a task's history: what happened, the typed reason, who did it, and the facts behind it."""

    at: datetime
    kind: str
    reason: str | None = None
    actor: str | None = None
    detail: Json = None


def is_final(status: str) -> bool:
    """Say whether a status is an end."""
    return status in FINAL
