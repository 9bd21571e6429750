"""A small cache of looked-up values: short-lived, bounded, and with one look-up at a time per key."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class TtlCache(Generic[K, V]):
    """Remembers found values for `seconds`; what is not found (None) is looked up again every time."""

    def __init__(self, look_up: Callable[[K], Awaitable[V | None]], *, seconds: float, most: int) -> None:
        self._look_up = look_up
        self._seconds = seconds
        self._most = most
        self._known: dict[K, tuple[float, V]] = {}
        self._running: dict[K, asyncio.Task[V | None]] = {}

    async def get(self, key: K) -> V | None:
        """Return the value of `key`, looked up at most `seconds` ago. Raises what the look-up raises."""
        held = self._known.get(key)
        if held is not None and held[0] > time.monotonic():
            return held[1]
        running = self._running.get(key)
        if running is None:
            running = asyncio.create_task(self._fetch(key))
            self._running[key] = running
            running.add_done_callback(lambda _: self._running.pop(key, None))
        return await asyncio.shield(running)

    async def _fetch(self, key: K) -> V | None:
        began = time.monotonic()
        value = await self._look_up(key)
        if value is None:
            self._known.pop(key, None)
            return None
        if len(self._known) >= self._most:
            self._known.clear()
        self._known[key] = (began + self._seconds, value)
        return value

    def forget(self) -> None:
        """Forget everything: something has changed."""
        self._known.clear()
