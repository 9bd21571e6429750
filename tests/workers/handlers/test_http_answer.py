"""What an endpoint's answer means for its task."""

from typing import Any

import httpx
import pytest

from despacho import DeadLetter
from workers.handlers.http_answer import Expectation, result_of


def an_answer(status: int, body: bytes | str, content_type: str | None) -> httpx.Response:
    return httpx.Response(status, content=body, headers={"content-type": content_type} if content_type else {})


@pytest.mark.parametrize(
    ("body", "content_type"),
    [
        (b"not json", "application/json"),
        (b'{"a": NaN}', "application/json"),
        (b'{"a": -Infinity}', "application/json"),
        (b'{"a": 1e999}', "application/json"),
        (b'{"a": "\\u0000"}', "application/json"),
        (b'{"\\u0000": 1}', "application/json"),
        (b'{"a": ["\\ud800"]}', "application/json"),
        (b'{"a": 1' + b"0" * 5000 + b"}", "application/json"),
        (b"\xff\xfe", "application/json"),
        (b"[" * 100_000, "application/json"),
        (b"[" * 70 + b"]" * 70, "application/json"),
        (b"<html>", "text/html"),
        (b"{}", "multipart/form-data"),
    ],
)
def test_an_answer_that_cannot_be_a_result_is_a_clear_failure(body: bytes, content_type: str) -> None:
    with pytest.raises(DeadLetter, match="the endpoint's answer cannot be the result: its") as failed:
        result_of(an_answer(200, body, content_type), Expectation())

    assert failed.value.error_type == "invalid_response"


@pytest.mark.parametrize(
    ("response", "expect", "result"),
    [
        (an_answer(204, "", None), {}, None),
        (an_answer(201, " ", "text/plain"), {}, None),
        (an_answer(200, "{}", None), {}, {}),
        (an_answer(200, "\ufeff[1]", "application/problem+json; charset=utf-8"), {}, [1]),
        (
            an_answer(200, "hé", "text/plain"),
            {"content": "text"},
            {"status": 200, "content_type": "text/plain", "text": "hé"},
        ),
        (an_answer(404, b"\xff", "text/html"), {"status": [404], "content": "nothing"}, {"status": 404}),
    ],
)
def test_what_is_expected_decides_what_is_a_result(
    response: httpx.Response, expect: dict[str, Any], result: Any
) -> None:
    expectation = Expectation.model_validate(expect)

    assert expectation.accepts(response.status_code)
    assert result_of(response, expectation) == result


def test_every_2xx_is_expected_unless_others_are_named() -> None:
    assert [status for status in (199, 200, 299, 300, 404) if Expectation().accepts(status)] == [200, 299]
    assert not Expectation(status=[201]).accepts(200)
