"""Reading a span of the past for a simulation, from the database of this installation."""

import asyncio
from datetime import UTC, datetime

from sqlalchemy.exc import ArgumentError, DBAPIError

from app.cli.ending import CommandFailed, WrongUsage
from app.domain.simulation.load import Load
from app.services.replays import TooMuch, load_of
from app.settings import Settings
from app.store.database import Database, DatabaseUnavailable
from app.task_modules import TaskModuleError, load

DAY_HOURS = 24.0


def history(when: str, hours: float | None, seats: int | None, anonymous: bool, most_tasks: int) -> Load:
    """Read what came from `when` on as a load. Raises WrongUsage and CommandFailed."""
    start = _start(when)
    settings = Settings()
    if settings.database_url is None:
        raise WrongUsage("--from-history reads a database: set DESPACHO_DATABASE_URL")
    url = settings.database_url.get_secret_value()
    span = DAY_HOURS if hours is None else hours
    try:
        found = asyncio.run(_read(settings, url, start, span, seats, anonymous, most_tasks))
    except TooMuch:
        raise CommandFailed(f"more than {most_tasks:,} tasks came in that time; take fewer --hours") from None
    except TaskModuleError as error:
        raise WrongUsage(str(error)) from None
    except (ValueError, ArgumentError):
        raise WrongUsage("DESPACHO_DATABASE_URL: it should be postgresql://user:password@host:5432/name") from None
    except (DatabaseUnavailable, DBAPIError, OSError) as error:
        raise CommandFailed(
            f"the database cannot be read ({type(error).__name__}); despacho doctor says more"
        ) from None
    if not found.arrivals:
        raise CommandFailed(f"nothing was submitted in the {span:g} h from {start.isoformat()} on")
    if not found.pools:
        raise WrongUsage("no worker is live to take the seats from; say how many with --seats")
    return found


async def _read(
    settings: Settings, url: str, start: datetime, hours: float, seats: int | None, anonymous: bool, most_tasks: int
) -> Load:
    database = Database(url, settings.database, application_name="despacho-simulate")
    try:
        registry = load(settings.task_modules)
        return await load_of(
            database, registry, start=start, hours=hours, seats=seats, anonymous=anonymous, most_tasks=most_tasks
        )
    finally:
        await database.close()


def _start(when: str) -> datetime:
    try:
        moment = datetime.fromisoformat(when)
        moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
        if moment.year >= 2000:
            return moment
    except (ValueError, OverflowError):
        pass
    raise WrongUsage("--from-history: it should be a day or an instant, such as 2026-01-31 or 2026-01-31T12:00:00Z")
