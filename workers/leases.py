"""Keeping leases alive, whatever the handlers do.

The heartbeat runs on the worker's loop. When an `async` handler blocks that loop, the guard's thread notices, logs the
loop's stack, and renews the leases itself, but only for attempts inside their timeout and grace: a loop that hangs
beyond that ends the process, and the tasks go to other workers.
"""

import asyncio
import logging
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence

from app.settings import Settings
from app.store.database import Database
from app.store.flights import hold, hold_unread
from app.telemetry.logs import event

log = logging.getLogger("despacho.worker")

Lease = tuple[str, int, float]
"""(task_id, fence, `time.monotonic()` by which its handler must have ended)"""

_KEEP_OPEN_SECONDS = 60.0


class LeaseGuard:
    """A thread that takes over the renewals while the loop is blocked. `leases` must be safe to call from a thread."""

    def __init__(
        self,
        settings: Settings,
        database_url: str,
        leases: Callable[[], Sequence[Lease]],
        worker_id: str,
        *,
        blocked_after_seconds: float | None = None,
        end_process: Callable[[int], None] = os._exit,
    ) -> None:
        self._settings = settings
        self._database_url = database_url
        self._leases = leases
        self._worker_id = worker_id
        # Soon enough for a lease that the heartbeat would have renewed just now: a third of it is gone by then.
        self._blocked_after_seconds = blocked_after_seconds or min(2.0, settings.worker.lease_seconds / 4)
        self._end_process = end_process
        self._beat_at = time.monotonic()
        self._loop_thread = threading.get_ident()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="lease-guard", daemon=True)

    def start(self) -> None:
        """Begin watching; call from the loop's thread."""
        self.beat()
        self._thread.start()

    def beat(self) -> None:
        """Say that the loop turns; call it at least every second."""
        self._beat_at = time.monotonic()

    def stop(self) -> None:
        """Stop watching."""
        self._stop.set()
        self._thread.join(5.0)

    def _watch(self) -> None:
        # A loop and a connection of its own, open before they are needed: with a handler that burns the processor every
        # step of making them would wait for its turn, and a short lease would be over by then.
        with asyncio.Runner() as runner:
            database = Database(
                self._database_url,
                self._settings.database.model_copy(update={"pool_size": 1, "hot_pool_size": 2}),
                application_name="despacho-lease-guard",
            )
            try:
                self._renew(runner, database, [])
                self._watch_with(runner, database)
            finally:
                runner.run(database.close())

    def _watch_with(self, runner: asyncio.Runner, database: Database) -> None:
        kept_at = time.monotonic()
        reported_at: float | None = None
        renewed_at = 0.0
        while True:
            slept_at = time.monotonic()
            if self._stop.wait(self._blocked_after_seconds / 4):
                return
            if time.monotonic() - slept_at > self._blocked_after_seconds:
                # The whole process stood still (stopped, suspended): the loop has its chance first.
                self.beat()
            blocked_seconds = time.monotonic() - self._beat_at
            if blocked_seconds < self._blocked_after_seconds:
                reported_at = None
                if time.monotonic() - kept_at > _KEEP_OPEN_SECONDS:
                    kept_at = time.monotonic()
                    self._renew(runner, database, [])
                continue
            if reported_at != self._beat_at:
                reported_at = self._beat_at
                self._report(blocked_seconds)
            leases = list(self._leases())
            now = time.monotonic()
            alive = [(task_id, fence) for task_id, fence, end_by in leases if end_by > now]
            if leases and not alive:
                event(log, "loop_hung", level=logging.CRITICAL, blocked_seconds=round(blocked_seconds, 1))
                self._end_process(70)
                return
            if alive and now - renewed_at >= self._settings.worker.lease_seconds / 3:
                renewed_at = now
                self._renew(runner, database, alive)
                self._renew_unread(runner, database, [task_id for task_id, _, _ in leases])

    def _renew_unread(self, runner: asyncio.Runner, database: Database, known: list[str]) -> None:
        """Renew what was claimed just before the loop was blocked: its answer waits in the socket."""
        lease_seconds = self._settings.worker.lease_seconds
        try:
            runner.run(hold_unread(database, worker_id=self._worker_id, known=known, renew_seconds=lease_seconds))
        except Exception as error:
            event(log, "lease_guard_failed", level=logging.WARNING, error=error)

    def _report(self, blocked_seconds: float) -> None:
        frame = sys._current_frames().get(self._loop_thread)
        stack = traceback.format_stack(frame)[-8:] if frame is not None else []
        event(
            log, "loop_blocked", level=logging.WARNING, blocked_seconds=round(blocked_seconds, 1), stack="".join(stack)
        )

    def _renew(self, runner: asyncio.Runner, database: Database, alive: list[tuple[str, int]]) -> None:
        """Renew these leases; with none, only keep the connection open."""
        lease_seconds = self._settings.worker.lease_seconds
        try:
            runner.run(hold(database, alive, renew_seconds=lease_seconds, retry_for_seconds=1.0))
        except Exception as error:
            event(log, "lease_guard_failed", level=logging.WARNING, error=error)
