"""The order in which a worker claims what it has received."""

import pytest

from app.broker.base import Delivery, TaskMessage
from workers.inbox import Inbox

RANKS = {"critical": 0, "common": 1}


def an_inbox(*arrivals: tuple[str, str, float]) -> Inbox:
    inbox = Inbox(lambda name: RANKS[name])
    for number, (priority_class, tenant, at_seconds) in enumerate(arrivals):
        message = TaskMessage(f"task_{number}", "quick", tenant, 1, 1, "2026-11-30T12:00:00Z")
        inbox.add(at_seconds, Delivery(priority_class, message, False, number), message)
    return inbox


def numbers(entries: list[tuple[Delivery, TaskMessage]]) -> list[int]:
    return [delivery.tag for delivery, _ in entries]


def test_a_late_tenant_is_claimed_in_its_turn_and_not_behind_a_flood() -> None:
    inbox = an_inbox(*[("common", "acme", 1.0)] * 5, ("common", "beta", 2.0))

    assert numbers(inbox.take(3)) == [0, 5, 1]
    assert numbers(inbox.take(10)) == [2, 3, 4]
    assert len(inbox) == 0


def test_turns_go_on_from_one_take_to_the_next() -> None:
    inbox = an_inbox(*[("common", "acme", 1.0)] * 2, *[("common", "beta", 1.0)] * 2, ("common", "gamma", 1.0))

    assert [numbers(inbox.take(1)) for _ in range(5)] == [[0], [2], [4], [1], [3]]


def test_the_higher_class_goes_first() -> None:
    inbox = an_inbox(("common", "acme", 1.0), ("critical", "acme", 2.0))

    assert numbers(inbox.take(2)) == [1, 0]


def test_what_has_waited_too_long_is_found_whatever_its_turn() -> None:
    inbox = an_inbox(
        ("common", "acme", 1.0), ("common", "acme", 5.0), ("common", "beta", 2.0), ("critical", "beta", 9.0)
    )

    assert inbox.oldest_seconds() == 1.0
    assert sorted(numbers(inbox.take_older(2.0, 10))) == [0, 2]
    assert inbox.oldest_seconds() == 5.0
    assert numbers(inbox.take(10)) == [3, 1]


def test_no_more_is_taken_than_asked_for() -> None:
    inbox = an_inbox(*[("common", "acme", 1.0)] * 4)

    assert len(inbox.take_older(1.0, 3)) == 3
    assert len(inbox) == 1
    assert numbers(inbox.take(0)) == []
    with pytest.raises(ValueError, match="empty"):
        an_inbox().oldest_seconds()
