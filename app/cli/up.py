"""Everything in one process: the embedded PostgreSQL, the in-process broker, migrations, API, dispatcher, one worker.

What the settings name is used instead: `DESPACHO_DATABASE_URL` for the database, `DESPACHO_AMQP_URL` for the broker.
"""

import asyncio
import importlib
import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from app.broker.base import Broker
from app.broker.memory import MemoryBroker
from app.cli.ending import CommandFailed
from app.cli.hosting import first, play, rabbit, runtime_on
from app.cli.migrations import current_revision, head, is_known, migrate, revision_complaint
from app.cli.web import Api, bind, url_of
from app.embedded.errors import EmbeddedPostgresError
from app.embedded.postgres import EmbeddedPostgres
from app.runtime import Runtime
from app.services.bootstrap import FirstStart, first_start
from app.settings import Settings
from app.store.solitude import alone
from app.telemetry.logs import event, redact

log = logging.getLogger("despacho.up")


@dataclass(frozen=True, slots=True)
class Running:
    """What runs: where, with what, and the admin key when this is the first start."""

    url: str
    runtime: Runtime
    first_start: FirstStart | None
    embedded_dir: Path | None


async def serve(settings: Settings, stop: asyncio.Event, on_running: Callable[[Running], Awaitable[None]]) -> None:
    """Start everything, call `on_running` when tasks can be sent, and go on until `stop` is set and all has drained.

    Raises CommandFailed when something cannot start or does not end.
    """
    async with _database(settings) as url:
        await _migrated(url, settings)
        volatile = settings.amqp_url is None
        broker: Broker = MemoryBroker(settings.broker) if volatile else rabbit(settings)
        with bind(settings.api.host, settings.api.port) as bound:
            async with runtime_on(settings, name="up", url=url, broker=broker) as runtime:
                if settings.bootstrap_key is not None:
                    await first_start(runtime.database, settings)
                api = Api(runtime, bound)
                roles = importlib.import_module("workers.roles")

                async def dispatcher(stop: asyncio.Event) -> None:
                    await roles.serve_dispatcher(
                        runtime, stop, database_url=url, listens=not volatile, volatile=volatile
                    )

                async def worker(stop: asyncio.Event) -> None:
                    await roles.serve_worker(runtime, stop, database_url=url)

                async def tell(stop: asyncio.Event) -> None:
                    await first(api.serving.wait(), stop.wait())
                    if not stop.is_set():
                        # Minted last: a key made by a start that then failed would be shown to nobody.
                        made = await first_start(runtime.database, settings)
                        if made is not None:
                            redact(made.secret)
                        embedded = settings.data_dir.absolute() if settings.database_url is None else None
                        await on_running(Running(url_of(bound), runtime, made, embedded))
                    await stop.wait()

                await play(
                    stop,
                    {"api": api.serve, "dispatcher": dispatcher, "worker": worker, "first words": tell},
                    drain_seconds=settings.worker.drain_grace_seconds,
                )


@asynccontextmanager
async def _database(settings: Settings) -> AsyncIterator[str]:
    """Have a database for as long as this lasts: the one of the settings, or the embedded one."""
    if settings.database_url is not None:
        async with _shared_database(settings, settings.database_url.get_secret_value()) as url:
            yield url
        return
    postgres = EmbeddedPostgres(settings.data_dir)
    try:
        await asyncio.to_thread(postgres.start)
    except EmbeddedPostgresError as error:
        raise CommandFailed(str(error)) from error
    except OSError as error:
        raise CommandFailed(
            f"the data directory {settings.data_dir.absolute()} cannot be used ({error.strerror}); "
            "give another one with --data-dir"
        ) from None
    redact(postgres.url)
    event(log, "database_started", port=postgres.port, data_dir=os.fspath(settings.data_dir.absolute()))
    try:
        yield postgres.url
    finally:
        try:
            await asyncio.to_thread(postgres.stop)
        except EmbeddedPostgresError as error:
            event(log, "database_did_not_stop", level=logging.ERROR, error=error)
            await asyncio.to_thread(postgres.kill)


@asynccontextmanager
async def _shared_database(settings: Settings, url: str) -> AsyncIterator[str]:
    """Refuse a database on which another process works with a broker of its own: each would starve the other."""
    if settings.amqp_url is not None:
        yield url
        return
    # Whether it answers, and what is wrong when it does not, is said by the look at its revision.
    await current_revision(url, settings.database, retry_for_seconds=settings.database.retry_for_seconds)
    async with alone(url, timeout_seconds=settings.database.connect_timeout_seconds) as is_alone:
        if not is_alone:
            raise CommandFailed(
                "another `despacho up` works on the database of DESPACHO_DATABASE_URL with a broker inside its "
                "process; stop that one first, or give both a broker with DESPACHO_AMQP_URL"
            )
        yield url


async def _migrated(url: str, settings: Settings) -> None:
    found = await current_revision(url, settings.database, retry_for_seconds=settings.database.retry_for_seconds)
    if found == head():
        return
    if found is not None and not is_known(found):
        raise CommandFailed(revision_complaint(found) or "")
    await asyncio.to_thread(migrate, url)
    event(log, "database_migrated", revision=head(), before=found)
