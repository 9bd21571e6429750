"""The composition root: everything that one process works with, made once and handed down. Nothing here is global."""

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

from sqlalchemy.ext.asyncio import AsyncConnection

from app.broker.base import Broker
from app.classification import Classifier
from app.domain.policy import Policy
from app.domain.policy_file import PolicyError
from app.settings import Settings, SettingsError
from app.store import policies
from app.store.database import Database
from app.task_modules import Registry, load
from app.telemetry.metrics import Metrics


class PolicyHolder:
    """The policy in force, as this process last read it."""

    def __init__(self, policy: Policy) -> None:
        self.refused: str | None = None
        """The newest version, where this release cannot read it: the one before goes on to rule here."""
        self.adopt(policy)

    def adopt(self, policy: Policy) -> None:
        """Put a version in force in this process."""
        self.refused = None
        self.current = policy
        self.classifier = Classifier(policy)

    async def refresh(self, connection: AsyncConnection) -> bool:
        """Read the newest version; tells whether it changed. Raises PolicyError, once, when it does not parse."""
        version = await policies.newest_version(connection)
        if version in (None, self.current.version, self.refused):
            self.refused = self.refused if version == self.refused else None
            return False
        try:
            newest = await policies.newest(connection)
        except PolicyError:
            self.refused = version
            raise
        if newest is None:
            return False
        self.adopt(newest)
        return True


class Pokes:
    """Wake-up calls for the dispatcher: a flag, no payload. `forward`, where set, passes them to other processes."""

    def __init__(self) -> None:
        self._event = asyncio.Event()
        self.forward: Callable[[], None] | None = None

    def poke(self) -> None:
        """Say that there is new work, here and (unless the leader is here) elsewhere."""
        self._event.set()
        if self.forward is not None:
            self.forward()

    def poke_here(self) -> None:
        """Wake the dispatcher of this process only."""
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
    clock_ahead: timedelta = timedelta(0)
    """How far the clock of this machine is ahead of the database's, which is the one that counts."""
    ended: list[Callable[[list[str]], None]] = field(default_factory=list)

    def now(self) -> datetime:
        """Tell the time (aware, UTC) by the database's clock, as far as this process knows it."""
        return datetime.now(UTC) - self.clock_ahead

    def tell_ended(self, task_ids: list[str]) -> None:
        """Tell those who wait in this process that these tasks have ended."""
        for listener in self.ended:
            listener(task_ids)

    async def close(self) -> None:
        """Close the broker, then the database."""
        await self.broker.close()
        await self.database.close()


async def open_runtime(
    settings: Settings, *, name: str, database_url: str, broker: Broker, metrics: Metrics | None = None
) -> Runtime:
    """Make a process's runtime on a migrated database: seed or read the policy, load the task modules.

    Raises TaskModuleError, PolicyError or DatabaseUnavailable; what was opened by then is closed again.
    """
    registry = load(settings.task_modules)
    metrics = metrics or Metrics()
    database = Database(
        database_url,
        settings.database,
        application_name=f"despacho-{name}"[:63],
        on_retry=metrics.database_retried,
    )
    try:
        document = policy_document(settings)

        async def seeded(connection: AsyncConnection) -> Policy:
            return await policies.seed(connection, document, "policy.toml")

        policy = await database.run(seeded, retry_for_seconds=settings.database.retry_for_seconds)
    except BaseException:
        await database.close()
        raise
    return Runtime(
        settings=settings,
        database=database,
        broker=broker,
        metrics=metrics,
        policy=PolicyHolder(policy),
        registry=registry,
        name=name,
    )


def policy_document(settings: Settings) -> str:
    """Read the policy that seeds an empty database: the file of the settings, or the one that is shipped.

    Raises SettingsError when the file cannot be read.
    """
    path = settings.policy_file or Path(__file__).resolve().parent.parent / "policy.toml"
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(
            f"DESPACHO_POLICY_FILE: the file cannot be read ({type(error).__name__}); it should be a TOML file in UTF-8"
        ) from None
