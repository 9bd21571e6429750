"""The client as commands have it, against answers that are made up here: patience, and errors as texts."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import httpx
import pytest

from app.cli.client import Client, connected
from app.cli.ending import CommandFailed, WrongUsage
from app.client.target import Secret, Target

PROBLEM = {"content-type": "application/problem+json"}


def a_client(
    answer: Callable[[httpx.Request], httpx.Response], *, key: str | None = "dsp_k"
) -> AbstractContextManager[Client]:
    """Make a client whose requests are answered by a function."""
    target = Target("http://despacho.test", Secret(key) if key else None)
    return connected(target, patience_seconds=1.0, transport=httpx.MockTransport(answer))


def refusal(answer: httpx.Response, *, key: str | None = "dsp_k") -> str:
    """Return what a command says when it is answered like this."""
    with pytest.raises(CommandFailed) as failed, a_client(lambda _: answer, key=key) as client:
        client.tasks.get("task_1")
    return str(failed.value)


def test_answers_are_shown_as_they_came_with_fields_that_nobody_knows_yet() -> None:
    body = {"task_id": "task_1", "of_tomorrow": [1.10, None]}

    with a_client(lambda _: httpx.Response(200, json=body)) as client:
        assert client.tasks.get("task_1") == body


def test_no_more_is_asked_for_than_is_wanted() -> None:
    asked: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request.url.params["page_size"])
        return httpx.Response(200, json={"items": [1, 2], "next_page_token": "more"})

    with a_client(answer) as client:
        assert list(client.tasks.list(at_most=2)) == [1, 2]
    assert asked == ["2"]


@pytest.mark.parametrize("status", [429, 503])
def test_what_is_temporary_is_waited_out_even_for_what_may_not_be_repeated(status: int) -> None:
    answers = iter([httpx.Response(status, headers={"retry-after": "0"}), httpx.Response(200, json={"ok": 1})])

    with a_client(lambda _: next(answers)) as client:
        assert client.tasks.retry_now("task_1") == {"ok": 1}


def test_nothing_else_is_tried_again() -> None:
    answers: Iterator[httpx.Response] = iter([httpx.Response(502, text="<html>")])

    with pytest.raises(CommandFailed, match="answered 502"), a_client(lambda _: next(answers)) as client:
        client.tasks.get("task_1")


def test_patience_ends() -> None:
    busy = httpx.Response(503, headers={"retry-after": "5", **PROBLEM}, json={"title": "Busy", "retryable": True})

    assert refusal(busy) == "Busy\nit may work again in 5 s"


def test_a_problem_is_told_with_title_detail_and_pointers() -> None:
    body = {
        "title": "Does not validate", "detail": "See errors.", "status": 422, "code": "invalid_payload",
        "errors": [{"pointer": "#/input/n", "detail": "should be a number"}],
    }  # fmt: skip

    told = refusal(httpx.Response(422, headers=PROBLEM, json=body))

    assert told == "Does not validate: See errors.\n  #/input/n: should be a number"


def test_without_a_key_a_401_says_where_to_put_one() -> None:
    assert "DESPACHO_KEY" in refusal(httpx.Response(401, headers=PROBLEM, json={"title": "No valid key"}), key=None)


@pytest.mark.parametrize("status", [200, 404])
def test_a_stranger_at_the_address_is_recognised(status: int) -> None:
    assert "is this its address" in refusal(httpx.Response(status, text="<html>"))


def test_what_cannot_be_sent_is_wrong_usage() -> None:
    with pytest.raises(WrongUsage, match="visible ASCII"), a_client(lambda _: httpx.Response(500)) as client:
        client.tasks.create({"type": "t"}, idempotency_key="two words")
