"""The Retry-After header."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.retry_after import parse_retry_after

NOW = datetime(2026, 11, 30, 12, 0, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("7", 7.0),
        (" 7\t", 7.0),
        (b"7", 7.0),
        ("0", 0.0),
        ("1.5", 1.5),
        ("0007", 7.0),
        ("999999999999999999999", 86_400.0),
        ("Mon, 30 Nov 2026 12:00:07 GMT", 7.0),
        ("Monday, 30-Nov-26 12:00:07 GMT", 7.0),
        ("Mon Nov 30 12:00:07 2026", 7.0),
        ("Tue Dec  1 00:00:00 2026", 43_200.0),
        ("Mon, 30 Nov 2026 12:00:60 GMT", 59.0),
        ("Mon, 30 Nov 2026 11:59:00 GMT", 0.0),
        ("Sunday, 06-Nov-94 08:49:37 GMT", 0.0),
        ("Fri, 31 Dec 9999 23:59:59 GMT", 86_400.0),
    ],
)
def test_seconds_and_all_three_date_forms_are_read(value: str | bytes, seconds: float) -> None:
    assert parse_retry_after(value, NOW) == seconds


@pytest.mark.parametrize(
    "value",
    [
        None,
        "",
        "  ",
        "-5",
        "+5",
        "NaN",
        "inf",
        "1e3",
        "soon",
        "٧",
        "7;8",
        "7, 8",
        "9" * 65,
        "Mon, 31 Feb 2026 12:00:00 GMT",
        "Mon, 30 Xyz 2026 12:00:00 GMT",
        "Mon, 30 Nov 2026 25:00:00 GMT",
        "Mon, 30 Nov 2026 12:00:07 PST",
        "Mon, 30 Nov 0000 12:00:07 GMT",
        "2026-11-30T12:00:07Z",
        b"\xff\xfe",
    ],
)
def test_anything_else_says_nothing(value: str | bytes | None) -> None:
    assert parse_retry_after(value, NOW) is None


def test_the_zone_of_now_is_irrelevant() -> None:
    elsewhere = NOW.astimezone(timezone(timedelta(hours=-3)))

    assert parse_retry_after("Mon, 30 Nov 2026 12:00:07 GMT", elsewhere) == 7.0


def test_a_two_digit_year_far_ahead_is_a_past_one() -> None:
    assert parse_retry_after("Monday, 30-Nov-77 12:00:07 GMT", NOW) == 0.0
    assert parse_retry_after("Monday, 30-Nov-76 12:00:07 GMT", NOW) == 86_400.0


@given(st.one_of(st.text(max_size=80), st.binary(max_size=80)))
def test_no_value_raises_or_leaves_the_range(value: str | bytes) -> None:
    seconds = parse_retry_after(value, NOW)

    assert seconds is None or 0 <= seconds <= 86_400


@given(st.integers(0, 80_000))
def test_every_date_form_gives_the_same_seconds(ahead: int) -> None:
    when = NOW + timedelta(seconds=ahead)
    month, day, short = when.strftime("%b"), when.day, when.strftime("%a")
    forms = [
        f"{short}, {day:02} {month} {when.year} {when:%H:%M:%S} GMT",
        f"{when:%A}, {day:02}-{month}-{when:%y} {when:%H:%M:%S} GMT",
        f"{short} {month} {day:2} {when:%H:%M:%S} {when.year}",
    ]

    assert [parse_retry_after(form, NOW) for form in forms] == [float(ahead)] * 3
