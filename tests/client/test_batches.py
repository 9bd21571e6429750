"""Many at once: chunks, halves, items that are refused, and waiting for all."""

import itertools
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from app.client import ApiError, Handle, Refused, StillRunning, Task
from tests.client.scripted import DONE, DROPPED, TASK, Answer, Seen, page, problem, said
from tests.client.test_retrying import against

NOW = datetime(2026, 7, 1, 12, tzinfo=UTC)


def item_of(item: dict[str, Any]) -> dict[str, Any]:
    """Accept an item; its task is named after its input."""
    return {"status": 202, "task": {**TASK, "task_id": f"task_{item['input']}"}, "idempotency_replayed": False}


def refusal_of(code: str, *, retryable: bool) -> dict[str, Any]:
    """Refuse an item."""
    return {"status": 429, "problem": {"title": code, "status": 429, "code": code, "retryable": retryable}}


def answer_of(items: list[dict[str, Any]]) -> Answer:
    """Answer a batch."""
    refused = sum("problem" in item for item in items)
    return said({"accepted": len(items) - refused, "refused": refused, "items": items}, 207 if refused else 202)


def items_in(seen: Seen) -> list[dict[str, Any]]:
    """Read the items of a batch."""
    items: list[dict[str, Any]] = json.loads(seen.body)["tasks"]
    return items


def orders(count: int, text: str = "") -> Iterator[dict[str, Any]]:
    """Make items, one after another."""
    return ({"type": "echo", "input": number, "metadata": {"text": text}} for number in range(count))


def accept(seen: Seen) -> Answer:
    """Accept every item."""
    return answer_of([item_of(item) for item in items_in(seen)])


async def test_any_number_goes_in_batches_and_comes_back_in_order(kind: str) -> None:
    async with against(kind, accept) as (speak, script):
        handles = await speak(lambda client: client.submit_many(orders(2001)))

    assert [handle.task_id for handle in handles] == [f"task_{number}" for number in range(2001)]
    assert [len(items_in(seen)) for seen in script.seen] == [1000, 1000, 1]
    keys = [item["idempotency_key"] for seen in script.seen for item in items_in(seen)]
    assert len(set(keys)) == 2001


async def test_batches_stay_below_the_limit_of_a_body(kind: str) -> None:
    async with against(kind, accept) as (speak, script):
        assert len(await speak(lambda client: client.submit_many(orders(10, "x" * 300_000)))) == 10

    assert all(len(seen.body) <= 1_000_000 for seen in script.seen)
    assert len(script.seen) == 4


async def test_a_batch_that_is_too_large_for_the_service_goes_in_halves_and_an_item_that_is_gets_its_problem(
    kind: str,
) -> None:
    def answer(seen: Seen) -> Answer:
        too_large = len(items_in(seen)) > 2 or any(item["input"] == 3 for item in items_in(seen))
        return problem(413, "payload_too_large", False) if too_large else accept(seen)

    async with against(kind, answer) as (speak, _):
        became = await speak(lambda client: client.submit_many(orders(7)))

    assert [type(one) for one in became] == [Handle, Handle, Handle, Refused, Handle, Handle, Handle]
    assert (became[3].index, became[3].problem.code) == (3, "payload_too_large")


async def test_a_lost_answer_is_asked_for_again_with_the_same_keys(kind: str) -> None:
    first = iter([True])
    async with against(kind, lambda seen: DROPPED if next(first, False) else accept(seen)) as (speak, script):
        await speak(lambda client: client.submit_many([{"type": "echo", "input": 1, "idempotency_key": "mine"}]))

    assert [items_in(seen)[0]["idempotency_key"] for seen in script.seen] == ["mine", "mine"]


async def test_what_is_refused_for_the_moment_is_sent_again_and_what_is_refused_for_good_is_told(kind: str) -> None:
    def answer(seen: Seen) -> Answer:
        sent.append([item["input"] for item in items_in(seen)])
        return answer_of([verdict(item["input"]) or item_of(item) for item in items_in(seen)])

    def verdict(number: int) -> dict[str, Any] | None:
        if number == 1:
            return refusal_of("invalid_payload", retryable=False)
        return refusal_of("submit_rate_exceeded", retryable=True) if number > 1 and len(sent) == 1 else None

    sent: list[list[int]] = []
    async with against(kind, answer) as (speak, _):
        became = await speak(lambda client: client.submit_many(orders(4)))

    assert sent == [[0, 1, 2, 3], [2, 3]]
    assert [getattr(one, "task_id", None) for one in became] == ["task_0", None, "task_2", "task_3"]
    assert became[1].problem.code == "invalid_payload"


