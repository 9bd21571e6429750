"""Values that only loads have, read from one table: each reader notes what is wrong with its line."""

from collections.abc import Mapping
from typing import Any

from app.domain.durations import parse_duration
from app.domain.policy_section import Section


def label(values: Mapping[str, Any], at: int) -> str:
    """Name a table in messages: by its name, its type or its figure, else by its place."""
    label = values.get("name") or values.get("type") or values.get("figure")
    return repr(str(label)[:64]) if label else f"number {at + 1}"


def flag(section: Section, key: str) -> bool:
    """Read true or false, false where it is absent."""
    return bool(section.flag(key)) if key in section.values else section.asked(key)


def moment(section: Section, key: str, required: bool = False) -> float | None:
    """Read a time since the start, "0s" included."""
    return (
        0.0 if section.values.get(key) == "0s" and not section.asked(key) else section.duration(key, required=required)
    )


def whole(section: Section, key: str, required: bool) -> int | None:
    """Read a whole number from 0."""
    return 0 if section.values.get(key) == 0 and not section.asked(key) else section.integer(key, 100_000, required)


def bound(section: Section, key: str) -> float | None:
    """Read a bound: a number, or a duration for a figure of seconds."""
    section.asked(key)
    value = section.values.get(key)
    if isinstance(value, str):
        try:
            return parse_duration(value)
        except ValueError as error:
            section.problem(key, f"{key!r}: {error}")
            return None
    if value is None or (isinstance(value, int | float) and not isinstance(value, bool) and value == value):
        return value
    section.problem(key, f'{key!r} must be a number, or a duration such as "5s"')
    return None
