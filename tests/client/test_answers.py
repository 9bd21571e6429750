"""What comes back, read: types that bear the future, pages, waits, and answers that are not the API's."""

import logging
import pickle
import traceback
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

from app.client import (
    NO_RETRIES,
    ApiError,
    ResultWithheld,
    StillRunning,
    TaskCancelled,
    TaskExpired,
    TaskFailed,
    TaskRejected,
    TaskSuperseded,
    UnexpectedAnswer,
    Unreachable,
)
from tests.client.scripted import DONE, TASK, Answer, Seen, page, problem, said
from tests.client.speaking import a_speaker
from tests.client.test_retrying import against
from tests.support.ports import free_port

SECRET = "dsp_hidden-key"


async def test_times_are_aware_money_is_decimal_and_new_fields_are_ignored(kind: str) -> None:
    body = {
        **TASK,
        "status": "a_status_of_tomorrow",
        "submitted_at": "2026-07-01T12:00:00.123456Z",
        "usage": {"input_tokens": 3, "cost_usd": "0.000123", "of_tomorrow": 1},
        "of_tomorrow": {"a": [1]},
        "result": {"big": 123456789012345678901234567890, "float": 0.1, "text": "ação"},
    }
    async with against(kind, [said(body)]) as (speak, _):
        task = await speak(lambda client: client.tasks.get("task_1"))

    assert task.submitted_at == datetime(2026, 7, 1, 12, 0, 0, 123456, tzinfo=UTC)
    assert task.usage.cost_usd == Decimal("0.000123")
    assert task.result == body["result"]
    assert not task.is_final


async def test_a_number_beyond_every_float_in_a_result_breaks_nothing(kind: str) -> None:
    raw = b'{"task_id": "task_1", "type": "echo", "status": "done", "result": [1e400, -0.0]}'
    async with against(kind, [Answer(200, raw, {"Content-Type": "application/json"})]) as (speak, _):
        task = await speak(lambda client: client.tasks.get("task_1"))

    assert task.result == [float("inf"), -0.0]


async def test_a_list_is_read_page_by_page_with_its_filters(kind: str) -> None:
    pages = {None: page([TASK, TASK], "b"), "b": page([], "c"), "c": page([DONE])}

    async with against(kind, lambda seen: pages[seen.query.get("page_token", [None])[0]]) as (speak, script):
        after = datetime(2026, 7, 1, tzinfo=UTC)
        found = await speak(
            lambda client: client.tasks.list(status=["done", "queued"], type="echo", submitted_after=after)
        )

    assert [task.status for task in found] == ["queued", "queued", "done"]
    for seen in script.seen:
        assert seen.query["status"] == ["done", "queued"]
        assert seen.query["submitted_after"] == ["2026-07-01T00:00:00Z"]


async def test_no_page_is_read_before_it_is_wanted(kind: str) -> None:
    async with against(kind, [page([TASK] * 3, "more")]) as (speak, script):
        assert len(await speak(lambda client: client.tasks.list(at_most=2))) == 2

    assert [seen.query["page_size"] for seen in script.seen] == [["2"]]


async def test_a_wait_is_asked_for_in_slices_until_the_end(kind: str) -> None:
    async with against(kind, [said(TASK, 202), said(TASK), said(DONE)]) as (speak, script):
        handle = await speak(lambda client: client.submit("echo"))
        assert await speak.of(lambda: handle.result(wait=300)) == {"n": 1}

    waits = [float(seen.query["wait"][0]) for seen in script.seen[1:]]
    assert len(waits) == 2
    assert all(wait == 55 for wait in waits)


async def test_a_wait_that_is_over_says_so_and_keeps_the_handle(kind: str) -> None:
    async with against(kind, [said(TASK, 202), said({**TASK, "status": "running"})]) as (speak, _):
        handle = await speak(lambda client: client.submit("echo"))
        with pytest.raises(StillRunning, match=r"task_1 is still running after 0\.2 s"):
            await speak.of(lambda: handle.result(wait=0.2))

    assert handle.status == "running"


@pytest.mark.parametrize(
    ("status", "kind_of_error"),
    [
        ("dead_lettered", TaskFailed),
        ("cancelled", TaskCancelled),
        ("expired", TaskExpired),
        ("superseded", TaskSuperseded),
        ("rejected", TaskRejected),
    ],
)
async def test_an_end_that_is_no_result_is_raised_by_its_kind(kind: str, status: str, kind_of_error: type) -> None:
    ended = {**TASK, "status": status, "error": {"type": "rate_limit", "message": "slow down", "retryable": True}}
    async with against(kind, [said(ended, 202)]) as (speak, _):
        handle = await speak(lambda client: client.submit("echo"))
        with pytest.raises(kind_of_error, match=f"task_1 is {status}: rate_limit: slow down") as failed:
            await speak.of(lambda: handle.result())

    assert (failed.value.status, failed.value.error.type) == (status, "rate_limit")
    assert type(failed.value) is kind_of_error
    assert str(pickle.loads(pickle.dumps(failed.value))) == str(failed.value)  # noqa: S301 - made here


