"""Firings over daylight saving time, and after an outage."""

from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.schedules import Misfire, ScheduleError, next_firing, to_fire

NEW_YORK = "America/New_York"


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).astimezone(UTC)


def firings(cron: str, start: str, end: str, timezone: str = NEW_YORK) -> list[datetime]:
    found, now = [], at(start)
    while (now := next_firing(cron, timezone, now)) < at(end):
        found.append(now)
    return found


def test_a_time_that_comes_twice_fires_once_and_the_first_time() -> None:
    assert firings("30 1 * * *", "2026-11-01T00:00-04:00", "2026-11-02T00:00-05:00") == [at("2026-11-01T01:30-04:00")]


def test_restarting_in_the_second_of_two_equal_hours_does_not_fire_again() -> None:
    assert next_firing("30 1 * * *", NEW_YORK, at("2026-11-01T01:10-05:00")) == at("2026-11-02T01:30-05:00")


def test_a_time_that_is_skipped_fires_once_right_after_the_gap() -> None:
    assert firings("30 2 * * *", "2027-03-14T00:00-05:00", "2027-03-15T00:00-04:00") == [at("2027-03-14T03:00-04:00")]


def test_every_quarter_goes_on_in_the_extra_hour() -> None:
    found = firings("*/15 * * * *", "2026-11-01T00:59-04:00", "2026-11-01T02:00-05:00")

    assert len(found) == 8
    assert {later - earlier for earlier, later in pairwise(found)} == {timedelta(minutes=15)}


@given(
    st.sampled_from(["30 1 * * *", "30 2 * * *", "*/15 * * * *", "0 0 29 2 *", "15 * * * *", "0 12 * * MON#1"]),
    st.sampled_from([NEW_YORK, "UTC", "America/Sao_Paulo", "Australia/Lord_Howe"]),
    st.datetimes(datetime(2026, 1, 1), datetime(2028, 1, 1), timezones=st.just(UTC)),
)
def test_the_next_firing_is_always_later(cron: str, timezone: str, after: datetime) -> None:
    assert next_firing(cron, timezone, after) > after


@pytest.mark.parametrize(
    ("cron", "timezone", "field"),
    [
        ("* * * *", "UTC", "cron"),
        ("* * * * * *", "UTC", "cron"),
        ("61 * * * *", "UTC", "cron"),
        ("0 0 30 2 *", "UTC", "cron"),
        ("@daily", "UTC", "cron"),
        ("\x00 * * * *", "UTC", "cron"),
        ("* * * * *", "Mars/Olympus", "timezone"),
        ("* * * * *", "America", "timezone"),
        ("* * * * *", "../../etc/passwd", "timezone"),
        ("* * * * *", "", "timezone"),
    ],
)
def test_what_cannot_be_used_is_named(cron: str, timezone: str, field: str) -> None:
    with pytest.raises(ScheduleError) as refused:
        next_firing(cron, timezone, at("2026-11-01T00:00Z"))
    assert refused.value.field == field


def test_missed_firings_make_one_task_or_none() -> None:
    expected, now = at("2026-11-30T10:00Z"), at("2026-11-30T10:32Z")

    assert to_fire("*/10 * * * *", "UTC", Misfire.ONCE, expected=expected, now=now) == (
        expected,
        at("2026-11-30T10:40Z"),
    )
    assert to_fire("*/10 * * * *", "UTC", Misfire.SKIP, expected=expected, now=now) == (None, at("2026-11-30T10:40Z"))


def test_a_firing_that_is_only_just_late_is_not_skipped() -> None:
    expected, now = at("2026-11-30T10:00Z"), at("2026-11-30T10:30:05Z")

    fired, following = to_fire("*/10 * * * *", "UTC", Misfire.SKIP, expected=expected, now=now)

    assert (fired, following) == (at("2026-11-30T10:30Z"), at("2026-11-30T10:40Z"))
