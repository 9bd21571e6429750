"""What a process may do beside serving HTTP: work, and stand for the dispatcher's lead with the leader's sweeps."""

import asyncio
import contextlib
import logging
import os
import secrets
import socket
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace

from app.broker.base import BrokerClosed, BrokerError
from app.runtime import Runtime
from app.services.dead_letters import record_dead_delivery
from app.services.dispatch import Dispatcher
from app.services.pokes import Poker
from app.store.database import Database
from app.telemetry.logs import event
from workers.dispatcher import DispatcherLoop, listen_for_pokes
from workers.pool import Pool
from workers.sweeps.loop import SweepLoop
from workers.webhooks import WebhookLoop

log = logging.getLogger("despacho.roles")


async def serve_worker(
    runtime: Runtime,
    stop: asyncio.Event,
    *,
    classes: Sequence[str] = (),
    slots: int | None = None,
    pool: str | None = None,
    database_url: str | None = None,
) -> None:
    """Run one worker until `stop` is set and it has drained. Raises ValueError for a class that the policy lacks.

    `database_url` lets the lease guard renew leases while a handler blocks the loop.
    """
    known = runtime.policy.current.by_name
    chosen = list(classes) or list(runtime.settings.worker.classes) or list(known)
    unknown = [name for name in chosen if name not in known]
    if unknown:
        raise ValueError(f"no such class in the policy: {', '.join(unknown)}; there are {', '.join(known)}")
    worker = Pool(
        runtime,
        classes=chosen,
        slots=slots or runtime.settings.worker.slots,
        name=pool or runtime.settings.worker.pool,
        follows_policy=not (classes or runtime.settings.worker.classes),
        database_url=database_url,
    )
    # A plain handler that burns the processor gives the loop its turn after a millisecond, not after five.
    sys.setswitchinterval(0.001)
    await declare_queues(runtime)
    await worker.run(stop)


async def serve_dispatcher(
    runtime: Runtime, stop: asyncio.Event, *, database_url: str, listens: bool = True, volatile: bool = False
) -> None:
    """Stand for the lead until `stop` is set; the leader also runs the sweeps and takes in the broker's dead letters.

    Where it `listens`, pokes of other processes are heard, and those of this one forwarded while it does not lead.
    `volatile` says that the broker forgets its messages with this process.
    """
    async with _apart(runtime, database_url) as own:
        await _stand_for_the_lead(own, stop, database_url if listens else None, volatile)


@asynccontextmanager
async def _apart(runtime: Runtime, database_url: str) -> AsyncIterator[Runtime]:
    """Give the dispatcher and its sweeps connections of their own: slow requests must not cost the lead."""
    settings = runtime.settings.database.model_copy(update={"pool_size": 3, "hot_pool_size": 4})
    database = Database(
        database_url, settings, application_name="despacho-dispatcher", on_retry=runtime.metrics.database_retried
    )
    try:
        yield replace(runtime, database=database)
    finally:
        await database.close()


async def _stand_for_the_lead(runtime: Runtime, stop: asyncio.Event, database_url: str | None, volatile: bool) -> None:
    holder = f"{runtime.name}.{socket.gethostname()}.{os.getpid()}.{secrets.token_hex(3)}"
    sweeps = SweepLoop(runtime)
    webhooks = WebhookLoop(runtime)
    poker = Poker(runtime)

    def on_lead(leading: bool) -> None:
        runtime.dispatcher_poke.forward = None if leading or database_url is None else poker.forward
        sweeps.active(leading)
        webhooks.active(leading)
        if not leading:
            # Figures of a former leader would stand beside the new one's, and whoever takes the larger would see them.
            runtime.metrics.class_figures(())
            runtime.metrics.dead_letters_open({})
            runtime.metrics.approvals_waiting({})
            runtime.metrics.effects_standing({}, 0)
            runtime.metrics.overrides_lasting({})
            runtime.metrics.dependency_states({}, since_seconds=0.0)
            runtime.metrics.budgets({})

    on_lead(False)
    loop = DispatcherLoop(runtime, Dispatcher(runtime, holder=holder, volatile=volatile), on_lead=on_lead)
    await declare_queues(runtime)
    tasks = [
        asyncio.create_task(loop.run(stop), name="dispatcher"),
        asyncio.create_task(sweeps.run(stop), name="sweeps"),
        asyncio.create_task(webhooks.run(stop), name="webhooks"),
        asyncio.create_task(_take_in_dead_letters(runtime, stop), name="dead-letter ingester"),
    ]
    if database_url is not None:
        tasks.append(asyncio.create_task(listen_for_pokes(runtime, database_url, stop), name="pokes"))
    try:
        await asyncio.gather(*tasks)
    finally:
        stop.set()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def declare_queues(runtime: Runtime) -> None:
    """Have the queues of the policy's classes exist; a broker that is away gets them when it is back."""
    try:
        await runtime.broker.declare(tuple(runtime.policy.current.by_name))
    except BrokerError as error:
        event(log, "queues_not_declared", level=logging.WARNING, error=error)


async def _take_in_dead_letters(runtime: Runtime, stop: asyncio.Event) -> None:
    """Turn what the broker gave up on into dead letters of the database: commit, then ack."""
    consumer = runtime.broker.dead_letter_consumer(prefetch=50)
    stopping = asyncio.create_task(_close_when(stop, consumer.close))
    try:
        while True:
            for delivery in await consumer.receive(50):
                try:
                    await record_dead_delivery(runtime, delivery)
                except Exception as error:
                    event(log, "broker_dead_letter_not_recorded", level=logging.ERROR, error=error)
                    consumer.requeue([delivery])
                    await asyncio.sleep(0.5)
                else:
                    consumer.ack([delivery])
    except BrokerClosed:
        return
    finally:
        stopping.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await stopping


async def _close_when(stop: asyncio.Event, close: object) -> None:
    await stop.wait()
    if callable(close):
        await close()
