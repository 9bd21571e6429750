"""One worker: its identity, its heartbeat, and its consumer, from start to drained."""

import asyncio
import logging
import os
import secrets
import socket
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy.ext.asyncio import AsyncConnection

from app.broker.base import Delivery, Malformed
from app.domain.errors import DeadLetter
from app.runtime import Runtime
from app.services.dead_letters import record_malformed
from app.store import flights, inputs, progress, workers
from app.telemetry.logs import event
from app.version import product_version
from workers.children import Children
from workers.consumer import TaskConsumer
from workers.facilities import open_facilities
from workers.leases import Lease, LeaseGuard
from workers.run import Interrupt, Run
from workers.runner import Runner

log = logging.getLogger("despacho.worker")
# All that the dispatcher releases ahead for this worker's slots should come here, where the turns of tenants count, and
# not lie in the broker, where they cannot.
PREFETCH_PER_SLOT = 8
PREFETCH_MOST = 4000


class Pool:
    """A worker process's share of the work: `slots` attempts at a time from the queues of some classes.

    One that `follows_policy` serves every class, those of later versions too.
    """

    def __init__(
        self,
        runtime: Runtime,
        *,
        classes: Sequence[str],
        slots: int,
        name: str,
        database_url: str | None = None,
        follows_policy: bool = False,
    ) -> None:
        self.runtime = runtime
        self._follows_policy = follows_policy
        self.identity = workers.Identity(
            worker_id=f"{name}.{socket.gethostname()}.{os.getpid()}.{secrets.token_hex(3)}",
            pool=name,
            classes=tuple(classes),
            task_types=tuple(runtime.registry),
            slots=slots,
            host=socket.gethostname(),
            pid=os.getpid(),
            version=product_version(),
        )
        settings = runtime.settings.worker
        self.facilities = open_facilities(runtime, read_input=self._read_input)
        self.children = Children(runtime, read_input=self._read_input, keep=min(slots, 4))
        self.runner = Runner(
            runtime.registry,
            self.children,
            read_input=self._read_input,
            draw=runtime.draw,
            max_result_bytes=settings.max_result_bytes,
        )
        self.consumer = TaskConsumer(
            runtime,
            runtime.broker.consumer(classes, prefetch=min(PREFETCH_MOST, PREFETCH_PER_SLOT * slots)),
            self.runner,
            worker_id=self.identity.worker_id,
            slots=slots,
            facilities=self.facilities,
            record_malformed=self._record_malformed,
        )
        self._settings = settings
        self._guard = (
            LeaseGuard(runtime.settings, database_url, self._leases, self.identity.worker_id)
            if database_url is not None
            else None
        )
        self._renewed_at = 0.0

    async def run(self, stop: asyncio.Event) -> None:
        """Work until `stop` is set, then drain and leave the register."""
        writers = [
            asyncio.create_task(self.consumer.claims.forever(), name="claim"),
            asyncio.create_task(self.consumer.settlements.forever(), name="settle"),
        ]
        loops = [
            *writers,
            asyncio.create_task(self.consumer.receive_forever(), name="receive"),
            asyncio.create_task(self._beat_forever(stop), name="heartbeat"),
        ]
        if self._guard is not None:
            self._guard.start()
            loops.append(asyncio.create_task(self._tick_forever(self._guard), name="lease guard"))
        event(log, "worker_started", worker_id=self.identity.worker_id, slots=self.identity.slots)
        stopping = asyncio.create_task(stop.wait())
        await asyncio.wait([*loops, stopping], return_when=asyncio.FIRST_COMPLETED)
        stop.set()
        draining = asyncio.create_task(self.consumer.drain(self._settings.drain_grace_seconds))
        try:
            # Without the two that write, draining would wait for ever: then the leases run out, and others take over.
            await asyncio.wait([draining, *writers], return_when=asyncio.FIRST_COMPLETED)
        finally:
            draining.cancel()
            await asyncio.gather(draining, return_exceptions=True)
            await self._leave([*loops, stopping])
        for task in (*loops, draining):
            if not task.cancelled() and (error := task.exception()) is not None:
                raise error

    async def _leave(self, loops: Sequence[asyncio.Task[Any]]) -> None:
        if self._guard is not None:
            # First of all: it would take the end of its beats for a loop that hangs.
            await asyncio.to_thread(self._guard.stop)
        for run in list(self.consumer.runs.values()):
            run.stop(Interrupt.LOST)
        for loop in loops:
            loop.cancel()
        await asyncio.gather(*loops, return_exceptions=True)
        await self.consumer.consumer.close()
        self.runner.close()
        await self.children.close()
        await self.facilities.close()
        try:
            await workers.leave(self.runtime.database, self.identity.worker_id)
        except Exception as error:
            event(log, "worker_left_unregistered", level=logging.WARNING, error=error)
        event(log, "worker_stopped", worker_id=self.identity.worker_id)

    # --- heartbeat -----------------------------------------------------------------------------------------------

    async def _beat_forever(self, stop: asyncio.Event) -> None:
        every = self._settings.heartbeat_seconds
        while True:
            started = time.monotonic()
            try:
                # A connection to a server that is gone without a word answers nothing for minutes: another is tried
                # while the leases still last.
                async with asyncio.timeout(max(every, self._settings.lease_seconds / 4)):
                    await self.beat(draining=stop.is_set())
            except Exception as error:
                event(log, "heartbeat_failed", level=logging.WARNING, error=error)
            await asyncio.sleep(max(0.05, every - (time.monotonic() - started)))

    async def _tick_forever(self, guard: LeaseGuard) -> None:
        while True:
            guard.beat()
            await asyncio.sleep(0.5)

    async def beat(self, *, draining: bool) -> None:
        """One turn: say that we live, renew leases, learn of cancels and losses, write progress."""
        runtime = self.runtime
        self.runtime.metrics.slots(
            self.identity.pool, self.identity.slots - self.consumer.free_slots, self.identity.slots
        )
        self._serve_new_classes()
        alive_seconds = max(4 * self._settings.heartbeat_seconds, 4.0)
        await workers.beat(runtime.database, self.identity, draining=draining, alive_seconds=alive_seconds)
        now = asyncio.get_running_loop().time()
        renew = now - self._renewed_at >= self._settings.lease_seconds / 3
        # What has only just started needs no look: a lease lasts many heartbeats.
        runs = [r for r in self.consumer.runs.values() if now - r.started_at > 0.25 or renew]
        if runs:
            pairs = [(run.claimed.task_id, run.claimed.fence) for run in runs]
            held = await flights.hold(
                runtime.database, pairs, renew_seconds=self._settings.lease_seconds if renew else None
            )
            for run in runs:
                pair = (run.claimed.task_id, run.claimed.fence)
                if pair not in self.consumer.runs:
                    continue
                if pair not in held.owned:
                    runtime.metrics.leases_lost(run.claimed.priority_class)
                    run.stop(Interrupt.LOST)
                elif pair in held.cancel and run.interrupt is None:
                    run.stop(Interrupt.CANCEL)
            self.consumer.give_back_late()
            self._give_up_on_deaf(now)
            await self._write_progress(runs)
        if renew:
            self._renewed_at = now

    def _serve_new_classes(self) -> None:
        """Consume what a newer version of the policy has added; classes that it dropped may still have messages."""
        served = self.identity.classes
        new = [name for name in self.runtime.policy.current.by_name if name not in served]
        if not self._follows_policy or not new:
            return
        self.consumer.consumer.extend(new)
        self.identity = replace(self.identity, classes=(*served, *new))
        event(log, "classes_added", worker_id=self.identity.worker_id, classes=new)

    def _give_up_on_deaf(self, now: float) -> None:
        """Settle attempts whose handler ignores its interruption; their slots stay taken until they have ended."""
        for run in list(self.consumer.runs.values()):
            waits_for_thread = run.interrupt is Interrupt.CANCEL and not run.overdue
            if run.interrupted_at is None or run.settled or waits_for_thread:
                continue
            if now - run.interrupted_at > self._settings.cancel_grace_seconds:
                self.consumer.end(run)

    async def _write_progress(self, runs: Sequence[Run]) -> None:
        said = [(run.claimed, said) for run in runs if (said := run.context.take_progress()) is not None]
        if said:
            await progress.write(
                self.runtime.database, [(claimed.task_id, claimed.fence, *words) for claimed, words in said]
            )

    def _leases(self) -> list[Lease]:
        grace = self._settings.cancel_grace_seconds
        return [
            # The loop's clock is time.monotonic().
            (run.claimed.task_id, run.claimed.fence, run.started_at + run.claimed.timeout_seconds + grace)
            for run in list(self.consumer.runs.values())
        ]

    # --- what handlers and the consumer need of the store ---------------------------------------------------------

    async def _read_input(self, tenant_id: str, ref: str) -> tuple[bytes, str]:
        async def read(connection: AsyncConnection) -> tuple[inputs.StoredInput, bytes] | None:
            return await inputs.get(connection, ref)

        found = await self.runtime.database.run(read, retry_for_seconds=5.0)
        if found is None or found[0].tenant_id != tenant_id:
            raise DeadLetter("missing_input", "there is no stored input under this reference")
        return found[1], found[0].content_type

    async def _record_malformed(self, delivery: Delivery) -> None:
        if isinstance(delivery.message, Malformed):
            await record_malformed(
                self.runtime, delivery.message, delivery.redelivered, "malformed", delivery.priority_class
            )
