"""The dispatcher's loop: stand for the lead, and while leading do rounds as long as there is work."""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable

import asyncpg

from app.runtime import Runtime
from app.services.dispatch import ROLE, Dispatcher, LostLead
from app.services.pokes import CHANNEL
from app.store import leaders
from app.store.database import is_transient
from app.telemetry.logs import event

log = logging.getLogger("despacho.dispatcher")


class DispatcherLoop:
    """One candidate for the lead. `leading` tells whether it leads right now."""

    def __init__(self, runtime: Runtime, dispatcher: Dispatcher, *, on_lead: Callable[[bool], None]) -> None:
        self.runtime = runtime
        self.dispatcher = dispatcher
        self.leading = False
        self._on_lead = on_lead
        self._settings = runtime.settings.dispatcher

    async def run(self, stop: asyncio.Event) -> None:
        """Stand for the lead until `stop` is set; a failover takes at most the lease and one try."""
        lease = self._settings.leader_lease_seconds
        while not stop.is_set():
            try:
                epoch = await leaders.stand(
                    self.runtime.database, role=ROLE, holder=self.dispatcher.holder, lease_seconds=lease
                )
                if epoch is not None:
                    await self._lead(epoch, stop)
                    continue
            except Exception as error:
                self._report(error)
            await self._pause(stop, lease / 8 * (0.75 + 0.5 * self.runtime.draw()))

    async def _lead(self, epoch: int, stop: asyncio.Event) -> None:
        await self.dispatcher.take_over(epoch)
        self._set_leading(True)
        renewed_at = time.monotonic()
        try:
            while not stop.is_set():
                if time.monotonic() - renewed_at > self._settings.leader_lease_seconds / 3:
                    if not await self._renewed(epoch):
                        return
                    renewed_at = time.monotonic()
                await self._round(stop)
        except LostLead:
            event(log, "lost_lead", level=logging.WARNING, epoch=epoch)
        finally:
            self._set_leading(False)
            await self.dispatcher.stand_down()
            if stop.is_set():
                with contextlib.suppress(Exception):
                    await leaders.resign(self.runtime.database, role=ROLE, holder=self.dispatcher.holder, epoch=epoch)

    async def _renewed(self, epoch: int) -> bool:
        now_epoch = await leaders.stand(
            self.runtime.database,
            role=ROLE,
            holder=self.dispatcher.holder,
            lease_seconds=self._settings.leader_lease_seconds,
        )
        return now_epoch == epoch

    async def _round(self, stop: asyncio.Event) -> None:
        try:
            moved = await self.dispatcher.round()
        except LostLead:
            raise
        except Exception as error:
            self._report(error)
            await self._pause(stop, 0.1)
            return
        await self.runtime.dispatcher_poke.wait(self.dispatcher.rest_seconds(moved))

    def _report(self, error: Exception) -> None:
        level = logging.WARNING if is_transient(error) else logging.ERROR
        event(log, "dispatcher_round_failed", level=level, error=error)

    def _set_leading(self, leading: bool) -> None:
        self.leading = leading
        self.runtime.metrics.leading(leading)
        self._on_lead(leading)

    @staticmethod
    async def _pause(stop: asyncio.Event, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await stop.wait()


def _sets(event_: asyncio.Event) -> Callable[[object], None]:
    return lambda _: event_.set()


async def listen_for_pokes(runtime: Runtime, database_url: str, stop: asyncio.Event) -> None:
    """Wake the dispatcher of this process when another process has stored work (LISTEN; empty notifications).

    Needs a direct connection; without one (a transaction pooler) the dispatcher still looks every idle poll.
    """
    while not stop.is_set():
        connection: asyncpg.Connection | None = None
        try:
            connection = await asyncpg.connect(database_url, timeout=runtime.settings.database.connect_timeout_seconds)
            gone = asyncio.Event()
            connection.add_termination_listener(_sets(gone))
            await connection.add_listener(CHANNEL, lambda *_: runtime.dispatcher_poke.poke_here())
            waits = [asyncio.create_task(gone.wait()), asyncio.create_task(stop.wait())]
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            for wait in waits:
                wait.cancel()
        except Exception as error:
            event(log, "not_listening", level=logging.WARNING, error=error)
            await DispatcherLoop._pause(stop, 1.0)
        finally:
            if connection is not None:
                with contextlib.suppress(Exception):
                    await connection.close(timeout=1.0)
