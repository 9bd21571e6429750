"""When a schedule fires next: cron expressions in a time zone, with daylight saving time, as Debian's cron does it.

- A time of day that the clock skips in spring fires once, at the first moment after the gap: `30 2 * * *` in New York
  fires on 2027-03-14 at 03:00 local time.
- A time of day that comes twice in autumn fires once, the first time: `30 1 * * *` in New York fires on 2026-11-01 at
  01:30 EDT and not again at 01:30 EST.
- Expressions whose minute or hour begins with `*` go by elapsed time: `*/15 * * * *` fires in the extra hour too.
"""

import re
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from cronsim import CronSim, CronSimError

MISFIRE_AFTER = timedelta(seconds=60)
"""A firing that is later than this was missed."""

_ZONE_NAME = re.compile(r"^[A-Za-z][A-Za-z0-9_+-]*(/[A-Za-z0-9_+-]+){0,3}$")
_MOST_CHARACTERS = 200


class Misfire(StrEnum):
    """What becomes of missed firings: one task for all of them together, or none."""

    ONCE = "once"
    SKIP = "skip"


class ScheduleError(ValueError):
    """A cron expression or time zone that cannot be used; `field` names which, the text says what is right."""

    def __init__(self, field: str, text: str) -> None:
        super().__init__(text)
        self.field = field


def next_firing(cron: str, timezone: str, after: datetime) -> datetime:
    """Give the first firing later than `after`, in UTC. Raises ScheduleError."""
    zone = _zone(timezone)
    if len(cron) > _MOST_CHARACTERS or len(cron.split()) != 5:
        raise ScheduleError(
            "cron", "should have five fields: minute, hour, day of month, month, day of week; such as 30 6 * * MON-FRI"
        )
    try:
        # Wall-clock expressions forget which of two equal hours `after` lies in: go on until it is really later.
        for firing in CronSim(cron, after.astimezone(zone)):
            found = firing.astimezone(UTC)
            if found > after:
                return found
    except (CronSimError, OverflowError) as error:
        raise ScheduleError(
            "cron", f"is not a cron expression ({error}): five fields such as 30 6 * * MON-FRI"
        ) from None
    raise ScheduleError("cron", "never fires")


def to_fire(
    cron: str, timezone: str, misfire: Misfire, *, expected: datetime, now: datetime
) -> tuple[datetime | None, datetime]:
    """Decide at `now` about a schedule that was due at `expected`: the firing to make (or None), and the next due time.

    However many firings were missed, at most one is made.
    """
    following = next_firing(cron, timezone, now)
    if now - expected <= MISFIRE_AFTER or misfire is Misfire.ONCE:
        return expected, following
    latest = next_firing(cron, timezone, now - MISFIRE_AFTER)
    return (latest if latest <= now else None), following


def _zone(name: str) -> ZoneInfo:
    if not _ZONE_NAME.match(name):
        raise ScheduleError("timezone", "should be a name such as UTC or America/Sao_Paulo")
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ScheduleError("timezone", "is not a known time zone: a name such as UTC or America/Sao_Paulo") from None