async def test_patience_with_items_ends(kind: str) -> None:
    async with against(
        kind, lambda seen: answer_of([refusal_of("open_tasks_quota", retryable=True) for _ in items_in(seen)])
    ) as (speak, _):
        became = await speak(lambda client: client.submit_many(orders(2), retry_for_seconds=0.1))

    assert [one.problem.code for one in became] == ["open_tasks_quota"] * 2


async def test_an_item_that_is_no_mapping_is_refused_by_its_kind(kind: str) -> None:
    async with against(kind, accept) as (speak, _):
        with pytest.raises(TypeError, match="mapping"):
            await speak(lambda client: client.submit_many(["echo"]))


async def test_items_are_taken_no_faster_than_batches_go_out(kind: str) -> None:
    taken = itertools.count()
    async with against(kind, [problem(403, "forbidden", False)]) as (speak, _):
        with pytest.raises(ApiError):
            await speak(lambda client: client.submit_many({"type": "echo", "input": next(taken)} for _ in iter(int, 1)))

    assert next(taken) <= 1002


async def test_all_are_waited_for_over_one_connection(kind: str) -> None:
    def answer(seen: Seen) -> Answer:
        if seen.method == "POST":
            return accept(seen)
        return said({**DONE, "task_id": seen.path.rpartition("/")[2]})

    async with against(kind, answer) as (speak, script):
        handles = await speak(lambda client: client.submit_many(orders(50)))
        tasks = await speak(lambda client: client.wait_all(handles, wait=30))

    assert [task.task_id for task in tasks] == [f"task_{number}" for number in range(50)]
    assert all(handle.task.is_done for handle in handles)
    assert len(script.seen) == 51


async def test_what_ended_meanwhile_is_read_in_pages(kind: str) -> None:
    def answer(seen: Seen) -> Answer:
        if seen.method == "POST":
            return answer_of([timed(item_of(item)) for item in items_in(seen)])
        if seen.path == "/v1/tasks":
            assert seen.query["include"] == ["result"]
            start = int(seen.query.get("page_token", ["0"])[0])
            found = [{**DONE, "task_id": f"task_{number}"} for number in range(start, start + 200)]
            return page(found, str(start + 200) if start < 400 else None)
        return said({**DONE, "task_id": seen.path.rpartition("/")[2]})

    def timed(item: dict[str, Any]) -> dict[str, Any]:
        return {**item, "task": {**item["task"], "submitted_at": "2026-07-01T12:00:00Z"}}

    async with against(kind, answer) as (speak, script):
        handles = await speak(lambda client: client.submit_many(orders(600)))
        tasks = await speak(lambda client: client.wait_all(handles, wait=30))

    assert all(task.result == {"n": 1} for task in tasks) and len(tasks) == 600
    assert len(script.seen) == 1 + 1 + 3


async def test_a_key_that_may_not_see_results_waits_one_by_one(kind: str) -> None:
    def answer(seen: Seen) -> Answer:
        if seen.path == "/v1/tasks":
            return problem(403, "forbidden", False)
        return said({**DONE, "task_id": seen.path.rpartition("/")[2]})

    async with against(kind, answer) as (speak, script):
        handle_of = [Task(**{**TASK, "task_id": f"task_{n}", "submitted_at": NOW}) for n in range(30)]
        handles = [Handle(speak.client._shell, task) for task in handle_of]
        assert len(await speak(lambda client: client.wait_all(handles, wait=30))) == 30

    assert len(script.seen) == 31


async def test_those_that_have_not_ended_in_time_are_told(kind: str) -> None:
    def answer(seen: Seen) -> Answer:
        if seen.method == "POST":
            return accept(seen)
        task_id = seen.path.rpartition("/")[2]
        return said({**(DONE if task_id == "task_2" else TASK), "task_id": task_id})

    async with against(kind, answer) as (speak, _):
        handles = await speak(lambda client: client.submit_many(orders(3)))
        with pytest.raises(StillRunning, match="2 of 3") as running:
            await speak(lambda client: client.wait_all(handles, wait=0.1))

    assert [task.task_id for task in running.value.tasks] == ["task_0", "task_1"]
    assert handles[2].task.is_done
