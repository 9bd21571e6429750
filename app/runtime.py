"""The composition root: everything that one process works with, made once and handed down. Nothing here is global."""

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass, field

from sqlalchemy.ext.asyncio import AsyncConnection

from app.broker.base import Broker
from app.domain.policy import Policy
from app.settings import Settings
from app.store import policies
from app.store.database import Database
from app.task_modules import Registry
from app.telemetry.metrics import Metrics


class PolicyHolder:
    """The policy in force, as this process last read it."""

    def __init__(self, policy: Policy) -> None:
        self.current = policy

    async def refresh(self, connection: AsyncConnection) -> bool:
        """Read the newest version from the database; tells whether it changed. A version that does not parse is left alone."""
        newest = await policies.newest(connection)
        if newest is None or newest.version == self.current.version:
            return False
        self.current = newest
        return True


class Pokes:
    """In-process wake-up calls: a set flag that several waiters may wait for, with no payload and no queue."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def poke(self) -> None:
        """Wake whoever waits, or the next who will."""
        self._event.set()

    async def wait(self, at_most_seconds: float) -> bool:
        """Wait for a poke, at most that long; tells whether there was one, and clears it."""
        if not self._event.is_set():
            try:
                async with asyncio.timeout(at_most_seconds):
                    await self._event.wait()
            except TimeoutError:
                return False
        self._event.clear()
        return True


@dataclass(slots=True)
class Runtime:
    """What services and workers need: the store, the broker, metrics, settings, policy, task types and chance.

    `dispatcher_poke` wakes a dispatcher in this process; `ended` is called with the ids of tasks that this process saw
    end, so that those who wait for them here need not poll.
    """

    settings: Settings
    database: Database
    broker: Broker
    metrics: Metrics
    policy: PolicyHolder
    registry: Registry
    name: str
    draw: Callable[[], float] = random.random
    dispatcher_poke: Pokes = field(default_factory=Pokes)
    ended: list[Callable[[list[str]], None]] = field(default_factory=list)

    def tell_ended(self, task_ids: list[str]) -> None:
        """Tell those who wait in this process that these tasks have ended."""
        for listener in self.ended:
            listener(task_ids)

    async def close(self) -> None:
        """Close the broker, then the database."""
        await self.broker.close()
        await self.database.close()
