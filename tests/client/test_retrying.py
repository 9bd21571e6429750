"""What is sent again and what is not, against a server that answers by a script."""

import time
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from app.client import NO_RETRIES, ApiError, Retries, UnexpectedAnswer, Unreachable
from tests.client.scripted import DROPPED, SILENT, TASK, Answer, Script, Seen, problem, said, scripted
from tests.client.speaking import QUICK, Speaker, a_speaker
from tests.support.ports import free_port

HTML = Answer(502, b"<html>Bad gateway</html>", {"Content-Type": "text/html"})
CUT = Answer(202, b'{"task_id": "task_1", ', {"Content-Type": "application/json"}, cut=True)


@asynccontextmanager
async def against(
    kind: str, answers: Iterable[Answer] | Callable[[Seen], Answer], *, retries: Retries = QUICK, **more: float
) -> AsyncIterator[tuple[Speaker, Script]]:
    """Have a client of a kind and the server that it talks to."""
    with scripted(answers) as script:
        speaker = a_speaker(kind, script.url, retries=retries, **more)
        try:
            yield speaker, script
        finally:
            await speaker.close()


@pytest.mark.parametrize(
    "first",
    [
        pytest.param(problem(503, "database_unavailable", True, Retry_After="0"), id="503"),
        pytest.param(Answer(503), id="503_of_a_proxy"),
        pytest.param(HTML, id="502_of_a_proxy"),
        pytest.param(Answer(500), id="500"),
        pytest.param(Answer(408), id="408"),
        pytest.param(Answer(425), id="425"),
        pytest.param(problem(429, "submit_rate_exceeded", True), id="429"),
        pytest.param(problem(409, "idempotency_in_flight", True, Retry_After="0"), id="still_in_flight"),
        pytest.param(DROPPED, id="connection_lost"),
        pytest.param(CUT, id="answer_cut"),
    ],
)
async def test_a_submission_is_sent_again_with_the_same_key(kind: str, first: Answer) -> None:
    async with against(kind, [first, first, said(TASK, 202)]) as (speak, script):
        handle = await speak(lambda client: client.submit("echo", {"a": 1}))

    assert handle.task_id == "task_1"
    assert len(script.seen) == 3
    assert len({(seen.key, seen.body) for seen in script.seen}) == 1
    assert script.seen[0].key


async def test_an_answer_that_does_not_come_in_time_is_asked_for_again(kind: str) -> None:
    async with against(kind, [SILENT, said(TASK, 202)], timeout_seconds=0.3) as (speak, script):
        await speak(lambda client: client.submit("echo", idempotency_key="mine"))

    assert [seen.key for seen in script.seen] == ["mine", "mine"]


@pytest.mark.parametrize("first", [Answer(503), problem(429, "slow_down", True), DROPPED, HTML], ids=lambda a: a.status)
async def test_what_may_not_be_done_twice_is_sent_once(kind: str, first: Answer) -> None:
    async with against(kind, [first, said(TASK)]) as (speak, script):
        with pytest.raises((ApiError, UnexpectedAnswer, Unreachable)):
            await speak(lambda client: client.dead_letters.reprocess("task_1", "mended"))

    assert len(script.seen) == 1


async def test_what_was_never_sent_is_sent_again_whatever_it_is(kind: str) -> None:
    speaker = a_speaker(kind, f"http://127.0.0.1:{free_port()}", retries=Retries(for_seconds=0.3, base_seconds=0.02))
    began = time.monotonic()

    with pytest.raises(Unreachable) as unreachable:
        await speaker(lambda client: client.pauses.create("class:common", "why"))

    assert unreachable.value.nothing_sent
    assert unreachable.value.why == "refused"
    assert 0.05 < time.monotonic() - began < 5
    await speaker.close()


@pytest.mark.parametrize(
    "answer",
    [
        problem(422, "invalid_payload", False),
        problem(404, "not_found", False),
        problem(500, "broken", False),
        Answer(501),
        Answer(404, b"<html>"),
        Answer(301, b"", {"Location": "https://user:hidden-word@elsewhere/"}),
    ],
    ids=["422", "404", "its_own_word", "501", "stranger", "redirect"],
)
async def test_what_will_not_change_is_not_tried_again(kind: str, answer: Answer) -> None:
    async with against(kind, [answer]) as (speak, script):
        with pytest.raises((ApiError, UnexpectedAnswer)) as refused:
            await speak(lambda client: client.submit("echo"))

    assert len(script.seen) == 1
    assert "hidden-word" not in str(refused.value)


@pytest.mark.parametrize("form", ["seconds", "date"])
async def test_retry_after_is_never_undercut(kind: str, form: str) -> None:
    def answer(_: Seen) -> Answer:
        if not told:
            told.append(time.time())
            asked = "1" if form == "seconds" else format_datetime(datetime.now(UTC) + timedelta(seconds=2), usegmt=True)
            return problem(503, "busy", True, Retry_After=asked)
        told.append(time.time())
        return said(TASK, 202)

    told: list[float] = []
    async with against(kind, answer) as (speak, _):
        await speak(lambda client: client.submit("echo"))

    # A date has whole seconds: two seconds ahead may be written as little more than one.
    assert told[1] - told[0] >= 1.0


async def test_a_wait_that_is_longer_than_the_patience_is_not_begun(kind: str) -> None:
    began = time.monotonic()
    async with against(kind, [problem(429, "submit_rate_exceeded", True, Retry_After="60")]) as (speak, script):
        with pytest.raises(ApiError) as refused:
            await speak(lambda client: client.submit("echo"))

    assert (refused.value.code, refused.value.status, refused.value.retryable) == ("submit_rate_exceeded", 429, True)
    assert refused.value.retry_after_seconds == 60
    assert len(script.seen) == 1
    assert time.monotonic() - began < 4


async def test_retries_end(kind: str) -> None:
    retries = Retries(for_seconds=0.3, base_seconds=0.05, cap_seconds=0.05)
    async with against(kind, [Answer(503)], retries=retries) as (speak, script):
        with pytest.raises(UnexpectedAnswer, match="answered 503"):
            await speak(lambda client: client.tasks.get("task_1"))

    assert 2 <= len(script.seen) < 200


async def test_without_retries_there_is_one_try(kind: str) -> None:
    async with against(kind, [Answer(503)], retries=NO_RETRIES) as (speak, script):
        with pytest.raises(UnexpectedAnswer):
            await speak(lambda client: client.submit("echo"))

    assert len(script.seen) == 1


async def test_what_was_removed_by_a_lost_try_is_removed(kind: str) -> None:
    async with against(kind, [DROPPED, problem(404, "not_found", False)]) as (speak, _):
        assert await speak(lambda client: client.schedules.delete("schedule_1")) is None
    async with against(kind, [problem(404, "not_found", False)]) as (speak, _):
        with pytest.raises(ApiError):
            await speak(lambda client: client.schedules.delete("schedule_1"))
