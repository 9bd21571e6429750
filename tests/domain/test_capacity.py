"""Seats between classes: reserves, maxima, and what is left."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.capacity import Capacity, Pool, Seats, seat_book
from tests.domain.policies import a_class, a_policy, four_classes, one_pool


def reserves(policy_seats: int) -> list[int]:
    policy = four_classes()
    return [one.reserve for one in seat_book(policy, one_pool(policy, policy_seats).pools).allotments.values()]


@pytest.mark.parametrize(
    ("seats", "expected"),
    [
        (0, [0, 0, 0, 0]),
        (1, [0, 0, 0, 0]),
        (2, [1, 0, 0, 0]),
        (3, [1, 0, 1, 0]),
        (4, [1, 1, 1, 1]),
        (8, [2, 1, 2, 1]),
        (20, [4, 2, 4, 1]),
        (100, [20, 10, 20, 5]),
    ],
)
def test_reserves_are_rounded_up_and_trimmed_only_when_they_do_not_fit(seats: int, expected: list[int]) -> None:
    assert reserves(seats) == expected


def test_a_maximum_is_at_least_one_seat_and_never_more_than_there_are() -> None:
    policy = four_classes()

    maxima = {
        seats: [one.maximum for one in seat_book(policy, one_pool(policy, seats).pools).allotments.values()]
        for seats in (1, 2, 10)
    }

    assert maxima == {1: [1, 1, 1, 1], 2: [1, 1, 2, 2], 10: [8, 8, 10, 10]}


def test_a_class_counts_only_the_seats_that_it_reaches() -> None:
    policy = a_policy(a_class("high", nominal=0.5), a_class("low", nominal=0.5))
    pools = (Pool(frozenset({"high"}), 2), Pool(frozenset({"high", "low"}), 4))

    book = seat_book(policy, pools)

    assert {name: one.reach for name, one in book.allotments.items()} == {"high": 6, "low": 4}
    assert {name: one.reserve for name, one in book.allotments.items()} == {"high": 3, "low": 2}


def test_room_follows_the_pools() -> None:
    policy = a_policy(a_class("high", nominal=0), a_class("low", nominal=0))
    pools = (Pool(frozenset({"high"}), 2), Pool(frozenset({"high", "low"}), 4))

    seats = Seats(policy, Capacity(pools, {"low": 3, "high": 1}))

    assert (seats.room("low"), seats.room("high")) == (1, 2)


def test_a_class_that_no_worker_serves_has_no_room() -> None:
    policy = a_policy()
    seats = Seats(policy, Capacity((Pool(frozenset({"high"}), 3), Pool(frozenset({"low"}), 0))))

    assert seats.book.allotments["low"].reach == 0
    assert seats.room("low") == 0


def test_short_tasks_count_for_parts_of_a_seat() -> None:
    policy = a_policy(a_class("high", nominal=0), a_class("low", nominal=0))
    seats = Seats(policy, one_pool(policy, 2, {"high": 5}, {"high": 10.0, "low": 0.1}))

    assert seats.load("high") == pytest.approx(0.5)
    assert seats.places("high", seats.room("high")) == 15
    assert seats.places("low", seats.room("low")) == 1


def test_what_is_held_for_one_class_is_not_free_for_another() -> None:
    policy = a_policy(a_class("high", nominal=0), a_class("low", nominal=0))
    seats = Seats(policy, one_pool(policy, 1, {"low": 5}, {"low": 10.0}))

    seats.hold("high")

    assert seats.room("low") == pytest.approx(0)
    assert seats.room("high") == pytest.approx(0.5)


@st.composite
def _policies_and_pools(draw: st.DrawFn) -> tuple[list[float], list[tuple[frozenset[str], int]]]:
    count = draw(st.integers(1, 5))
    shares = draw(st.lists(st.floats(0, 1), min_size=count, max_size=count))
    total = max(1.0, sum(shares))
    names = [f"c{number}" for number in range(count)]
    pools = draw(st.lists(st.tuples(st.frozensets(st.sampled_from(names)), st.integers(0, 7)), min_size=1, max_size=4))
    return [share / total for share in shares], pools


@given(_policies_and_pools())
def test_reserves_fit_whatever_the_pools_and_leave_a_seat_to_who_has_none(
    drawn: tuple[list[float], list[tuple[frozenset[str], int]]],
) -> None:
    shares, pools = drawn
    policy = a_policy(*(a_class(f"c{number}", nominal=share) for number, share in enumerate(shares)))
    live = tuple(Pool(classes, seats) for classes, seats in pools)

    book = seat_book(policy, live)

    seats = Seats(policy, Capacity(live))
    for name, one in book.allotments.items():
        assert 0 <= one.reserve <= one.maximum <= one.reach
        assert 1 <= one.turn <= 100
        if one.reach:
            assert seats.room(name) >= max(1, one.reserve), "an idle system has a seat for every class it serves"


def test_trimming_takes_no_more_than_needed() -> None:
    policy = a_policy(a_class("high", nominal=0.5), a_class("low", nominal=0.5), a_class("none", nominal=0))

    book = seat_book(policy, one_pool(policy, 4).pools)

    assert [one.reserve for one in book.allotments.values()] == [2, 1, 0]


def test_a_share_close_to_nothing_still_has_a_turn() -> None:
    policy = a_policy(a_class("high", nominal=1e-309), a_class("low", nominal=0.3))

    book = seat_book(policy, one_pool(policy, 1).pools)

    assert [one.turn for one in book.allotments.values()] == [100, 4]


def test_classes_that_overlap_in_part_are_counted_together() -> None:
    policy = a_policy(a_class("high", nominal=0), a_class("low", nominal=0))
    pools = (Pool(frozenset({"high"}), 1), Pool(frozenset({"high", "low"}), 1), Pool(frozenset({"low"}), 1))

    seats = Seats(policy, Capacity(pools, {"high": 2}))

    assert seats.room("low") == 1
