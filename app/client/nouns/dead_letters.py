"""Dead letters: what could not be done, why, and doing it again."""

from collections.abc import Sequence
from datetime import datetime
from typing import Generic, TypedDict, Unpack

import msgspec

from app.client.bound import Bound, S, call, streaming
from app.client.nouns.bulk_actions import BulkAction
from app.client.nouns.effects import Effect
from app.client.nouns.task import Attempt, Event, Task
from app.client.request import (
    Json,
    Moment,
    Request,
    Several,
    Stream,
    get,
    get_items,
    given,
    pages,
    parameters_of,
    part,
    post,
    selection,
)


class DeadLetter(msgspec.Struct, frozen=True, kw_only=True):
    """A dead letter; `task_id` is None for a message that could not be read (platform keys only)."""

    dead_letter_id: str
    task_id: str | None = None
    type: str | None = None
    tenant_id: str | None = None
    group: str | None = None
    priority_class: str | None = None
    failed_at: datetime | None = None
    error_type: str | None = None
    error_message: str | None = None
    attempts: int = 0
    worker_id: str | None = None
    trace_url: str | None = None
    logs_url: str | None = None


class DeadLetterStory(msgspec.Struct, frozen=True, kw_only=True):
    """One dead letter with its attempts (newest first), its effects, and its history (oldest first)."""

    item: DeadLetter
    attempts: tuple[Attempt, ...] = ()
    effects: tuple[Effect, ...] = ()
    history: tuple[Event, ...] = ()


class DeadLetterGroup(msgspec.Struct, frozen=True, kw_only=True):
    """The dead letters of one error type and task type; rates are of the last hour and the mean of 7 days."""

    error_type: str
    type: str | None = None
    count: int = 0
    oldest_failed_at: datetime | None = None
    newest_failed_at: datetime | None = None
    rate_per_hour: float | None = None
    baseline_per_hour: float | None = None


class DeadLetterSummary(msgspec.Struct, frozen=True, kw_only=True):
    """The dead letters by error type and task type, the most frequent first."""

    total: int
    items: tuple[DeadLetterGroup, ...] = ()


class Matched(msgspec.Struct, frozen=True):
    """What a dry run found."""

    matched: int


class DeadLetterFilter(TypedDict, total=False):
    """Which dead letters; several values mean "or", what is left out is open."""

    error_type: Several
    type: Several
    priority_class: Several
    group: Several
    tenant_id: Several
    failed_after: Moment | None
    failed_before: Moment | None


class DeadLetters(Bound[S], Generic[S]):
    """`client.dead_letters`."""

    @streaming
    def list(
        self,
        *,
        at_most: int | None = None,
        **found: Unpack[DeadLetterFilter],
    ) -> Stream[DeadLetter]:
        """Iterate over dead letters, newest first; several values of a filter mean "or"."""
        return pages("/v1/dead-letters", DeadLetter, parameters_of(found), at_most=at_most)

    @call
    def summary(self) -> Request[DeadLetterSummary]:
        """Count them by error type and type, with the rate now against the last seven days."""
        return get("/v1/dead-letters/summary", DeadLetterSummary)

    @call
    def sample(self, n: int = 10, *, error_type: Several = None) -> Request[Sequence[DeadLetter]]:
        """Draw some at random, to learn what input validation should have caught."""
        return get_items("/v1/dead-letters/sample", DeadLetter, {"error_type": error_type, "n": n})

    @call
    def get(self, id: str) -> Request[DeadLetterStory]:
        """Tell the whole story of one, by its own id or its task's."""
        return get(f"/v1/dead-letters/{part(id)}", DeadLetterStory)

    @call
    def reprocess(self, task_id: str, reason: str) -> Request[Task]:
        """Give one task a fresh attempt budget; of any number of callers one succeeds."""
        return post(f"/v1/dead-letters/{part(task_id)}/reprocess", Task, {"reason": reason})

    @call
    def reprocess_many(
        self,
        reason: str,
        *,
        everything: bool = False,
        limit: int | None = None,
        rate_per_second: float | None = None,
        **found: Unpack[DeadLetterFilter],
    ) -> Request[BulkAction]:
        """Give a fresh attempt budget to what a filter matches, or `everything`, as a paced bulk action."""
        return post("/v1/dead-letters/reprocess", BulkAction, _many(reason, everything, found, limit, rate_per_second))

    @call
    def reprocess_dry_run(
        self,
        reason: str = "dry run",
        *,
        everything: bool = False,
        limit: int | None = None,
        rate_per_second: float | None = None,
        **found: Unpack[DeadLetterFilter],
    ) -> Request[Matched]:
        """Say how many `reprocess_many` would touch, and touch nothing."""
        body = {**_many(reason, everything, found, limit, rate_per_second), "dry_run": True}
        return post("/v1/dead-letters/reprocess", Matched, body, repeatable=True)

    @call
    def purge(
        self,
        reason: str,
        *,
        everything: bool = False,
        **found: Unpack[DeadLetterFilter],
    ) -> Request[BulkAction]:
        """Delete for good what a filter matches, or `everything`, as a bulk action; the audit trail stays."""
        return post("/v1/dead-letters/purge", BulkAction, _many(reason, everything, found, None, None))


def _many(
    reason: str, everything: bool, found: DeadLetterFilter, limit: int | None, rate_per_second: float | None
) -> dict[str, Json]:
    return {**selection(everything, found), **given(limit=limit, rate_per_second=rate_per_second), "reason": reason}
