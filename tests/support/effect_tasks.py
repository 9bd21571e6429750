"""Task types that have one effect each at an outside system (`outside.py`), by coroutine, in a thread, in a process."""

import asyncio
import os
from pathlib import Path
from typing import Any

import httpx
from pydantic import BaseModel

from despacho import BlockingTaskContext, DeadLetter, TaskContext, task_type
from tests.support.tasks import mark

_FAST = {"backoff_base_seconds": 0.05, "backoff_cap_seconds": 0.2}
_TIMEOUT_SECONDS = 30.0


class Act(BaseModel):
    """What to do: where the outside is, under which key, and what the type declares of it."""

    at: str
    url: str
    key: str = ""
    n: int = 0
    body: str = "x"
    effect_type: str = "act"
    reconciles: bool = False
    honours_key_for_seconds: float = 0.0
    call_timeout_seconds: float = 5.0
    holds: str = ""
    """`before` the request or `after` its answer: the call stays there at the first run, to be killed."""


async def post(url: str, body: str, *, idempotency_key: str) -> str:
    """Have it accepted; returns the outside's id."""
    async with httpx.AsyncClient(timeout=_TIMEOUT_SECONDS) as client:
        answer = await client.post(f"{url}/effects", content=body, headers={"Idempotency-Key": idempotency_key})
    answer.raise_for_status()
    return str(answer.json()["id"])


def post_blocking(url: str, body: str, *, idempotency_key: str) -> str:
    """Do the same as a plain function."""
    answer = httpx.post(
        f"{url}/effects", content=body, headers={"Idempotency-Key": idempotency_key}, timeout=_TIMEOUT_SECONDS
    )
    answer.raise_for_status()
    return str(answer.json()["id"])


def asks(url: str) -> Any:
    """Make the function that asks the outside about a key."""

    async def ask(key: str, *, idempotency_key: str) -> str | None:
        async with httpx.AsyncClient(timeout=_TIMEOUT_SECONDS) as client:
            answer = await client.get(f"{url}/effects/{idempotency_key}")
        return str(answer.json()["id"]) if answer.status_code == 200 else None

    return ask


async def _hold(task: Act, where: str) -> None:
    """Stay here for good at the first run that comes here."""
    held = Path(task.at) / f"held-{task.n}"
    if task.holds == where and not held.exists():
        mark(task.at, held.name, os.getpid())
        await asyncio.Event().wait()


@task_type("act", timeout_seconds=60, max_attempts=4, **_FAST)  # type: ignore[arg-type]
async def act(ctx: TaskContext, task: Act) -> dict[str, Any]:
    """Have the effect on the loop."""
    mark(task.at, "starts", ctx.task_id, ctx.attempt, task.n, os.getpid())

    async def call(url: str, body: str, *, idempotency_key: str) -> str:
        mark(task.at, "calls", ctx.task_id, ctx.attempt)
        await _hold(task, "before")
        external_id = await post(url, body, idempotency_key=idempotency_key)
        await _hold(task, "after")
        return external_id

    external_id = await ctx.effect(
        task.effect_type,
        task.key or f"act:{ctx.task_id}",
        call,
        task.url,
        task.body,
        reconcile=asks(task.url) if task.reconciles else None,
        honours_key_for_seconds=task.honours_key_for_seconds,
        call_timeout_seconds=task.call_timeout_seconds,
    )
    return {"id": external_id}


def _act_blocking(ctx: BlockingTaskContext, task: Act) -> dict[str, Any]:
    mark(task.at, "starts", ctx.task_id, ctx.attempt, task.n, os.getpid())
    external_id = ctx.effect(
        "act",
        task.key or f"act:{ctx.task_id}",
        post_blocking,
        task.url,
        task.body,
        reconcile=asks(task.url) if task.reconciles else None,
        honours_key_for_seconds=task.honours_key_for_seconds,
        call_timeout_seconds=task.call_timeout_seconds,
    )
    return {"id": external_id}


@task_type("act_thread", timeout_seconds=60, max_attempts=4, **_FAST)  # type: ignore[arg-type]
def act_thread(ctx: BlockingTaskContext, task: Act) -> dict[str, Any]:
    """Have the effect from a thread."""
    return _act_blocking(ctx, task)


@task_type("act_process", timeout_seconds=60, max_attempts=4, executor="process", **_FAST)  # type: ignore[arg-type]
def act_process(ctx: BlockingTaskContext, task: Act) -> dict[str, Any]:
    """Have the effect from a process."""
    return _act_blocking(ctx, task)


@task_type("act_declared", timeout_seconds=60, max_attempts=4, effects=["act", "wipe"], destructive=["wipe"])
async def act_declared(ctx: TaskContext, task: Act) -> dict[str, Any]:
    """Have an effect of the type that the input names."""
    return await act(ctx, task)


@task_type("act_carelessly", timeout_seconds=60, max_attempts=4, **_FAST)  # type: ignore[arg-type]
async def act_carelessly(ctx: TaskContext, task: Act) -> dict[str, Any]:
    """Swallow every error and end well."""
    try:
        return await act(ctx, task)
    except DeadLetter:
        raise
    except Exception as error:
        return {"swallowed": type(error).__name__}
