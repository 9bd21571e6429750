"""`despacho doctor`: looks at everything that a start needs and says what to do about what is not right."""

import asyncio
import os
import shutil
import stat
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta

from sqlalchemy.exc import ArgumentError, DBAPIError

from app.broker.amqp.address import parse_addresses
from app.broker.amqp.connection import Connection
from app.broker.amqp.errors import AmqpError, AmqpUrlError
from app.broker.base import BrokerError, BrokerMisdeclared
from app.broker.rabbitmq import RabbitBroker
from app.cli.findings import Finding, fail, of_consumer_timeout, of_server, ok, warn
from app.cli.migrations import database_complaint, head, revision_complaint
from app.domain.policy import Policy
from app.domain.policy_file import PolicyError, parse_policy
from app.runtime import policy_document
from app.secret_providers import SecretMissing, SecretProviders, SecretUnavailable
from app.settings import Settings, SettingsError
from app.store import condition, policies, revisions
from app.store.database import Database, DatabaseUnavailable
from app.task_modules import TaskModuleError, load

_ROOM_BYTES = 1024**3


async def examine(settings: Settings) -> AsyncIterator[Finding]:
    """Look at one thing after the other; what cannot be looked at because of an earlier failure is left out."""
    yield ok("settings", "readable")
    policy: Policy | None = None
    try:
        policy = parse_policy(policy_document(settings))
        yield ok("policy file", f"version {policy.version}, classes {', '.join(policy.by_name)}")
    except (PolicyError, SettingsError) as error:
        yield fail("policy file", f"{error}")
    yield _task_modules(settings)
    async for finding in _secrets(settings):
        yield finding
    for finding in _data_dir(settings):
        yield finding
    if settings.database_url is not None:
        async for finding in _database(settings, settings.database_url.get_secret_value()):
            yield finding
    if settings.amqp_url is None:
        yield ok(
            "broker", "DESPACHO_AMQP_URL is not set: `despacho up` brings a broker in its process, the roles need one"
        )
    else:
        async for finding in _broker(settings, settings.amqp_url.get_secret_value(), policy):
            yield finding


def _task_modules(settings: Settings) -> Finding:
    try:
        registry = load(settings.task_modules)
    except TaskModuleError as error:
        return fail("task modules", str(error))
    return ok("task modules", f"task types {', '.join(registry)}")


async def _secrets(settings: Settings) -> AsyncIterator[Finding]:
    """Look for every secret that a task type declares or that deliveries may be signed with; values are not shown."""
    try:
        registry = load(settings.task_modules)
    except TaskModuleError:
        return
    wanted = {name: f"declared by {one.spec.name}" for one in registry.values() for name in one.spec.secrets}
    wanted |= {
        entry.rpartition("/")[2]: "named by DESPACHO_OUTBOUND__SIGNING_SECRETS"
        for entry in settings.outbound.signing_secrets
    }
    providers = SecretProviders(settings.secrets)
    for name, why in sorted(wanted.items()):
        try:
            await providers.value(name)
            yield ok(f"secret: {name}", f"there, {why}")
        except (SecretMissing, SecretUnavailable) as error:
            yield fail(f"secret: {name}", f"{error.message} ({why})")


def _data_dir(settings: Settings) -> Iterator[Finding]:
    subject = "data directory"
    if settings.database_url is not None:
        return
    path = settings.data_dir.absolute()
    there = path if path.exists() else next(parent for parent in path.parents if parent.exists())
    if not there.is_dir():
        yield fail(subject, f"{there} is no directory: give another one with --data-dir or DESPACHO_DATA_DIR")
        return
    if not os.access(there, os.W_OK | os.X_OK):
        yield fail(subject, f"{there} cannot be written by this user: chown it, or give another one with --data-dir")
        return
    password = path / "password"
    if password.exists() and stat.S_IMODE(password.stat().st_mode) & 0o077:
        yield warn(subject, f"others may read {password}: run chmod 600 {password}")
    room = shutil.disk_usage(there).free
    text = f"{path}{'' if path.exists() else ' (made on the first start)'}, {room / 1024**3:.1f} GiB free"
    yield (
        ok(subject, text) if room > _ROOM_BYTES else warn(subject, f"{text}: make room, a full disk stops the database")
    )


async def _database(settings: Settings, url: str) -> AsyncIterator[Finding]:
    try:
        database = Database(url, settings.database, application_name="despacho-doctor")
    except (ValueError, ArgumentError):
        yield fail("database", "DESPACHO_DATABASE_URL: it should be postgresql://user:password@host:5432/name")
        return
    try:
        before = datetime.now(UTC)
        found = await database.run(condition.look, retry_for_seconds=0.0)
        middle = before + (datetime.now(UTC) - before) / 2
        apart = (found.now - middle) / timedelta(seconds=1)
        for finding in of_server(found, clock_difference_seconds=apart, settings=settings):
            yield finding
        revision = await revisions.current(database, retry_for_seconds=0.0)
        complaint = revision_complaint(revision)
        yield (
            ok("database: revision", f"{head()}, this release's")
            if complaint is None
            else fail("database: revision", complaint)
        )
        if complaint is None:
            in_force = await database.run(policies.newest, retry_for_seconds=0.0)
            yield ok("policy in force", in_force.version if in_force else "none yet: the first start stores the file's")
    except DatabaseUnavailable:
        yield fail("database", "it does not answer: start it, or correct DESPACHO_DATABASE_URL")
    except PolicyError as error:
        yield fail("policy in force", f"it does not parse: {error}")
    except DBAPIError as error:
        yield fail("database", database_complaint(error))
    finally:
        await database.close()


async def _broker(settings: Settings, urls: str, policy: Policy | None) -> AsyncIterator[Finding]:
    try:
        addresses = parse_addresses(urls)
    except AmqpUrlError as error:
        yield fail("broker", f"DESPACHO_AMQP_URL: {error}")
        return
    reached = 0
    for address in addresses:
        subject = f"broker: {address}"
        try:
            connection = await Connection.open(
                address,
                heartbeat_seconds=settings.broker.heartbeat_seconds,
                timeout_seconds=settings.broker.connect_timeout_seconds,
                name="despacho-doctor",
            )
        except (AmqpError, OSError, TimeoutError) as error:
            yield fail(subject, f"{error}: start it, or correct DESPACHO_AMQP_URL")
            continue
        reached += 1
        yield _broker_version(subject, connection.server_version)
        await connection.close()
    if reached:
        if policy is not None:
            yield await _queues(settings, urls, policy)
        yield of_consumer_timeout(settings)


def _broker_version(subject: str, version: str) -> Finding:
    numbers = tuple(int(number) for number in version.split(".")[:2] if number.isdigit())
    if numbers < (3, 10):
        return fail(subject, f"RabbitMQ {version or 'of an unknown version'} is too old: take 3.10 or newer")
    return ok(subject, f"RabbitMQ {version}")


async def _queues(settings: Settings, urls: str, policy: Policy) -> Finding:
    subject = "broker: queues"
    broker = RabbitBroker(urls, settings.broker)
    try:
        await broker.start()
        await broker.declare(tuple(policy.by_name))
    except BrokerMisdeclared as error:
        return fail(subject, str(error))
    except BrokerError as error:
        return fail(subject, f"{error}: the user needs the rights to configure, write and read on this vhost")
    finally:
        await broker.close()
    return ok(subject, "there, with the arguments of the settings")


async def findings(settings: Settings) -> list[Finding]:
    """Return everything that there is to say."""
    async with asyncio.timeout(60):
        return [finding async for finding in examine(settings)]
