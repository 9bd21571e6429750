"""Submitting one task or many; every submission has an idempotency key, so that none is done twice by sending twice."""

import secrets
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Generic

import msgspec

from app.client.bound import Bound, S, call, streaming
from app.client.errors import ApiError, Problem, StillRunning, UnexpectedAnswer
from app.client.nouns.handle import Handle
from app.client.nouns.task import Task
from app.client.nouns.waiting import until_all_final
from app.client.request import Flow, Items, Json, Moment, Pause, Request, Stream, encoded, given, post

MOST_IN_A_BATCH = 1000
MOST_BYTES_IN_A_BATCH = 1_000_000
"""A little below the service's limit (1 MiB unless it is set otherwise)."""
_TOO_LARGE = 413


class BatchItem(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one item of a batch: a task, or a problem."""

    status: int
    task: Task | None = None
    problem: Problem | None = None
    idempotency_replayed: bool = False


class BatchAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a batch, in order."""

    accepted: int
    refused: int
    items: list[BatchItem]


class Refused(msgspec.Struct, frozen=True):
    """An item that was not accepted: its place among the items (from 0), and why."""

    index: int
    problem: Problem


class Submitting(Bound[S], Generic[S]):
    """What can be asked of a client and of its tasks alike."""

    @call
    def submit(
        self,
        type: str,
        input: Json = None,
        *,
        input_ref: str | None = None,
        source: Mapping[str, str | None] | None = None,
        group: str | None = None,
        claims: Mapping[str, Json] | None = None,
        requested_class: str | None = None,
        supersede_key: str | None = None,
        not_before: Moment | None = None,
        due_at: Moment | None = None,
        valid_until: Moment | None = None,
        max_attempts: int | None = None,
        timeout_seconds: float | None = None,
        callback_url: str | None = None,
        metadata: Mapping[str, Json] | None = None,
        idempotency_key: str | None = None,
        tenant_id: str | None = None,
        wait: float | None = None,
    ) -> Flow[Handle[S]]:
        """Submit a task; returns once it is committed, and from then on it cannot be lost.

        Safe to call again with the same `idempotency_key` and arguments: it is the same task. Without one, a new key is
        made for this call, so that the tries within it make one task. `tenant_id` is for platform keys. `wait` has the
        service answer when the task has ended, within so many seconds (55 at most). Raises ApiError, Unreachable,
        UnexpectedAnswer; TypeError or Unsendable where the input is no JSON.
        """
        body = given(
            type=type,
            input=input,
            input_ref=input_ref,
            source=source,
            group=group,
            claims=claims,
            requested_class=requested_class,
            supersede_key=supersede_key,
            not_before=not_before,
            due_at=due_at,
            valid_until=valid_until,
            max_attempts=max_attempts,
            timeout_seconds=timeout_seconds,
            callback_url=callback_url,
            metadata=metadata,
        )
        task = yield submission(body, idempotency_key=idempotency_key, tenant_id=tenant_id, wait=wait)
        return Handle(self._shell, task)

    @streaming
    def submit_many(
        self, tasks: Iterable[Mapping[str, Json]], *, tenant_id: str | None = None, retry_for_seconds: float = 60.0
    ) -> Stream[Handle[S] | Refused]:
        """Submit any number of tasks in batches; gives for each, in order, its handle or why it was refused.

        An item has the fields of `submit` as a mapping (`{"type": …, "input": …}`), `idempotency_key` included. Items
        are taken as batches go out, so an endless iterable is welcome. What is refused for the moment (rate, quota) is
        sent again until `retry_for_seconds` have passed without one that was accepted.
        """
        index = 0
        for chunk in chunks(tasks):
            answers = yield from _accepted(chunk, tenant_id, retry_for_seconds)
            given_out: list[Handle[S] | Refused] = []
            for answer in answers:
                if answer.task is not None:
                    given_out.append(Handle(self._shell, answer.task))
                else:
                    given_out.append(Refused(index, answer.problem or Problem(status=answer.status)))
                index += 1
            yield Items(given_out)

    @call
    def wait_all(self, handles: Iterable[Handle[S]], *, wait: float | None = 60.0) -> Flow[list[Task]]:
        """Wait until all have ended; returns their tasks in order, however each ended, and renews the handles.

        One connection does, however many there are. Raises StillRunning with the unfinished ones when the wait is over.
        """
        held = list(handles)
        known = {handle.task_id: handle.task for handle in held}
        seen = yield from until_all_final(list(known), wait, known)
        for handle in held:
            handle.task = seen[handle.task_id]
        unfinished = [task for task in seen.values() if not task.is_final]
        if unfinished:
            raise StillRunning(unfinished, f"{len(unfinished)} of {len(seen)} tasks have not ended after {wait:g} s")
        return [handle.task for handle in held]


def submission(
    body: Mapping[str, Json], *, idempotency_key: str | None, tenant_id: str | None = None, wait: float | None = None
) -> Request[Task]:
    """Make the request that submits one task; without a key of the caller's it gets one of its own."""
    parameters: dict[str, str | float | None] = {"tenant_id": tenant_id, "wait": wait}
    key = idempotency_key if idempotency_key is not None else mint_key()
    return post(
        "/v1/tasks",
        Task,
        body,
        parameters=parameters,
        idempotency_key=key,
        wait_seconds=min(max(0.0, wait or 0.0), 55.0),
    )


def batch(items: Sequence[Mapping[str, Json]], *, tenant_id: str | None = None) -> Request[BatchAnswer]:
    """Make the request that submits many; items without a key get one, so that it may be repeated."""
    keyed = [item if item.get("idempotency_key") else {**item, "idempotency_key": mint_key()} for item in items]
    return post("/v1/tasks/batch", BatchAnswer, {"tasks": keyed}, parameters={"tenant_id": tenant_id}, repeatable=True)


def mint_key() -> str:
    """Make an idempotency key that nobody else has."""
    return secrets.token_urlsafe(16)


def chunks(tasks: Iterable[Mapping[str, Json]]) -> Iterable[list[Mapping[str, Json]]]:
    """Cut items, each with a key, into batches within the limits of number and bytes; a huge one goes alone."""
    chunk: list[Mapping[str, Json]] = []
    size = 0
    for item in tasks:
        if not isinstance(item, Mapping):
            raise TypeError('an item should be a mapping such as {"type": "echo", "input": {}}')
        keyed = given(**item)
        keyed.setdefault("idempotency_key", mint_key())
        own = len(encoded(keyed)) + 1
        if chunk and (len(chunk) == MOST_IN_A_BATCH or size + own > MOST_BYTES_IN_A_BATCH):
            yield chunk
            chunk, size = [], 0
        chunk.append(keyed)
        size += own
    if chunk:
        yield chunk


def _accepted(
    chunk: Sequence[Mapping[str, Json]], tenant_id: str | None, retry_for_seconds: float
) -> Flow[list[BatchItem]]:
    """Send a batch, and what was refused for the moment again; returns what became of each in the end."""
    became: dict[int, BatchItem] = {}
    waiting = list(range(len(chunk)))
    give_up_at = time.monotonic() + retry_for_seconds
    pause_seconds = 0.5
    while True:
        answers = yield from _sent([chunk[index] for index in waiting], tenant_id)
        became.update(zip(waiting, answers, strict=True))
        left = [index for index in waiting if _for_the_moment(became[index])]
        if len(left) < len(waiting):
            give_up_at, pause_seconds = time.monotonic() + retry_for_seconds, 0.5
        waiting = left
        if not waiting or time.monotonic() + pause_seconds > give_up_at:
            return [became[index] for index in range(len(chunk))]
        yield Pause(pause_seconds)
        pause_seconds = min(pause_seconds * 2, 10.0)


def _sent(chunk: Sequence[Mapping[str, Json]], tenant_id: str | None) -> Flow[list[BatchItem]]:
    """Send a batch; one that is too large for the service goes in halves."""
    try:
        answer: BatchAnswer = yield batch(chunk, tenant_id=tenant_id)
    except ApiError as error:
        if error.status != _TOO_LARGE:
            raise
        if len(chunk) == 1:
            return [BatchItem(status=error.status, problem=error.problem)]
        half = len(chunk) // 2
        first = yield from _sent(chunk[:half], tenant_id)
        return first + (yield from _sent(chunk[half:], tenant_id))
    return _matching(answer, len(chunk))


def _matching(answer: BatchAnswer, count: int) -> list[BatchItem]:
    if len(answer.items) != count:
        raise UnexpectedAnswer("a batch was answered with another number of items than it had", status=202)
    return answer.items


def _for_the_moment(item: BatchItem) -> bool:
    return item.problem is not None and bool(item.problem.retryable)
