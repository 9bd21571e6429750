"""A process that plays roles: its logs, its signals, its runtime, and an orderly end."""

import asyncio
import contextlib
import gc
import logging
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager

import uvloop

from app.broker.amqp.errors import AmqpUrlError
from app.broker.base import Broker
from app.broker.rabbitmq import RabbitBroker
from app.cli.ending import INTERRUPTED, CommandFailed
from app.cli.migrations import require_current
from app.domain.policy_file import PolicyError
from app.runtime import Runtime, open_runtime
from app.services.vitals import look, prepare_metrics, watch
from app.settings import Settings, SettingsError
from app.store.database import DatabaseUnavailable
from app.task_modules import TaskModuleError
from app.telemetry import logs
from app.telemetry.exporter import start_exporter
from app.telemetry.pulse import Pulse

log = logging.getLogger("despacho.process")
_HANGING_AFTER_SECONDS = 15.0
_END_WITHIN_SECONDS = 15.0
_DOUBLED_WITHIN_SECONDS = 0.3

Role = Callable[[asyncio.Event], Awaitable[None]]


def run(
    work: Callable[[asyncio.Event], Coroutine[object, object, None]],
    settings: Settings,
    name: str,
    *,
    before: Callable[[Settings], None] | None = None,
) -> None:
    """Run `work` on an event loop until it ends; SIGTERM and Ctrl-C set its event, a second Ctrl-C ends at once.

    `before` is called while there is neither a loop nor a thread.
    """
    _calm_the_collector()
    if before is not None:
        before(settings)
    logs.redact_settings(settings)
    logs.configure(settings.log_level, name)
    try:
        uvloop.run(_until_stopped(work))
    finally:
        logs.shutdown()


def _calm_the_collector() -> None:
    """Leave what was imported out of garbage collection, and collect less often.

    Every task makes a few dozen short-lived objects; with the usual thresholds looking at all of them again and again
    took a fifth of a worker's time (75 µs of Python a task, 61 without).
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)


async def _until_stopped(work: Callable[[asyncio.Event], Coroutine[object, object, None]]) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()

    stopped_at = 0.0

    def on_signal(number: signal.Signals) -> None:
        nonlocal stopped_at
        # A wrapper that hands a terminal's Ctrl-C on doubles it: two at once are one.
        if number is signal.SIGINT and stopped_at and loop.time() - stopped_at > _DOUBLED_WITHIN_SECONDS:
            logs.event(log, "forced_to_end", level=logging.WARNING)
            logs.shutdown(0.5)
            os._exit(INTERRUPTED)
        if not stop.is_set():
            logs.event(log, "stopping", signal=number.name)
            stopped_at = loop.time()
            stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal, number)
    await work(stop)


def database_url(settings: Settings) -> str:
    """Return the database's address. Raises SettingsError when it is not set."""
    if settings.database_url is None:
        raise SettingsError(
            "DESPACHO_DATABASE_URL: is not set; it should be postgresql://user:password@host:5432/name "
            "(`despacho up` brings a database of its own)"
        )
    return settings.database_url.get_secret_value()


def rabbit(settings: Settings) -> Broker:
    """Return the broker of the settings, not yet started. Raises SettingsError."""
    if settings.amqp_url is None:
        raise SettingsError(
            "DESPACHO_AMQP_URL: is not set; it should be amqp://user:password@host:5672/vhost "
            "(`despacho up` works without one)"
        )
    try:
        return RabbitBroker(settings.amqp_url.get_secret_value(), settings.broker)
    except AmqpUrlError as error:
        raise SettingsError(f"DESPACHO_AMQP_URL: {error}") from None


@asynccontextmanager
async def runtime_on(settings: Settings, *, name: str, url: str, broker: Broker) -> AsyncIterator[Runtime]:
    """Open the process's runtime on a migrated database and close it at the end. Raises CommandFailed."""
    try:
        await require_current(url, settings.database)
        runtime = await open_runtime(settings, name=name, database_url=url, broker=broker)
    except (TaskModuleError, PolicyError) as error:
        raise CommandFailed(str(error)) from error
    except DatabaseUnavailable as error:
        raise CommandFailed(f"the database does not answer ({error}); start it, or correct its address") from None
    prepare_metrics(runtime)
    await look(runtime)
    watching = asyncio.create_task(watch(runtime), name="vitals")
    try:
        await broker.start()
        yield runtime
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
        await runtime.close()


@contextmanager
def exported(runtime: Runtime) -> Iterator[None]:
    """Serve metrics and health of a process without an API, where the settings name a port. Raises CommandFailed."""
    settings = runtime.settings
    if settings.metrics_port == 0:
        yield
        return
    pulse = Pulse(runtime.metrics)
    beating = asyncio.get_running_loop().create_task(pulse.run(), name="pulse")
    try:
        exporter = start_exporter(
            settings,
            runtime.metrics,
            alive=lambda: {"loop": pulse.beating(_HANGING_AFTER_SECONDS)},
            ready=lambda: {"loop": pulse.beating(_HANGING_AFTER_SECONDS), "broker": runtime.broker.connected},
        )
    except OSError as error:
        beating.cancel()
        raise CommandFailed(f"{error}; set DESPACHO_METRICS_PORT to a free port, or to 0 for none") from None
    try:
        yield
    finally:
        beating.cancel()
        if exporter is not None:
            exporter.close()


async def play(stop: asyncio.Event, roles: dict[str, Role], *, drain_seconds: float) -> None:
    """Play the roles until `stop` is set and each has ended; one that ends by itself takes the others with it.

    Raises what the first failing role raised. A role that still runs `drain_seconds` (and a little) after the stop is
    cancelled.
    """
    tasks = {asyncio.ensure_future(role(stop)): name for name, role in roles.items()}
    waiting = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait([*tasks, waiting], return_when=asyncio.FIRST_COMPLETED)
        stop.set()
        _, late = await asyncio.wait(tasks, timeout=drain_seconds + _END_WITHIN_SECONDS)
        for task in late:
            logs.event(log, "role_did_not_end", level=logging.ERROR, ended_role=tasks[task])
    finally:
        waiting.cancel()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, waiting, return_exceptions=True)
    for task, name in tasks.items():
        if not task.cancelled() and (error := task.exception()) is not None:
            if not isinstance(error, CommandFailed):
                logs.event(log, "role_failed", level=logging.ERROR, ended_role=name, error=error)
            raise error
    if late:
        raise CommandFailed(f"not everything ended within {drain_seconds:g} s: {', '.join(tasks[t] for t in late)}")


async def first(*events: Awaitable[object]) -> None:
    """Return when the first of these has happened; the others are cancelled."""
    waits = [asyncio.ensure_future(event) for event in events]
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await wait
