"""What the calls of a process write: prompt versions, intents and finishes, each batch in one statement; and metrics.

The only part of `ctx.llm` that needs the database. What goes in and out is plain values, so that a child process can
reach its worker's ledger through a pipe.
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Protocol

from app.coalescer import Coalescer
from app.domain.errors import OwnershipLost
from app.store import llm_calls
from app.store.database import Database, is_data_error
from app.store.llm_calls import Finish, Intent, Past
from app.store.llm_usage import TaskSpending, of_task
from app.store.prompt_versions import first_used
from app.telemetry.metrics import Metrics

_BATCH = 200
_CLOSE_SECONDS = 5.0


class Ledger(Protocol):
    """Where calls are written down before and after they are made."""

    async def first_used(self, name: str, version: int, sha256: str) -> str:
        """Register a prompt version unless it was used before; returns the hash that counts."""

    async def intend(self, intent: Intent) -> Past | None:
        """Write an intent, or give what an earlier call left. Raises OwnershipLost."""

    async def finish(self, intent: Intent, finish: Finish) -> None:
        """Record the end of a call, whoever owns the task by now."""

    async def spent(self, task_id: str) -> TaskSpending:
        """Add up what the task's calls took, in all its attempts."""


class DatabaseLedger:
    """The ledger of a process that has the database."""

    def __init__(self, database: Database, metrics: Metrics) -> None:
        self._database = database
        self._metrics = metrics
        self._patience_seconds = database.settings.retry_for_seconds
        self._intents: Coalescer[Intent, Past | OwnershipLost | None] = Coalescer(
            self._write_intents,
            max_items=_BATCH,
            splits_on=is_data_error,
            observe=lambda size: metrics.batch_flushed("llm_intents", size),
        )
        self._finishes: Coalescer[Finish, None] = Coalescer(
            self._write_finishes,
            max_items=_BATCH,
            splits_on=is_data_error,
            observe=lambda size: metrics.batch_flushed("llm_finishes", size),
        )

    async def first_used(self, name: str, version: int, sha256: str) -> str:
        """Register a prompt version unless it was used before; returns the hash that counts."""
        return await self._database.run(
            lambda connection: first_used(connection, name, version, sha256),
            retry_for_seconds=self._patience_seconds,
        )

    async def intend(self, intent: Intent) -> Past | None:
        """Write an intent, or give what an earlier call left. Raises OwnershipLost."""
        found = await self._intents.submit(intent)
        if isinstance(found, OwnershipLost):
            raise found
        return found

    async def finish(self, intent: Intent, finish: Finish) -> None:
        """Record the end of a call, whoever owns the task by now; it is counted even if it cannot be written."""
        self._count(intent, finish)
        await self._finishes.submit(finish)

    async def spent(self, task_id: str) -> TaskSpending:
        """Add up what the task's calls took, in all its attempts."""
        return await of_task(self._database, task_id, retry_for_seconds=self._patience_seconds)

    def _count(self, intent: Intent, finish: Finish) -> None:
        labels = (intent.provider, finish.model_answered or intent.model_asked, intent.task_type)
        self._metrics.llm_call(*labels, finish.outcome, finish.seconds)
        tokens = {
            "input": finish.input_tokens,
            "output": finish.output_tokens,
            "cached": finish.cached_tokens,
            "cache_write": finish.cache_write_tokens,
            "reasoning": finish.reasoning_tokens,
        }
        self._metrics.llm_tokens(*labels, tokens)
        if finish.cost_usd is not None:
            self._metrics.llm_cost(*labels, float(finish.cost_usd))

    async def _write_intents(self, intents: Sequence[Intent]) -> Sequence[Past | OwnershipLost | None]:
        found = await llm_calls.intend(self._database, intents, retry_for_seconds=self._patience_seconds)
        return [found[one.call_id] if one.call_id in found else OwnershipLost() for one in intents]

    async def _write_finishes(self, finishes: Sequence[Finish]) -> Sequence[None]:
        await llm_calls.finish(self._database, finishes, retry_for_seconds=self._patience_seconds)
        return [None] * len(finishes)


class Errands:
    """Writes that go on when their caller is cancelled."""

    def __init__(self) -> None:
        self._running: set[asyncio.Task[Any]] = set()

    def start(self, work: Coroutine[Any, Any, Any], on_error: Callable[[BaseException], None]) -> "asyncio.Task[Any]":
        """Start a piece of work; its error goes to `on_error` if nobody waits for it any more."""
        task = asyncio.ensure_future(work)
        self._running.add(task)

        def done(ended: "asyncio.Task[Any]") -> None:
            self._running.discard(ended)
            if not ended.cancelled() and (error := ended.exception()) is not None:
                on_error(error)

        task.add_done_callback(done)
        return task

    async def close(self) -> None:
        """Wait for what is under way, for a few seconds at most."""
        if self._running:
            await asyncio.wait(set(self._running), timeout=_CLOSE_SECONDS)
