"""A provider that handlers call in this process: it answers, fails or limits as told, and notes every request."""

import asyncio
import time
from collections import Counter
from dataclasses import dataclass, field

import httpx

from despacho import BlockingTaskContext, TaskContext, task_type
from tests.support.tasks import At

PROVIDERS: dict[str, "Provider"] = {}
"""The provider of each test, by the directory of its marks."""


@dataclass(slots=True)
class Provider:
    """`status` is what it answers with; `at_once` is the most calls that it ever saw at once."""

    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    seconds: float = 0.005
    requests: list[float] = field(default_factory=list)
    under_way: int = 0
    at_once: int = 0

    async def answer(self) -> None:
        """Take one request. Raises HTTPStatusError for a status that is none of success, as a client would."""
        self.requests.append(time.monotonic())
        self.under_way += 1
        self.at_once = max(self.at_once, self.under_way)
        try:
            await asyncio.sleep(self.seconds)
        finally:
            self.under_way -= 1
        httpx.Response(
            self.status, headers=self.headers, request=httpx.Request("GET", "http://provider")
        ).raise_for_status()

    def between(self, start: float, end: float) -> int:
        """Count the requests of a span."""
        return sum(start <= at < end for at in self.requests)

    def per_slot(self, start: float, end: float, slot_seconds: float) -> list[int]:
        """Count the requests of a span slot by slot."""
        counts = Counter(int((at - start) / slot_seconds) for at in self.requests if start <= at < end)
        return [counts[slot] for slot in range(int((end - start) / slot_seconds))]


@task_type("ask_provider", depends_on=["provider"], max_attempts=5, timeout_seconds=30, cost_class="short",
           backoff_base_seconds=0.2, backoff_cap_seconds=1.0)  # fmt: skip
async def ask_provider(ctx: TaskContext, task: At) -> dict[str, int]:
    """Ask once, within the limits."""
    async with ctx.dependency("provider"):
        await PROVIDERS[task.at].answer()
    return {"attempt": ctx.attempt}


@task_type("ask_blocking", depends_on=["provider"], timeout_seconds=30, cost_class="short", max_attempts=3)
def ask_blocking(ctx: BlockingTaskContext, task: At) -> dict[str, int]:
    """Ask from a thread."""
    with ctx.dependency("provider") as call:
        PROVIDERS[task.at].requests.append(time.monotonic())
        call.used(3)
    return {"attempt": ctx.attempt}
