"""A Runtime on a test's own database, with a broker that is away and the shipped policy."""

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from pydantic import TypeAdapter

from app.broker.base import BrokerUnreachable, Consumer, Depth, Published, TaskMessage
from app.domain.policy_file import parse_policy
from app.domain.task_types import CostClass, TaskTypeSpec
from app.runtime import PolicyHolder, Runtime
from app.settings import Settings
from app.store.database import Database
from app.task_modules import Registry, TaskType
from app.telemetry.metrics import Metrics

POLICY = Path(__file__).resolve().parents[2] / "policy.toml"


class AwayBroker:
    """A broker that cannot be reached: what every caller must be able to live with."""

    connected = False

    async def start(self) -> None:
        """Return at once, as a real one does."""

    async def close(self) -> None:
        """Have nothing to close."""

    async def declare(self, classes: Collection[str]) -> None:
        """Raise BrokerUnreachable."""
        raise BrokerUnreachable

    async def publish(self, items: Sequence[tuple[str, TaskMessage]]) -> list[Published]:
        """Send nothing."""
        return [Published.UNREACHABLE] * len(items)

    def consumer(self, classes: Collection[str], prefetch: int) -> Consumer:
        """Raise BrokerUnreachable."""
        raise BrokerUnreachable

    def dead_letter_consumer(self, prefetch: int) -> Consumer:
        """Raise BrokerUnreachable."""
        raise BrokerUnreachable

    async def depths(self, classes: Collection[str]) -> Mapping[str, Depth]:
        """Raise BrokerUnreachable."""
        raise BrokerUnreachable


def a_task_type(name: str = "echo", **properties: object) -> TaskType:
    """Make a task type that takes any JSON and is never run here."""
    spec = TaskTypeSpec(name=name, cost_class=CostClass.SHORT, **properties)  # type: ignore[arg-type]
    return TaskType(spec, lambda ctx, value: value, True, TypeAdapter(object), None, frozenset())


@asynccontextmanager
async def a_runtime(
    database_url: str, *types: TaskType, settings: Settings | None = None, broker: object = None
) -> AsyncIterator[Runtime]:
    """Open a runtime and close it at the end; knows the type `echo` unless told otherwise."""
    settings = settings or Settings(_env_file=None)
    runtime = Runtime(
        settings=settings,
        database=Database(database_url, settings.database),
        broker=broker or AwayBroker(),  # type: ignore[arg-type]
        metrics=Metrics(),
        policy=PolicyHolder(parse_policy(POLICY.read_text())),
        registry=Registry(types or (a_task_type(),)),
        name="test",
        draw=lambda: 0.5,
    )
    try:
        yield runtime
    finally:
        await runtime.close()
