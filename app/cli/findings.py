"""What `despacho doctor` finds: one line each, with what to do about it. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from app.settings import Settings
from app.store.condition import Condition

OLDEST_POSTGRES = 140000
_LITTLE_SECONDS = 1.0
_MUCH_SECONDS = 30.0
_CONSUMER_TIMEOUT_SECONDS = 1800.0
"""RabbitMQ's default; AMQP gives no way to read it."""


class State(StrEnum):
    """How bad it is."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at."""

    subject: str
    state: State
    text: str


def ok(subject: str, text: str) -> Finding:
    """Make a finding that needs nothing."""
    return Finding(subject, State.OK, text)


def warn(subject: str, text: str) -> Finding:
    """Make a finding that somebody should know of."""
    return Finding(subject, State.WARN, text)


def fail(subject: str, text: str) -> Finding:
    """Make a finding that keeps the service from working."""
    return Finding(subject, State.FAIL, text)


def of_server(found: Condition, *, clock_difference_seconds: float, settings: Settings) -> Iterator[Finding]:
    """Judge a database server."""
    yield _version(found)
    yield _rights(found)
    yield _durability(found)
    yield _replication(found)
    yield _connections(found, settings)
    yield _clock(clock_difference_seconds)


def of_consumer_timeout(settings: Settings) -> Finding:
    """Judge how long a delivery stays unacked against the broker's patience, which cannot be asked for."""
    held = settings.worker.ack_after_settle_max_seconds
    text = f"a delivery is held for {held:g} s at most, and RabbitMQ gives {_CONSUMER_TIMEOUT_SECONDS:g} s by default"
    if held * 1.5 < _CONSUMER_TIMEOUT_SECONDS:
        return ok("broker: consumer timeout", f"{text}; keep a consumer_timeout of your own above the former")
    return warn(
        "broker: consumer timeout",
        f"{text}: lower DESPACHO_WORKER__ACK_AFTER_SETTLE_MAX_SECONDS, or raise consumer_timeout in rabbitmq.conf",
    )


def _version(found: Condition) -> Finding:
    if found.version_number < OLDEST_POSTGRES:
        return fail("database: version", f"PostgreSQL {found.version} is too old: take 14 or newer")
    return ok("database: version", f"PostgreSQL {found.version}")


def _rights(found: Condition) -> Finding:
    subject = "database: rights"
    if found.is_standby or found.is_read_only:
        return fail(subject, "this server takes no writes: point DESPACHO_DATABASE_URL at the primary")
    if found.closed_tables:
        names = ", ".join(found.closed_tables[:5])
        return fail(subject, f"the user may not read and write {names}: GRANT ALL on the tables of this schema")
    if not found.may_create:
        return warn(subject, "the user may not create tables: `despacho migrate` needs another user, the roles do not")
    return ok(subject, "may create, read and write")


def _durability(found: Condition) -> Finding:
    subject = "database: durability"
    if not found.fsync or not found.full_page_writes:
        return fail(subject, "fsync or full_page_writes is off: a power cut loses accepted tasks; set both to on")
    if found.synchronous_commit == "off":
        return fail(subject, "synchronous_commit is off: a crash loses the last accepted tasks; set it to on")
    return ok(subject, f"fsync on, synchronous_commit {found.synchronous_commit}: a crash of the server loses nothing")


def _replication(found: Condition) -> Finding:
    subject = "database: replication"
    if not found.synchronous_standby_names:
        return warn(
            subject,
            "no synchronous standby: tasks survive a crash of this server, not its loss. "
            "Set synchronous_standby_names if a failover must keep every accepted task",
        )
    if found.synchronous_commit == "local":
        return warn(
            subject, "synchronous_commit is local, so the standby is not waited for: set it to on to survive a failover"
        )
    return ok(subject, "a synchronous standby has every accepted task: a failover to it keeps them")


def _connections(found: Condition, settings: Settings) -> Finding:
    # One more listens for pokes, and one renews leases beside a hanging loop.
    process = settings.database.pool_size + settings.database.hot_pool_size + 2
    room = found.max_connections - found.connections
    text = f"{found.connections} of {found.max_connections} in use, and a process takes up to {process}"
    if room < process:
        return warn("database: connections", f"{text}: raise max_connections, or lower DESPACHO_DATABASE__POOL_SIZE")
    return ok("database: connections", text)


def _clock(difference_seconds: float) -> Finding:
    text = f"{abs(difference_seconds):.3f} s apart from the database's"
    if abs(difference_seconds) > _MUCH_SECONDS:
        return fail("clock", f"{text}: run a time service (chrony, systemd-timesyncd) on both machines")
    if abs(difference_seconds) > _LITTLE_SECONDS:
        return warn(
            "clock", f"{text}; leases go by the database's alone, but logs will not line up: run a time service"
        )
    return ok("clock", text)
