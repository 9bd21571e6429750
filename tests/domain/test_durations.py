"""Durations in the policy file."""

import pytest

from app.domain.durations import parse_duration


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("250ms", 0.25), ("5s", 5), ("10m", 600), ("2h", 7200), ("1h30m", 5400), ("7d", 604_800), ("1.5s", 1.5)],
)
def test_a_duration_is_read_in_seconds(text: str, seconds: float) -> None:
    assert parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "5", "s", "-5s", "5 s", "1h 30m", "five", "1e3s", "9" * 400 + "s", "٣s", "5s\n"])
def test_anything_else_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match="such as"):
        parse_duration(text)


def test_a_duration_beyond_ten_years_is_refused() -> None:
    with pytest.raises(ValueError, match="ten years"):
        parse_duration("999999d")
