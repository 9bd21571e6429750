"""Long polls: one poller per process asks for all who wait, in one statement; who waits holds no connection.

The interval follows the youngest waiter: 10 ms for one who has just come, up to 250 ms for those who have waited long.
A worker in the same process tells of ends at once, without the database.
"""

import asyncio
import logging
from collections.abc import Iterable
from functools import partial

from app.store.database import Database
from app.store.tasks import final_among

log = logging.getLogger(__name__)

_SHORTEST_SECONDS = 0.01
_LONGEST_SECONDS = 0.25
_GROWTH = 0.25
_MOST_PER_STATEMENT = 5_000


class Waiters:
    """Those who wait in this process for tasks to end."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._waiting: dict[str, set[asyncio.Future[bool]]] = {}
        self._youngest_at = 0.0
        self._polling: asyncio.Task[None] | None = None
        self._closed = False
        self._woken = asyncio.Event()

    async def wait(self, task_id: str, seconds: float) -> bool:
        """Wait until the task has ended, at most that long; tells whether it has."""
        if seconds <= 0 or self._closed:
            return False
        loop = asyncio.get_running_loop()
        future: asyncio.Future[bool] = loop.create_future()
        self._waiting.setdefault(task_id, set()).add(future)
        self._youngest_at = loop.time()
        self._woken.set()
        if self._polling is None or self._polling.done():
            self._polling = asyncio.create_task(self._poll())
        try:
            async with asyncio.timeout(seconds):
                return await future
        except TimeoutError:
            return False
        finally:
            held = self._waiting.get(task_id)
            if held is not None:
                held.discard(future)
                if not held:
                    del self._waiting[task_id]

    def notify(self, task_ids: Iterable[str]) -> None:
        """Tell those who wait for these tasks that they have ended."""
        for task_id in task_ids:
            for future in self._waiting.get(task_id, ()):
                if not future.done():
                    future.set_result(True)

    def close(self) -> None:
        """Answer everybody with how things are, and let nobody wait any more: the process is going down."""
        self._closed = True
        for held in self._waiting.values():
            for future in held:
                if not future.done():
                    future.set_result(False)

    async def _poll(self) -> None:
        loop = asyncio.get_running_loop()
        while self._waiting:
            pause = min(_LONGEST_SECONDS, max(_SHORTEST_SECONDS, (loop.time() - self._youngest_at) * _GROWTH))
            self._woken.clear()
            if pause > _SHORTEST_SECONDS:
                # A newcomer shortens the pause of everybody.
                try:
                    async with asyncio.timeout(pause):
                        await self._woken.wait()
                except TimeoutError:
                    pass
            else:
                await asyncio.sleep(pause)
            try:
                await self._ask()
            except Exception as error:
                # Those who wait go on waiting: their own time limit ends it.
                log.warning("waiters.poll_failed", extra={"error": type(error).__name__})

    async def _ask(self) -> None:
        ids = [task_id for task_id, held in self._waiting.items() if any(not future.done() for future in held)]
        for start in range(0, len(ids), _MOST_PER_STATEMENT):
            part = ids[start : start + _MOST_PER_STATEMENT]
            self.notify(await self._database.run(partial(final_among, task_ids=part)))
