"""The exceptions that handlers raise on purpose."""

import json
import pickle

import pytest

from app.domain.errors import (
    DeadLetter,
    OwnershipLost,
    Retry,
    Snoozed,
    Suspended,
    Yielded,
    yielded_as_message,
    yielded_in,
    yielded_of_message,
)


def test_they_travel_between_processes_whole() -> None:
    retry = pickle.loads(pickle.dumps(Retry(after_seconds=3, message="provider busy")))  # noqa: S301
    dead = pickle.loads(pickle.dumps(DeadLetter("invalid_payload", "no such page")))  # noqa: S301

    assert (retry.after_seconds, retry.message, str(retry)) == (3, "provider busy", "provider busy")
    assert (dead.error_type, dead.message, str(dead)) == ("invalid_payload", "no such page", "no such page")


def test_a_retry_needs_no_arguments() -> None:
    assert (Retry().after_seconds, Retry().message) == (None, "")


@pytest.mark.parametrize("how", [Snoozed(1.5, "not_yet", "the sun is up"), Suspended("approval_1"), OwnershipLost()])
def test_every_way_of_yielding_travels_as_json(how: Yielded) -> None:
    again = yielded_of_message(json.loads(json.dumps(yielded_as_message(how))))

    assert type(again) is type(how)
    assert again.__reduce__() == how.__reduce__()


def test_a_kind_that_there_is_not_is_an_error() -> None:
    with pytest.raises(ValueError, match="kind"):
        yielded_of_message(["SystemExit", 3])


def test_how_a_group_yielded_is_found_at_any_depth() -> None:
    soon, later = Snoozed(1.0, "soon"), Snoozed(2.0, "later")
    suspended, lost = Suspended("approval_1"), OwnershipLost()

    assert yielded_in(soon) is soon
    assert yielded_in(BaseExceptionGroup("g", [soon, BaseExceptionGroup("h", [later])])) is later
    assert yielded_in(BaseExceptionGroup("g", [soon, suspended])) is suspended
    assert yielded_in(BaseExceptionGroup("g", [ValueError(), suspended, lost])) is lost


def test_beside_a_failure_nobody_has_yielded() -> None:
    assert yielded_in(ValueError()) is None
    assert yielded_in(BaseExceptionGroup("g", [Snoozed(1.0, "soon"), ValueError()])) is None
