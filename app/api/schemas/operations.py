"""Filters, bulk actions, dead letters, schedules, pauses and inputs as they come in and go out."""

from datetime import datetime
from typing import Annotated, Literal

import msgspec
from pydantic import BeforeValidator, Field, StringConstraints, model_validator
from pydantic_core import PydanticCustomError

from app.api.schemas.common import Body, Instant, Json, Label, Reason
from app.api.schemas.effects import Effect
from app.api.schemas.history import Attempt, Event
from app.api.schemas.tasks import TaskSubmission
from app.domain.lifecycle import TaskStatus
from app.domain.schedules import Misfire


def _listed(value: object) -> object:
    return [value] if isinstance(value, str) else value


Labels = Annotated[list[Label], BeforeValidator(_listed), Field(min_length=1, max_length=100)]
"""One name, or several that mean "or"."""
Statuses = Annotated[
    list[Annotated[TaskStatus, Field(strict=False)]], BeforeValidator(_listed), Field(min_length=1, max_length=20)
]


class TaskFilterBody(Body):
    """Which tasks; a list means "or", what is left out is open."""

    status: Statuses | None = None
    type: Labels | None = None
    priority_class: Labels | None = None
    group: Labels | None = None
    source_ref: Labels | None = None
    tenant_id: Annotated[Labels | None, Field(description="platform keys only")] = None
    submitted_after: Instant | None = None
    submitted_before: Instant | None = None


class DeadLetterFilterBody(Body):
    """Which dead letters; a list means "or", what is left out is open."""

    error_type: Labels | None = None
    type: Labels | None = None
    priority_class: Labels | None = None
    group: Labels | None = None
    tenant_id: Annotated[Labels | None, Field(description="platform keys only")] = None
    failed_after: Instant | None = None
    failed_before: Instant | None = None


class _Bulk(Body):
    """What every bulk action says: why, and that everything is meant where the filter is left out."""

    reason: Reason
    all: Annotated[bool, Field(description="touch everything; instead of a filter")] = False

    @model_validator(mode="after")
    def _one_of_both(self) -> "_Bulk":
        found = getattr(self, "filter", None)
        if self.all and found is not None and found.model_fields_set:
            raise PydanticCustomError("filter_and_all", "give a filter or all, not both")
        return self


class BulkCancel(_Bulk):
    """Cancel the unfinished tasks that a filter matches."""

    filter: TaskFilterBody | None = None


class BulkPurge(_Bulk):
    """Remove the dead letters that a filter matches, with their tasks."""

    filter: DeadLetterFilterBody | None = None


class BulkReprocess(_Bulk):
    """Put the dead letters that a filter matches back, paced."""

    filter: DeadLetterFilterBody | None = None
    limit: Annotated[int | None, Field(ge=1, le=1_000_000_000, description="at most so many")] = None
    rate_per_second: Annotated[
        float | None, Field(gt=0, le=100_000, allow_inf_nan=False, description="default: 100")
    ] = None
    dry_run: Annotated[bool, Field(description="answer 200 with `matched` and touch nothing")] = False


class BulkError(msgspec.Struct, frozen=True):
    """One thing that could not be touched."""

    id: str
    code: str


class BulkAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A bulk action as it is now; `errors` keeps the first hundred."""

    bulk_action_id: str
    kind: Literal["cancel", "reprocess", "purge"]
    state: Literal["running", "done", "aborted"]
    matched: int
    done: int
    failed: int
    errors: list[BulkError]
    filter: Json
    reason: str
    actor: str
    limit: int | None
    rate_per_second: float | None
    created_at: datetime
    updated_at: datetime


class Matched(msgspec.Struct, frozen=True):
    """What a dry run found."""

    matched: int


class WithReason(Body):
    """Why it is done."""

    reason: Reason


class CancelOrder(Body):
    """Why a task is cancelled, where there is something to say."""

    reason: Reason | None = None


class DeadLetter(msgspec.Struct, frozen=True, kw_only=True):
    """A dead letter; `task_id` is null for a message that could not be read (platform keys only)."""

    dead_letter_id: str
    task_id: str | None
    type: str | None
    tenant_id: str | None
    group: str | None
    priority_class: str | None
    failed_at: datetime
    error_type: str
    error_message: str
    attempts: int
    worker_id: str | None
    trace_url: str | None
    logs_url: str | None


class DeadLetterPage(msgspec.Struct, frozen=True):
    """A page of dead letters, newest first."""

    items: list[DeadLetter]
    next_page_token: str | None


class DeadLetterSample(msgspec.Struct, frozen=True):
    """Dead letters drawn at random."""

    items: list[DeadLetter]


class DeadLetterStory(msgspec.Struct, frozen=True):
    """One dead letter with its attempts and effects (newest first), and its history (oldest first)."""

    item: DeadLetter
    attempts: list[Attempt]
    effects: list[Effect]
    history: list[Event]


class DeadLetterGroup(msgspec.Struct, frozen=True):
    """The dead letters of one error type and task type that lie here; what was reprocessed or purged is not counted.

    Rates are per hour: of the last hour, and the mean of the last 7 days.
    """

    error_type: str
    type: str | None
    count: int
    oldest_failed_at: datetime
    newest_failed_at: datetime
    rate_per_hour: float
    baseline_per_hour: float


class DeadLetterSummary(msgspec.Struct, frozen=True):
    """The dead letters by error type and task type, the most frequent first."""

    total: int
    items: list[DeadLetterGroup]


class InputAnswer(msgspec.Struct, frozen=True):
    """A stored document; `input_ref` is what tasks refer to."""

    input_ref: str
    sha256: str
    size_bytes: int
    content_type: str


class ScheduleOrder(Body):
    """A schedule to make."""

    name: Label
    cron: Annotated[
        str,
        StringConstraints(min_length=1, max_length=200),
        Field(examples=["30 6 * * MON-FRI"], description="5 fields"),
    ]
    timezone: Annotated[str, StringConstraints(min_length=1, max_length=100), Field(examples=["America/Sao_Paulo"])] = (
        "UTC"
    )
    misfire: Annotated[
        Misfire,
        Field(strict=False, description="missed firings: one task for all of them together, or none"),
    ] = Misfire.ONCE
    task: Annotated[TaskSubmission, Field(description="without not_before, due_at, valid_until and claims")]


class ScheduleAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule; `last_error` says why its last firing made no task."""

    schedule_id: str
    tenant_id: str
    name: str
    cron: str
    timezone: str
    misfire: Misfire
    task: Json
    next_fire_at: datetime | None
    last_fired_at: datetime | None
    last_task_id: str | None
    last_error: str | None
    created_by: str
    created_at: datetime


class SchedulePage(msgspec.Struct, frozen=True):
    """A page of schedules, newest first."""

    items: list[ScheduleAnswer]
    next_page_token: str | None


class PauseOrder(Body):
    """What to pause, why, and until when."""

    on: Annotated[
        str,
        StringConstraints(min_length=1, max_length=250, pattern=r"^[^\x00-\x1f\x7f]+$"),
        Field(examples=["class:common"], description="class:…, type:…, tenant:… or dependency:…"),
    ]
    reason: Reason
    until: Instant | None = None


class PauseAnswer(msgspec.Struct, frozen=True):
    """A pause that lasts; `until` null means until it is removed."""

    pause_id: str
    on: str
    reason: str
    until: datetime | None
    created_by: str
    created_at: datetime


class PausePage(msgspec.Struct, frozen=True):
    """A page of the pauses that last, newest first."""

    items: list[PauseAnswer]
    next_page_token: str | None
