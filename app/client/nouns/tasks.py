"""Tasks: submitting, looking at, waiting for and cancelling them."""

from collections.abc import Mapping, Sequence
from typing import Generic, TypedDict, Unpack

from app.client.bound import S, call, streaming
from app.client.nouns.bulk_actions import BulkAction
from app.client.nouns.effects import Effect
from app.client.nouns.handle import Handle, cancellation
from app.client.nouns.submitting import BatchAnswer, Submitting, batch, submission
from app.client.nouns.task import Attempt, Event, Task
from app.client.nouns.waiting import read_task, until_final
from app.client.request import (
    Flow,
    Json,
    Moment,
    Request,
    Several,
    Stream,
    get_items,
    given,
    pages,
    parameters_of,
    part,
    post,
    selection,
)


class TaskFilter(TypedDict, total=False):
    """Which tasks; several values mean "or", what is left out is open."""

    status: Several
    type: Several
    priority_class: Several
    group: Several
    source_ref: Several
    tenant_id: Several
    submitted_after: Moment | None
    submitted_before: Moment | None


class Tasks(Submitting[S], Generic[S]):
    """`client.tasks`."""

    @call
    def create(
        self, body: Mapping[str, Json], *, idempotency_key: str | None = None, tenant_id: str | None = None
    ) -> Request[Task]:
        """Submit a task as the API takes it (`POST /v1/tasks`) and return it; `submit` returns a handle."""
        return submission(body, idempotency_key=idempotency_key, tenant_id=tenant_id)

    @call
    def create_batch(
        self, items: Sequence[Mapping[str, Json]], *, tenant_id: str | None = None
    ) -> Request[BatchAnswer]:
        """Submit up to 1,000 tasks in one request; `submit_many` takes any number."""
        return batch(items, tenant_id=tenant_id)

    @call
    def handle(self, task_id: str) -> Flow[Handle[S]]:
        """Return a handle on a task that exists."""
        task = yield read_task(task_id)
        return Handle(self._shell, task)

    @call
    def get(self, task_id: str, *, include_input: bool = False, wait: float | None = None) -> Request[Task]:
        """Read a task; with `wait`, when it has ended or so many seconds (55 at most) have passed."""
        return read_task(task_id, include_input=include_input, wait=wait)

    @call
    def wait(self, task_id: str, wait: float | None = 60.0) -> Flow[Task]:
        """Wait for the end of a task and return it, however it ended. Raises StillRunning."""
        return until_final(task_id, wait)

    @streaming
    def list(
        self,
        *,
        include_result: bool = False,
        at_most: int | None = None,
        **found: Unpack[TaskFilter],
    ) -> Stream[Task]:
        """Iterate over tasks, newest first; several values of a filter mean "or"."""
        parameters = {**parameters_of(found), "include": "result" if include_result else None}
        return pages("/v1/tasks", Task, parameters, at_most=at_most)

    @call
    def attempts(self, task_id: str) -> Request[Sequence[Attempt]]:
        """List the attempts of a task, newest first."""
        return get_items(f"/v1/tasks/{part(task_id)}/attempts", Attempt)

    @call
    def events(self, task_id: str) -> Request[Sequence[Event]]:
        """Tell the history of a task, oldest first; the last entry of a waiting task says why it waits."""
        return get_items(f"/v1/tasks/{part(task_id)}/events", Event)

    @call
    def effects(self, task_id: str) -> Request[Sequence[Effect]]:
        """List what a task did outside."""
        return get_items(f"/v1/tasks/{part(task_id)}/effects", Effect)

    @call
    def cancel(self, task_id: str, reason: str | None = None) -> Request[Task]:
        """Ask for the end of a task; a running one is asked to stop. Raises ApiError `task_final`."""
        return cancellation(task_id, reason)

    @call
    def retry_now(self, task_id: str) -> Request[Task]:
        """Make a task due at once that waits for its next attempt or its time."""
        return post(f"/v1/tasks/{part(task_id)}/retry-now", Task)

    @call
    def cancel_many(
        self,
        reason: str,
        *,
        everything: bool = False,
        **found: Unpack[TaskFilter],
    ) -> Request[BulkAction]:
        """Cancel what a filter matches, or `everything`, as a bulk action."""
        return post("/v1/tasks/cancel", BulkAction, {**selection(everything, found), "reason": reason})

    @call
    def reclassify(
        self, task_id: str, priority_class: str, reason: str, *, expires_at: Moment
    ) -> Request[Task]:
        """Put a task into another class by hand, with the reason and until when; the derived class comes back then."""
        body = given(priority_class=priority_class, reason=reason, expires_at=expires_at)
        return post(f"/v1/tasks/{part(task_id)}/reclassify", Task, body, repeatable=True)
