"""Attempts of real tasks on a real database, with models behind `ctx.llm` that the test scripts."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from app.domain.lifecycle import Move
from app.domain.outcome import Settlement
from app.domain.task_types import TaskTypeSpec
from app.llm_settings import LlmSettings, ProviderSettings
from app.runtime import Runtime
from app.settings import Settings
from app.store.flights import Claimed
from app.store.settlements import settle
from tests.support.contexts import no_input
from tests.support.llm_provider import FakeProvider, a_provider
from tests.support.runtimes import a_runtime
from tests.support.work import claimed, rows, submitted
from workers.attempt import Attempt
from workers.context import TaskContext
from workers.facilities import Facilities
from workers.llm.ledger import DatabaseLedger
from workers.llm.limits import Budgets, Dependencies
from workers.llm.llm import Llm


@dataclass
class LlmWorld:
    """A runtime, a provider and the settings of `ctx.llm`; every context is of the task's next attempt."""

    runtime: Runtime
    provider: FakeProvider
    prompts: Path
    opened: list[Llm]

    def llm(
        self,
        *,
        providers: Mapping[str, ProviderSettings] | None = None,
        dependencies: Dependencies | None = None,
        budgets: Budgets | None = None,
        **settings: Any,
    ) -> Llm:
        """Open the models of one process."""
        chosen = LlmSettings(
            providers=dict(providers or {"fake": self.provider.settings()}), prompts_dir=self.prompts, **settings
        )
        ledger = DatabaseLedger(self.runtime.database, self.runtime.metrics)
        llm = Llm(chosen, ledger, dependencies=dependencies, budgets=budgets)
        self.opened.append(llm)
        return llm

    async def attempt(self, task_id: str | None = None) -> Attempt:
        """Claim a task (a new one, unless it is named) and give its attempt."""
        if task_id is None:
            (task_id,) = await submitted(self.runtime)
        (one,) = await claimed(self.runtime, [task_id])
        return owner_of(one)

    async def context(self, llm: Llm | None = None, *, task_id: str | None = None) -> TaskContext:
        """Claim a task and give the context of its attempt."""
        return a_context(await self.attempt(task_id), llm or self.llm())

    async def failed(self, owner: Attempt) -> None:
        """End an attempt, so that the task can be claimed again at once."""
        settlement = Settlement(
            owner.task_id, owner.fence, Move.FAIL, "failed", error_type="x", error_message="x", error_retryable=True,
            after_seconds=0.0,
        )  # fmt: skip
        assert await settle(self.runtime.database, [settlement])

    async def calls(self, task_id: str) -> Sequence[Mapping[str, Any]]:
        """Read the calls of a task, the oldest first."""
        return await rows(
            self.runtime, "SELECT * FROM llm_calls WHERE task_id = :id ORDER BY started_at, call_id", id=task_id
        )

    def prompt(self, reference: str, text: str) -> Path:
        """Write a prompt file."""
        path = self.prompts / f"{reference}.md"
        path.write_text(text)
        return path


def owner_of(one: Claimed) -> Attempt:
    """Make the attempt of a claimed task."""
    return Attempt(
        one.task_id, one.tenant_id, TaskTypeSpec(one.type), one.attempt, one.fence, one.dispatch, one.priority_class,
        "worker_1", 60.0,
    )  # fmt: skip


def a_context(owner: Attempt, llm: Llm) -> TaskContext:
    """Make the context of an attempt."""
    return TaskContext(owner, Facilities(read_input=no_input, llm=llm))


@asynccontextmanager
async def a_world(database_url: str, prompts: Path) -> AsyncIterator[LlmWorld]:
    """Open a world and close it at the end."""
    async with a_runtime(database_url, settings=Settings(_env_file=None)) as runtime, a_provider() as provider:
        world = LlmWorld(runtime, provider, prompts, [])
        try:
            yield world
        finally:
            for llm in world.opened:
                await llm.close()
