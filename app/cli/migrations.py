"""Bringing a database to the revision of this release, and refusing to work on one that is at another.

Alembic's environment runs an event loop of its own, so everything here that calls it blocks: call it in a thread.
"""

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from alembic.script.revision import RevisionError
from alembic.util import CommandError
from sqlalchemy.exc import ArgumentError, DBAPIError

from app.cli.ending import CommandFailed, WrongUsage
from app.settings import DatabaseSettings, SettingsError
from app.store import revisions
from app.store.database import Database, DatabaseUnavailable, LockTimeout, is_transient, sqlstate

_LOCK_NOT_AVAILABLE = "55P03"
_NO_RIGHT = "42501"
_LOGIN_REFUSED = ("28000", "28P01", "3D000")
_SAFE = "What was done stays done: running `despacho migrate` again is safe and goes on from there."


def scripts() -> ScriptDirectory:
    """Return the migrations that came with this release."""
    return ScriptDirectory.from_config(_config(""))


def head() -> str:
    """Name the revision that this release works on."""
    found = scripts().get_current_head()
    if found is None:
        raise CommandFailed("this installation holds no migrations; install the package again")
    return found


def is_known(revision: str) -> bool:
    """Say whether this release knows the revision."""
    try:
        return scripts().get_revision(revision) is not None
    except (CommandError, RevisionError):
        return False


async def current_revision(url: str, settings: DatabaseSettings, *, retry_for_seconds: float) -> str | None:
    """Read the revision of the database; None when it was never migrated. Raises CommandFailed when it is away."""
    try:
        database = Database(url, settings, application_name="despacho-revision")
    except (ValueError, ArgumentError):
        raise SettingsError(
            "DESPACHO_DATABASE_URL: cannot be read; it should be postgresql://user:password@host:5432/name"
        ) from None
    try:
        return await revisions.current(database, retry_for_seconds=retry_for_seconds)
    except LockTimeout:
        raise CommandFailed("the table of revisions is locked: a migration runs; try again when it is done") from None
    except DatabaseUnavailable as error:
        raise CommandFailed(
            f"the database of DESPACHO_DATABASE_URL does not answer ({error}); start it, or correct the address"
        ) from None
    except DBAPIError as error:
        raise CommandFailed(database_complaint(error)) from None
    finally:
        await database.close()


async def require_current(url: str, settings: DatabaseSettings) -> None:
    """Return when the database is at this release's revision. Raises CommandFailed with what to run otherwise."""
    found = await current_revision(url, settings, retry_for_seconds=settings.retry_for_seconds)
    complaint = revision_complaint(found)
    if complaint is not None:
        raise CommandFailed(complaint)


def revision_complaint(found: str | None) -> str | None:
    """Say what is wrong with a database at this revision, or None."""
    if found == head():
        return None
    if found is None:
        return "the database has no tables of Despacho yet: run `despacho migrate`"
    if is_known(found):
        return f"the database is at revision {found} and this release needs {head()}: run `despacho migrate`"
    return (
        f"the database is at revision {found}, which this release (at {head()}) does not know: a newer release "
        "migrated it; install that release, or run its `despacho migrate --to REVISION` first"
    )


def database_complaint(error: DBAPIError) -> str:
    """Say what a refused connection or statement means, without quoting it: it may hold secrets."""
    state = sqlstate(error)
    if state in _LOGIN_REFUSED:
        return "the database refuses the login: check user, password and database name in DESPACHO_DATABASE_URL"
    if state == _NO_RIGHT:
        return "the database user lacks a right: it needs CREATE on the schema to migrate, and all rights on its tables"
    return f"the database refuses: {type(error.orig).__name__} (SQLSTATE {state or 'unknown'})"


def is_downgrade(found: str | None, target: str) -> bool:
    """Say whether going from `found` to `target` is a way back. Raises WrongUsage for an unknown target."""
    if target == "base":
        return found is not None
    if target != "head" and not is_known(target):
        known = ", ".join(script.revision for script in scripts().walk_revisions())
        raise WrongUsage(f"there is no revision {target!r} in this release; there are: {known}, head, base")
    if found is None or target == "head":
        return False
    behind = {script.revision for script in scripts().iterate_revisions(found, "base")}
    return target in behind and target != found


def migrate(url: str, *, target: str = "head", downgrade: bool = False) -> None:
    """Bring the database to `target`; blocks. Raises CommandFailed with what happened and what to do."""
    config = _config(url)
    try:
        if downgrade:
            command.downgrade(config, target)
        else:
            command.upgrade(config, target)
    except DBAPIError as error:
        raise CommandFailed(_migration_complaint(error)) from None
    except (OSError, TimeoutError) as error:
        raise CommandFailed(f"the database does not answer ({type(error).__name__}). {_SAFE}") from None
    except CommandError as error:
        raise CommandFailed(f"the migration cannot be run: {error}") from None


def _migration_complaint(error: DBAPIError) -> str:
    if sqlstate(error) == _LOCK_NOT_AVAILABLE:
        return (
            "a table is locked by another transaction (or another migration runs), and waiting longer would block the "
            "readers behind it. Try again in a moment, or give it longer with "
            f"DESPACHO_MIGRATION_LOCK_TIMEOUT_SECONDS. {_SAFE}"
        )
    if is_transient(error):
        return f"the connection to the database was lost. {_SAFE}"
    return f"{database_complaint(error)}. {_SAFE}"


def _config(url: str) -> Config:
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).resolve().parents[2] / "migrations"))
    config.attributes["url"] = url
    return config
