"""What proves that nothing was sent, and what does not."""

import socket

import httpx
import pytest

from app.domain.addresses import AddressForbidden
from app.domain.errors import NotAccepted, NotSent
from app.domain.sent import was_not_sent

REQUEST = httpx.Request("POST", "http://127.0.0.1/")


def _from(error: BaseException, cause: BaseException) -> BaseException:
    error.__cause__ = cause
    return error


def _after(error: BaseException, context: BaseException) -> BaseException:
    error.__context__ = context
    return error


@pytest.mark.parametrize(
    "error",
    [
        NotSent("no"),
        NotAccepted("refused"),
        _from(NotAccepted("refused"), httpx.HTTPStatusError("503", request=REQUEST, response=httpx.Response(503))),
        AddressForbidden("leads inside"),
        ConnectionRefusedError(),
        socket.gaierror(-2, "unknown"),
        httpx.ConnectError("refused"),
        _from(httpx.ConnectTimeout("late"), TimeoutError()),
        httpx.PoolTimeout("busy"),
        _from(RuntimeError("ticket system"), httpx.ConnectError("refused")),
        _from(ValueError("deep"), _from(RuntimeError("x"), ConnectionRefusedError())),
        ExceptionGroup("all addresses", [ConnectionRefusedError(), ConnectionRefusedError()]),
        _from(OSError("all failed"), ExceptionGroup("all", [ConnectionRefusedError()])),
    ],
)
def test_nothing_was_sent(error: BaseException) -> None:
    assert was_not_sent(error)


@pytest.mark.parametrize(
    "error",
    [
        TimeoutError(),
        ConnectionResetError(),
        OSError("all failed"),
        RuntimeError("x"),
        httpx.ReadTimeout("late"),
        httpx.RemoteProtocolError("gone"),
        httpx.HTTPStatusError("503", request=REQUEST, response=httpx.Response(503, request=REQUEST)),
        # A client that was refused at its second try: the first may have been accepted.
        _after(httpx.ConnectError("refused"), httpx.ReadTimeout("late")),
        _from(RuntimeError("gave up"), _after(httpx.ConnectError("refused"), httpx.ReadTimeout("late"))),
        _after(RuntimeError("in a handler of the error"), ConnectionRefusedError()),
        ExceptionGroup("both", [ConnectionRefusedError(), httpx.ReadError("gone")]),
        ExceptionGroup("both", [ConnectionRefusedError(), ValueError("x")]),
    ],
)
def test_something_may_have_been_sent(error: BaseException) -> None:
    assert not was_not_sent(error)


def test_errors_that_cause_each_other_end() -> None:
    one, two = RuntimeError(), RuntimeError()
    one.__cause__, two.__cause__ = two, one

    assert not was_not_sent(one)


async def test_the_real_client_is_understood() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]

    async with httpx.AsyncClient() as client:
        with pytest.raises(httpx.ConnectError) as refused:
            await client.post(f"http://127.0.0.1:{port}/")

    assert was_not_sent(refused.value)
