"""What a handler sees of the world: its task, its inputs, progress and a logger bound to the task."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, MutableMapping
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from app.domain.errors import DeadLetter
from workers.attempt import Attempt
from workers.dependency_call import BlockingDependencyCall, DependencyCall

if TYPE_CHECKING:
    from workers.facilities import Facilities

ReadInput = Callable[[str, str], Awaitable[tuple[bytes, str]]]
"""(tenant_id, input_ref) → (content, content type). Raises DeadLetter('missing_input') where there is none."""


class _BoundLog(logging.LoggerAdapter[logging.Logger]):
    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        kwargs["extra"] = {**(self.extra or {}), **kwargs.get("extra", {})}
        return msg, kwargs


class TaskContext:
    """The context of one attempt, for `async def` handlers."""

    __slots__ = ("_facilities", "_progress", "owner")

    def __init__(self, owner: Attempt, facilities: "Facilities") -> None:
        self.owner = owner
        self._facilities = facilities
        self._progress: tuple[float, str] | None = None

    @property
    def task_id(self) -> str:
        """The task's id."""
        return self.owner.task_id

    @property
    def task_type(self) -> str:
        """The name of the task's type."""
        return self.owner.spec.name

    @property
    def attempt(self) -> int:
        """The number of this attempt, from 1."""
        return self.owner.number

    @property
    def tenant_id(self) -> str:
        """Whose task it is."""
        return self.owner.tenant_id

    @property
    def priority_class(self) -> str:
        """The class that the task has."""
        return self.owner.priority_class

    @property
    def traceparent(self) -> str | None:
        """The W3C trace context that the task was submitted with."""
        return self.owner.traceparent

    @property
    def log(self) -> logging.LoggerAdapter[logging.Logger]:
        """A logger whose lines carry task_id, attempt and tenant."""
        return _BoundLog(
            logging.getLogger("despacho.handler"),
            {"task_id": self.task_id, "attempt": self.attempt, "tenant_id": self.tenant_id},
        )

    async def input_bytes(self, ref: str) -> bytes:
        """Read a stored input. Raises DeadLetter (`missing_input`) when the tenant has none under `ref`."""
        content, _ = await self._facilities.read_input(self.owner.tenant_id, ref)
        return content

    async def input_text(self, ref: str) -> str:
        """Read a stored input as text. Raises DeadLetter: `missing_input`; `corrupted_input` when not UTF-8."""
        return as_text(await self.input_bytes(ref))

    def dependency(self, name: str, estimated_tokens: float = 0) -> DependencyCall:
        """Call a dependency within its limits: `async with ctx.dependency("crm") as call:`; see `workers/README.md`.

        Raises Snoozed when it is closed, or no permit comes soon: the task goes on later, and no attempt is spent.
        """
        if self._facilities.dependencies is None:
            raise DeadLetter("no_dependencies", "dependencies cannot be called from a child process")
        return self._facilities.dependencies.call(
            name,
            priority_class=self.owner.priority_class,
            estimated_tokens=estimated_tokens,
            attempt_timeout_seconds=self.owner.timeout_seconds,
        )

    async def spent(self, *, cost_usd: Decimal = Decimal(0), tokens: int = 0) -> None:
        """Count money and tokens paid elsewhere towards the budgets; model calls are counted by themselves."""
        if self._facilities.budgets is None:
            raise DeadLetter("no_budgets", "spending cannot be counted from a child process")
        await self._facilities.budgets.spent(self.owner, cost_usd=cost_usd, tokens=tokens)

    def progress(self, fraction: float, message: str = "") -> None:
        """Say how far the task is (0 to 1); written with the next heartbeat, and only while this attempt owns it."""
        if not 0.0 <= fraction <= 1.0:
            raise ValueError("progress: fraction should be from 0 to 1")
        self._progress = (float(fraction), str(message)[:500])

    def take_progress(self) -> tuple[float, str] | None:
        """Hand over what progress was said since the last time (for the worker's heartbeat)."""
        said, self._progress = self._progress, None
        return said


class BlockingTaskContext:
    """The same context for plain `def` handlers: its calls block the handler's thread, never the worker's loop."""

    __slots__ = ("_context", "_loop")

    def __init__(self, context: TaskContext, loop: asyncio.AbstractEventLoop) -> None:
        self._context = context
        self._loop = loop

    @property
    def task_id(self) -> str:
        """The task's id."""
        return self._context.task_id

    @property
    def attempt(self) -> int:
        """The number of this attempt, from 1."""
        return self._context.attempt

    @property
    def tenant_id(self) -> str:
        """Whose task it is."""
        return self._context.tenant_id

    @property
    def priority_class(self) -> str:
        """The class that the task has."""
        return self._context.priority_class

    @property
    def traceparent(self) -> str | None:
        """The W3C trace context that the task was submitted with."""
        return self._context.traceparent

    @property
    def log(self) -> logging.LoggerAdapter[logging.Logger]:
        """A logger whose lines carry task_id, attempt and tenant."""
        return self._context.log

    def input_bytes(self, ref: str) -> bytes:
        """Read a stored input; see TaskContext."""
        return asyncio.run_coroutine_threadsafe(self._context.input_bytes(ref), self._loop).result()

    def input_text(self, ref: str) -> str:
        """Read a stored input as text; see TaskContext."""
        return as_text(self.input_bytes(ref))

    def dependency(self, name: str, estimated_tokens: float = 0) -> BlockingDependencyCall:
        """Call a dependency within its limits: `with ctx.dependency("crm") as call:`; see TaskContext."""
        return BlockingDependencyCall(self._context.dependency(name, estimated_tokens), self._loop)

    def spent(self, *, cost_usd: Decimal = Decimal(0), tokens: int = 0) -> None:
        """Count money and tokens that were paid elsewhere; see TaskContext."""
        counting = self._context.spent(cost_usd=cost_usd, tokens=tokens)
        asyncio.run_coroutine_threadsafe(counting, self._loop).result()

    def progress(self, fraction: float, message: str = "") -> None:
        """Say how far the task is; see TaskContext."""
        self._context.progress(fraction, message)


def as_text(content: bytes) -> str:
    """Decode UTF-8, with or without a byte order mark. Raises DeadLetter (`corrupted_input`)."""
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise DeadLetter("corrupted_input", "the input is not UTF-8 text") from None
