"""Attempts and the history of a task as they go out."""

from datetime import datetime

import msgspec

from app.api.schemas.common import Json, Money
from app.api.schemas.tasks import TaskError


class Attempt(msgspec.Struct, frozen=True):
    """One run; the running one has no `finished_at` and `outcome`. `counted` says whether the budget paid."""

    attempt: int
    worker_id: str
    queued_at: datetime
    released_at: datetime
    started_at: datetime
    finished_at: datetime | None
    queue_seconds: float
    duration_seconds: float | None
    outcome: str | None
    counted: bool | None
    provider: str | None
    model: str | None
    prompt_version: str | None
    input_tokens: int
    output_tokens: int
    cost_usd: Money
    retry_after_seconds: float | None
    error: TaskError | None


class AttemptPage(msgspec.Struct, frozen=True):
    """All attempts of a task, newest first."""

    items: list[Attempt]
    next_page_token: str | None


class Event(msgspec.Struct, frozen=True):
    """One entry of a task's history: what happened, the typed reason, who did it, and the facts behind it."""

    at: datetime
    kind: str
    reason: str | None
    actor: str | None
    detail: Json


class EventPage(msgspec.Struct, frozen=True):
    """The history of a task, oldest first; the last entry of a waiting task says why it waits."""

    items: list[Event]
    next_page_token: str | None
