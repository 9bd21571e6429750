"""Durations as people write them in files: `250ms`, `5s`, `10m`, `1h30m`, `7d`. One spelling, seconds inside."""

import re

_UNITS_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_PART = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,6})?)(ms|s|m|h|d)")
_WHOLE = re.compile(rf"(?:{_PART.pattern})+")
MAXIMUM_SECONDS = 3660 * 86400.0


def parse_duration(text: str) -> float:
    """Read `text` as a number of seconds; raise ValueError that says how a duration is written."""
    if not _WHOLE.fullmatch(text):
        raise ValueError(f'{text[:40]!r} is not a duration; write a number and a unit, such as "250ms", "5s", "1h30m"')
    seconds = sum(float(number) * _UNITS_SECONDS[unit] for number, unit in _PART.findall(text))
    if seconds > MAXIMUM_SECONDS:
        raise ValueError(f"{text[:40]!r} is longer than ten years")
    return seconds
