"""The Retry-After header (RFC 9110, 10.2.3): a number of seconds, or a date in any of the three forms of HTTP.

Whatever a server sends, the answer is a usable number or None; nothing raises.
"""

import re
from datetime import UTC, datetime

MAXIMUM_SECONDS = 86_400.0
_MAXIMUM_LENGTH = 64
_MONTHS = {
    month: number
    for number, month in enumerate(
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"], start=1
    )
}
_SECONDS = re.compile(r"[0-9]+(?:\.[0-9]+)?", re.ASCII)
_TIME = r"(?P<hour>[0-9]{2}):(?P<minute>[0-9]{2}):(?P<second>[0-9]{2})"
_FORMS = (
    re.compile(rf"[A-Za-z]{{3}}, (?P<day>[0-9]{{2}}) (?P<month>[A-Za-z]{{3}}) (?P<year>[0-9]{{4}}) {_TIME} GMT"),
    re.compile(rf"[A-Za-z]{{6,9}}, (?P<day>[0-9]{{2}})-(?P<month>[A-Za-z]{{3}})-(?P<year>[0-9]{{2}}) {_TIME} GMT"),
    re.compile(rf"[A-Za-z]{{3}} (?P<month>[A-Za-z]{{3}}) (?P<day>[ 0-9][0-9]) {_TIME} (?P<year>[0-9]{{4}})"),
)


def parse_retry_after(value: str | bytes | None, now: datetime) -> float | None:
    """Read the header's value as seconds from `now` (aware), from 0 to 24 hours; None where it says nothing usable.

    A date in the past is 0; more than 24 hours is 24 hours.
    """
    if isinstance(value, bytes):
        value = value.decode("latin-1")
    text = (value or "").strip(" \t")
    if not text or len(text) > _MAXIMUM_LENGTH:
        return None
    if _SECONDS.fullmatch(text):
        return min(float(text), MAXIMUM_SECONDS)
    when = _http_date(text, now)
    return None if when is None else min(max(0.0, (when - now).total_seconds()), MAXIMUM_SECONDS)


def _http_date(text: str, now: datetime) -> datetime | None:
    match = next((found for form in _FORMS if (found := form.fullmatch(text))), None)
    if match is None:
        return None
    month = _MONTHS.get(match["month"].capitalize())
    if month is None:
        return None
    year = int(match["year"])
    if len(match["year"]) == 2:
        # RFC 9110, 5.6.7: a year that seems more than 50 years ahead is the latest past year with those digits.
        year += now.year - now.year % 100
        year -= 100 if year > now.year + 50 else 0
    second = min(int(match["second"]), 59)  # a leap second is written 60
    try:
        return datetime(year, month, int(match["day"]), int(match["hour"]), int(match["minute"]), second, tzinfo=UTC)
    except ValueError:
        return None