async def test_a_result_that_the_key_may_not_see_is_not_taken_for_none(kind: str) -> None:
    async with against(kind, [said({**DONE, "result": None, "withheld": ["result"]}, 202)]) as (speak, _):
        handle = await speak(lambda client: client.submit("echo"))
        with pytest.raises(ResultWithheld, match="payloads:read"):
            await speak.of(lambda: handle.result())


async def test_a_problem_comes_with_all_that_it_says(kind: str) -> None:
    body = (
        b'{"title": "Does not validate", "status": 422, "code": "invalid_payload", "retryable": false,'
        b'"errors": [{"pointer": "#/input/n", "detail": "should be a number"}], "of_tomorrow": 1}'
    )
    async with against(kind, [Answer(422, body, {"Content-Type": "application/problem+json"})]) as (speak, _):
        with pytest.raises(ApiError) as refused:
            await speak(lambda client: client.submit("echo"))

    error = refused.value
    assert (error.status, error.code, error.retryable) == (422, "invalid_payload", False)
    assert [(one.where, one.detail) for one in error.errors] == [("#/input/n", "should be a number")]
    assert "#/input/n: should be a number" in str(error)
    assert pickle.loads(pickle.dumps(error)).code == "invalid_payload"  # noqa: S301 - made here


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (Answer(200, b"<html>", {"Content-Type": "text/html"}), "answered 200 with something that is not JSON"),
        (Answer(200, b"", {"Content-Type": "application/json"}), "not JSON"),
        (Answer(200, b"[" * 100_000, {"Content-Type": "application/json"}), "not JSON"),
        (Answer(200, b"[1]", {"Content-Type": "application/json"}), "in another form"),
        (Answer(200, b'{"task_id": 7}', {"Content-Type": "application/json"}), "in another form"),
        (Answer(404, b"nothing here"), "answered 404 and not as Despacho does"),
        (Answer(403, b'{"message": "no"}', {"Content-Type": "application/json"}), "answered 403"),
        (Answer(401, b'{"title": 7}', {"Content-Type": "application/json"}), "answered 401"),
        (Answer(308, b"", {"Location": "https://elsewhere/"}), "sends elsewhere, which is not followed"),
    ],
)
async def test_an_answer_of_a_stranger_names_the_address_and_what_to_check(
    kind: str, answer: Answer, says: str
) -> None:
    async with against(kind, [answer], retries=NO_RETRIES) as (speak, script):
        with pytest.raises(UnexpectedAnswer) as stranger:
            await speak(lambda client: client.tasks.get("task_1"))

    assert says in str(stranger.value)
    assert script.url in str(stranger.value)


async def test_tls_where_none_is_spoken_is_told_at_once(kind: str) -> None:
    async with against(kind, [said(TASK)]) as (_, script):
        speaker = a_speaker(kind, script.url.replace("http://", "https://"))
        with pytest.raises(Unreachable, match="certificate") as unreachable:
            await speaker(lambda client: client.tasks.get("task_1"))
        await speaker.close()

    assert unreachable.value.why == "tls"


async def test_a_key_is_in_no_repr_log_or_traceback(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    speaker = a_speaker(kind, f"http://127.0.0.1:{free_port()}", SECRET, retries=NO_RETRIES)

    with caplog.at_level(logging.DEBUG), pytest.raises(Unreachable) as unreachable:
        await speaker(lambda client: client.submit("echo"))

    told = traceback.TracebackException.from_exception(unreachable.value, capture_locals=True)
    assert "hidden-key" not in "".join(told.format())
    assert "hidden-key" not in caplog.text + repr(speaker.client) + repr(vars(speaker.client._shell))
    await speaker.close()


async def test_what_is_not_json_is_refused_before_anything_is_sent(kind: str) -> None:
    looped: list[Any] = []
    looped.append(looped)
    async with against(kind, [said(TASK, 202)]) as (speak, script):
        for wrong in (float("nan"), "\ud800", looped, datetime(2026, 7, 1)):
            with pytest.raises(ValueError, match=r"not JSON|aware"):
                await speak(lambda client, wrong=wrong: client.submit("echo", {"value": wrong}))
        for wrong in ({1, 2}, b"bytes", object()):
            with pytest.raises(TypeError, match="cannot be sent as JSON"):
                await speak(lambda client, wrong=wrong: client.submit("echo", {"value": wrong}))
        for wrong in ("", "..", "."):
            with pytest.raises(ValueError, match="id"):
                await speak(lambda client, wrong=wrong: client.tasks.get(wrong))

    assert script.seen == []


async def test_whatever_is_in_an_id_is_one_part_of_the_path(kind: str) -> None:
    def answer(seen: Seen) -> Answer:
        return problem(404, "not_found", False)

    async with against(kind, answer) as (speak, script):
        with pytest.raises(ApiError):
            await speak(lambda client: client.tasks.cancel("../keys/key_1?x=/#"))

    assert script.seen[0].path == "/v1/tasks/..%2Fkeys%2Fkey_1%3Fx%3D%2F%23/cancel"
