"""How a task stands with whoever shall call it back."""

import pytest

from app.domain.callbacks import (
    Callback,
    CallbackOutcome,
    Called,
    Overdue,
    Pending,
    Standing,
    Undelivered,
    standing_of,
)

DONE = CallbackOutcome("1")
FAILED = CallbackOutcome(None, "busy", "later", retryable=True)


def an_address(
    left_seconds: float | None = None, outcome: CallbackOutcome | None = None, *, read: bool = False, name: bytes = b"a"
) -> Callback:
    return Callback(name, left_seconds, outcome is not None, read, outcome or CallbackOutcome())


@pytest.mark.parametrize(
    ("addresses", "standing"),
    [
        ([], Undelivered()),
        ([an_address()], Undelivered()),
        ([an_address(5.0)], Pending(5.0)),
        ([an_address(-1.0)], Overdue()),
        ([an_address(-1.0, read=True)], Undelivered(over=1)),
        ([an_address(5.0, DONE)], Called(b"a", DONE)),
        ([an_address(-5.0, DONE)], Called(b"a", DONE)),
        ([an_address(None, FAILED)], Called(b"a", FAILED)),
        ([an_address(5.0, FAILED, read=True)], Undelivered(over=1, returned=1)),
        ([an_address(5.0), an_address(-1.0, read=True, name=b"b")], Pending(5.0)),
        ([an_address(5.0), an_address(-1.0, DONE, name=b"b")], Called(b"b", DONE)),
        ([an_address(), an_address(3.0, name=b"b")], Pending(3.0)),
    ],
)
def test_what_was_said_counts_then_what_is_promised_then_what_is_overdue(
    addresses: list[Callback], standing: Standing
) -> None:
    assert standing_of(addresses) == standing
