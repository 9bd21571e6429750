"""When a model provider's answer says to come back: Retry-After in all its dialects, and the reset headers of limits.

Total: whatever the headers hold, the answer is a usable number of seconds (0 to 24 hours) or None.
"""

import re
from collections.abc import Mapping
from datetime import datetime
from math import isfinite

from app.domain.retry_after import MAXIMUM_SECONDS, parse_retry_after

_NUMBER = re.compile(r"[0-9]{1,15}(?:\.[0-9]{1,9})?", re.ASCII)
_PART = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,9})?)(ms|us|µs|ns|h|m|s|d)", re.ASCII)
_UNIT_SECONDS = {"d": 86_400.0, "h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}
_LIMITS = (
    ("x-ratelimit-remaining-requests", "x-ratelimit-reset-requests"),
    ("x-ratelimit-remaining-tokens", "x-ratelimit-reset-tokens"),
    ("x-ratelimit-remaining", "x-ratelimit-reset"),
    ("anthropic-ratelimit-requests-remaining", "anthropic-ratelimit-requests-reset"),
    ("anthropic-ratelimit-tokens-remaining", "anthropic-ratelimit-tokens-reset"),
    ("anthropic-ratelimit-input-tokens-remaining", "anthropic-ratelimit-input-tokens-reset"),
    ("anthropic-ratelimit-output-tokens-remaining", "anthropic-ratelimit-output-tokens-reset"),
)


def asked_to_wait_seconds(headers: Mapping[str, str], now: datetime) -> float | None:
    """Read how long to wait from an answer's headers (names in lower case); `now` is aware.

    `retry-after-ms` (exact milliseconds) and `Retry-After` come first, the longer of the two. Without them, the
    latest reset among those limits of which nothing remains.
    """
    asked = [
        seconds
        for seconds in (_milliseconds(headers.get("retry-after-ms")), _after(headers.get("retry-after"), now))
        if seconds is not None
    ]
    if asked:
        return max(asked)
    resets = [
        seconds
        for remaining, reset in _LIMITS
        if _is_zero(headers.get(remaining)) and (seconds := _reset(headers.get(reset), now)) is not None
    ]
    return max(resets, default=None)


def _after(value: str | None, now: datetime) -> float | None:
    """Read Retry-After; some providers write a duration (`7s`, `1m30s`) where the RFC has a number or a date."""
    found = parse_retry_after(value, now)
    return found if found is not None else _duration((value or "").strip())


def _milliseconds(value: str | None) -> float | None:
    text = (value or "").strip()
    return min(float(text) / 1000, MAXIMUM_SECONDS) if _NUMBER.fullmatch(text) else None


def _is_zero(value: str | None) -> bool:
    text = (value or "").strip()
    return bool(_NUMBER.fullmatch(text)) and float(text) == 0.0


def _reset(value: str | None, now: datetime) -> float | None:
    """Read a reset: a duration, a time (RFC 3339), a number of seconds, or a moment as seconds or ms since 1970."""
    text = (value or "").strip()
    if not text or len(text) > 64:
        return None
    if _NUMBER.fullmatch(text):
        number = float(text)
        if number > 1e11:
            number = number / 1000 - now.timestamp()
        elif number > 1e8:
            number -= now.timestamp()
        return _bounded(number)
    if (seconds := _duration(text)) is not None:
        return seconds
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        return None
    return _bounded((when - now).total_seconds()) if when.tzinfo is not None else None


def _duration(text: str) -> float | None:
    """Read Go's spelling of a duration: `6m0s`, `20ms`, `1h2m3.5s`."""
    if not text or len(text) > 64 or _PART.sub("", text):
        return None
    return _bounded(sum(float(number) * _UNIT_SECONDS[unit] for number, unit in _PART.findall(text)))


def _bounded(seconds: float) -> float | None:
    return min(max(0.0, seconds), MAXIMUM_SECONDS) if isfinite(seconds) else None
