"""The benchmark's task types: each only marks its number; one also sleeps 10 ms, others do it in a step or effect.

Their timeout is the `reclaim_within` of the shipped policy's first class, so that they may borrow every idle reserve.
"""

import asyncio

from pydantic import BaseModel

from bench.marks import mark
from despacho import TaskContext, task_type

SLEEP_SECONDS = 0.010


class Numbered(BaseModel):
    """The input of all: the task's number in the file of marks."""

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


@task_type("bench_step", timeout_seconds=10, cost_class="short")
async def step(ctx: TaskContext, task: Numbered) -> None:
    """Mark the task in a step."""
    await ctx.step("mark", _mark, task.number)


@task_type("bench_effect", timeout_seconds=10, cost_class="short")
async def effect(ctx: TaskContext, task: Numbered) -> None:
    """Mark the task as an effect."""
    await ctx.effect("mark", f"mark:{task.number}", _mark, task.number)


async def _mark(number: int) -> None:
    mark(number)
