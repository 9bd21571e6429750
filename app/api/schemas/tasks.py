"""Tasks as they come in and go out."""

from datetime import datetime
from typing import Annotated, Any, Literal

import msgspec
from pydantic import Field, JsonValue, StringConstraints

from app.api.problems import Problem
from app.api.schemas.common import Body, Instant, Json, Label, Money
from app.domain.lifecycle import TaskStatus
from app.domain.webhooks import WebhookState

LATER_FIELDS = frozenset({"supersede_key"})


class Source(Body):
    """Which thing of a system of record the task is about."""

    ref: Annotated[Label, Field(examples=["crm:ticket/123"])]
    version: Label | None = None


class TaskSubmission(Body):
    """A task to do. `input` is held against the JSON Schema of its type."""

    type: Annotated[str, StringConstraints(min_length=1, max_length=64), Field(examples=["classify_document"])]
    input: Annotated[JsonValue, Field(description="what the type's JSON Schema asks for; or give input_ref")] = None
    input_ref: Annotated[Label | None, Field(description="a stored document: POST /v1/inputs")] = None
    source: Source | None = None
    group: Annotated[Label | None, Field(examples=["finance"])] = None
    claims: Annotated[
        dict[Label, JsonValue] | None,
        Field(max_length=50, description="signals; policy rules use them only for keys with the scope priority:claim"),
    ] = None
    requested_class: Annotated[Label | None, Field(description="a signal, never the decision")] = None
    not_before: Instant | None = None
    due_at: Instant | None = None
    valid_until: Instant | None = None
    max_attempts: Annotated[int | None, Field(ge=1, le=100, description="may only lower the type's")] = None
    timeout_seconds: Annotated[
        float | None, Field(gt=0, le=604_800, allow_inf_nan=False, description="may only lower the type's")
    ] = None
    callback_url: Annotated[
        str | None,
        StringConstraints(min_length=1, max_length=2000),
        Field(
            description="told by a signed POST when the task has ended: http or https, no user in it, public addresses",
            examples=["https://hooks.example.com/despacho"],
        ),
    ] = None
    metadata: Annotated[dict[str, JsonValue] | None, Field(description="kept and given back as it is")] = None


class BatchItem(TaskSubmission):
    """A task of a batch, with an idempotency key of its own."""

    idempotency_key: Annotated[
        str | None, StringConstraints(min_length=1, max_length=255, pattern=r"^[\x21-\x7e]+$")
    ] = None


class TaskBatch(Body):
    """Tasks to do, at most 1,000 (a setting); each is accepted or refused by itself."""

    tasks: Annotated[list[BatchItem], Field(min_length=1, max_length=1000)]


class TaskSource(msgspec.Struct, frozen=True):
    """What the task is about."""

    ref: str
    version: str | None


class TaskError(msgspec.Struct, frozen=True):
    """Why the last attempt failed."""

    type: str
    message: str
    retryable: bool


class Usage(msgspec.Struct, frozen=True):
    """What the task's model calls took, failed ones included. Money is in USD.

    `unpriced_calls` have no known price and are not in `cost_usd`; of `estimated_calls` the provider told no usage (or
    has not yet): theirs is an estimate.
    """

    input_tokens: int
    output_tokens: int
    cost_usd: Money
    prompt_versions: list[str]
    unpriced_calls: int = 0
    estimated_calls: int = 0


class TaskLinks(msgspec.Struct, frozen=True):
    """Where more is to be found; null where there is nothing."""

    self: str
    attempts: str
    events: str
    effects: str | None
    trace: str | None
    logs: str | None


class TaskCallback(msgspec.Struct, frozen=True):
    """Who is told of the task's end, and whether it was told of the last one: null while the task has not ended.

    The whole URL may hold a secret: it is there for keys with the scope payloads:read only, and not in lists.
    """

    host: str
    state: WebhookState | msgspec.UnsetType | None = msgspec.UNSET
    url: str | msgspec.UnsetType = msgspec.UNSET


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """A task as it is now."""

    task_id: str
    type: str
    tenant_id: str
    group: str | None
    status: TaskStatus
    priority_class: str
    priority_reason_code: str
    policy_version: str
    requested_class: str | None
    source: TaskSource | None
    input_ref: str | None
    cost_class: str
    preemptible: bool
    attempts: int
    max_attempts: int
    timeout_seconds: float
    next_attempt_at: datetime | None
    submitted_at: datetime
    not_before: datetime | None
    due_at: datetime | None
    valid_until: datetime | None
    started_at: datetime | None
    finished_at: datetime | None
    updated_at: datetime
    cancel_requested_at: datetime | None
    progress: Json
    result: Json
    error: TaskError | None
    usage: Usage
    metadata: Json
    links: TaskLinks
    callback: TaskCallback | msgspec.UnsetType = msgspec.UNSET
    """There where the submission named a `callback_url`; its events are at GET /v1/webhooks?task_id=…"""
    input: Json | msgspec.UnsetType = msgspec.UNSET
    withheld: list[Literal["result"]] | msgspec.UnsetType = msgspec.UNSET
    """What there is and this key may not see (scope payloads:read)."""


class ListedTask(Task, frozen=True, kw_only=True):
    """A task in a list; `result` is there only when it was asked for."""

    result: Json | msgspec.UnsetType = msgspec.UNSET


class TaskPage(msgspec.Struct, frozen=True):
    """A page of tasks, newest first."""

    items: list[ListedTask]
    next_page_token: str | None


class AcceptedItem(msgspec.Struct, frozen=True):
    """An item of a batch that was accepted."""

    status: Literal[202]
    task: Task
    idempotency_replayed: bool


class RefusedItem(msgspec.Struct, frozen=True):
    """An item of a batch that was refused; pointers are relative to the item."""

    status: int
    problem: Problem


class BatchAnswer(msgspec.Struct, frozen=True):
    """What became of each item of a batch, in order."""

    accepted: int
    refused: int
    items: list[Any]


NO_USAGE = Usage(0, 0, "0", [])
