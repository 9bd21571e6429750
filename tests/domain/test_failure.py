"""Classifying whatever a handler raises."""

import asyncio
import concurrent.futures
import errno
import json
import socket
from datetime import UTC, datetime

import asyncpg
import httpx
import pytest
import sqlalchemy.exc
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, SecretStr, ValidationError, field_validator

from app.domain.errors import DeadLetter, Retry
from app.domain.failure import Failure, classify

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)


def classified(error: BaseException) -> Failure:
    failure = classify(error, NOW)
    assert_recordable(failure)
    return failure


def assert_recordable(failure: Failure) -> None:
    assert 0 < len(failure.error_type) <= 100
    assert 0 < len(failure.message) <= 2_000
    for text in (failure.error_type, failure.message):
        assert "\0" not in text
        text.encode("utf-8")


def an_http_error(status: int, headers: dict[str, str] | None = None) -> httpx.HTTPStatusError:
    request = httpx.Request("GET", "https://provider.example/v1")
    response = httpx.Response(status, headers=headers, request=request)
    return httpx.HTTPStatusError(f"status {status}", request=request, response=response)


@pytest.mark.parametrize(
    ("error", "error_type", "retryable"),
    [
        (TimeoutError(), "timeout", True),
        (concurrent.futures.TimeoutError(), "timeout", True),
        (httpx.ReadTimeout("slow"), "timeout", True),
        (httpx.ConnectError("refused"), "connection", True),
        (httpx.RemoteProtocolError("closed"), "connection", True),
        (ConnectionResetError(), "connection", True),
        (BrokenPipeError(), "connection", True),
        (socket.gaierror(-2, "Name or service not known"), "connection", True),
        (OSError(errno.EHOSTUNREACH, "no route"), "connection", True),
        (OSError(errno.ETIMEDOUT, "timed out"), "timeout", True),
        (OSError(errno.ENOSPC, "disk full"), "OSError", True),
        (asyncpg.ConnectionDoesNotExistError("gone"), "database_unavailable", True),
        (asyncpg.AdminShutdownError("bye"), "database_unavailable", True),
        (asyncpg.ReadOnlySQLTransactionError("replica"), "database_unavailable", True),
        (asyncpg.DeadlockDetectedError("deadlock"), "database_unavailable", True),
        (asyncpg.InterfaceError("closed"), "database_unavailable", True),
        (asyncpg.UniqueViolationError("twice"), "UniqueViolationError", True),
        (sqlalchemy.exc.OperationalError("SELECT 1", {}, Exception("gone")), "database_unavailable", True),
        (sqlalchemy.exc.TimeoutError("pool"), "database_unavailable", True),
        (FileNotFoundError("a.txt"), "missing_input", False),
        (PermissionError("no"), "permission", False),
        (UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte"), "corrupted_input", False),
        (ValueError("odd"), "ValueError", True),
        (json.JSONDecodeError("odd", "x", 0), "JSONDecodeError", True),
        (KeyboardInterrupt(), "KeyboardInterrupt", True),
        (asyncio.CancelledError(), "CancelledError", True),
        (DeadLetter("business_rule", "the order is closed"), "business_rule", False),
        (Retry(), "retry", True),
    ],
)
def test_errors_are_told_apart(error: BaseException, error_type: str, retryable: bool) -> None:
    failure = classified(error)

    assert (failure.error_type, failure.retryable, failure.spent) == (error_type, retryable, True)


@pytest.mark.parametrize(
    ("status", "error_type", "retryable"),
    [
        (400, "http_400", False),
        (401, "permission", False),
        (403, "permission", False),
        (404, "http_404", False),
        (408, "timeout", True),
        (422, "http_422", False),
        (429, "rate_limit", True),
        (500, "http_500", True),
        (501, "http_501", True),
        (502, "unavailable", True),
        (503, "unavailable", True),
        (504, "timeout", True),
    ],
)
def test_http_answers_are_told_apart(status: int, error_type: str, retryable: bool) -> None:
    failure = classified(an_http_error(status))

    assert (failure.error_type, failure.retryable, failure.retry_after_seconds) == (error_type, retryable, None)


@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.parametrize(
    ("value", "seconds"), [("7", 7.0), ("Mon, 30 Nov 2026 12:00:07 GMT", 7.0), ("-1", None), ("0", None), ("x", None)]
)
def test_retry_after_is_taken_from_the_answer(status: int, value: str, seconds: float | None) -> None:
    assert classified(an_http_error(status, {"Retry-After": value})).retry_after_seconds == seconds


def test_headers_in_a_plain_dictionary_are_read_too() -> None:
    class Answer:
        status_code = 429
        headers = {"Retry-After": "9"}  # noqa: RUF012

    class ProviderError(Exception):
        response = Answer()

    assert classified(ProviderError("slow down")).retry_after_seconds == 9.0


@pytest.mark.parametrize(
    ("asked", "seconds"), [(60, 60.0), (0, 0.0), (None, None), (-1, None), (float("nan"), None), ("soon", None)]
)
def test_a_retry_that_was_asked_for_keeps_its_time(asked: object, seconds: float | None) -> None:
    failure = classified(Retry(after_seconds=asked, message="provider busy"))  # type: ignore[arg-type]

    assert (failure.retry_after_seconds, failure.message) == (seconds, "provider busy")


class Payload(BaseModel):
    api_key: SecretStr
    count: int
    code: str = ""

    @field_validator("code")
    @classmethod
    def known(cls, code: str) -> str:
        if code:
            raise ValueError(f"unknown code {code}")
        return code


def test_a_validation_error_keeps_places_and_no_values() -> None:
    with pytest.raises(ValidationError) as caught:
        Payload.model_validate({"api_key": ["sk-CANARY-1"], "count": "CANARY-2", "code": "CANARY-3"})

    failure = classified(caught.value)

    assert (failure.error_type, failure.retryable) == ("invalid_payload", False)
    assert "api_key: " in failure.message
    assert "count: " in failure.message
    assert "code: is not valid" in failure.message
    assert "CANARY" not in failure.message


class UnprintableError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")

    __repr__ = __str__


class Hostile(BaseException):
    @property
    def response(self) -> object:
        raise SystemExit(3)

    def __str__(self) -> str:
        raise KeyboardInterrupt


class TextSubclass(str):
    def __getitem__(self, key: object) -> str:
        raise RuntimeError("no slices")


class OddTextError(Exception):
    def __str__(self) -> str:
        return TextSubclass("odd")


class TwoArgumentsError(Exception):
    def __init__(self, one: object, two: object) -> None:
        super().__init__(f"{one} and {two}")


class ForgetfulRetry(Retry):
    def __init__(self) -> None:
        pass


class BrokenHeadersError(Exception):
    class Response:
        status_code = 429
        headers = 5

    response = Response()


@pytest.mark.parametrize(
    ("error", "error_type"),
    [
        (Exception(object()), "Exception"),
        (Exception(), "Exception"),
        (Exception("\0\ud800"), "Exception"),
        (Exception("x" * 5_000_000), "Exception"),
        (UnprintableError(), "UnprintableError"),
        (Hostile(), "Hostile"),
        (OddTextError(), "OddTextError"),
        (TwoArgumentsError(1, 2), "TwoArgumentsError"),
        (ForgetfulRetry(), "retry"),
        (BrokenHeadersError(), "rate_limit"),
        (type("N" * 10_000, (Exception,), {})(), "N" * 100),
        (type("Odd name\n", (Exception,), {"__module__": None})(), "Odd_name"),
        (DeadLetter("", ""), "dead_letter"),
        (DeadLetter(5, object()), "5"),  # type: ignore[arg-type]
    ],
)
def test_whatever_is_raised_is_recorded(error: BaseException, error_type: str) -> None:
    assert classified(error).error_type == error_type


def test_an_error_without_a_text_still_says_something() -> None:
    assert classified(UnprintableError()).message == "UnprintableError without a message"


def test_a_group_is_as_final_as_its_most_final_member() -> None:
    soft = ExceptionGroup("both", [TimeoutError("a"), an_http_error(429, {"Retry-After": "7"})])
    hard = ExceptionGroup("both", [TimeoutError("a"), ExceptionGroup("in", [PermissionError("b")])])

    assert classified(soft) == Failure(
        "ExceptionGroup", "2 errors together: timeout: a; rate_limit: status 429", True, 7.0, True
    )
    assert (classified(hard).error_type, classified(hard).retryable) == ("ExceptionGroup", False)


def test_deep_and_wide_groups_are_recorded() -> None:
    deep: BaseException = ValueError("at the bottom")
    for _ in range(5_000):
        deep = ExceptionGroup("layer", [deep])  # type: ignore[list-item]
    wide = ExceptionGroup("wide", [ValueError("x" * 10_000) for _ in range(5_000)])

    assert classified(deep).error_type == "ValueError"
    assert classified(wide).error_type == "ExceptionGroup"
    assert "ValueError" in classified(wide).message


@given(st.text(alphabet=st.characters(exclude_categories=()), max_size=500))
def test_any_message_is_recorded(text: str) -> None:
    classified(Exception(text))
    classified(DeadLetter(text, text))
    classified(ExceptionGroup("g", [Exception(text)]))
