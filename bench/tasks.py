"""The benchmark's task types: one that only marks its number, one that also sleeps 10 ms.

Their timeout is the `reclaim_within` of the shipped policy's first class, so that they may borrow every idle reserve.
"""

import asyncio

from pydantic import BaseModel

from bench.marks import mark
from despacho import TaskContext, task_type

SLEEP_SECONDS = 0.010


class Numbered(BaseModel):
    """The input of both: the task's number in the file of marks."""

    number: int


@task_type("bench_noop", timeout_seconds=10, cost_class="short")
async def noop(ctx: TaskContext, task: Numbered) -> None:
    """Do nothing but mark the task."""
    mark(task.number)


@task_type("bench_sleep", timeout_seconds=10, cost_class="short")
async def sleep(ctx: TaskContext, task: Numbered) -> None:
    """Mark the task, then sleep 10 ms."""
    mark(task.number)
    await asyncio.sleep(SLEEP_SECONDS)
