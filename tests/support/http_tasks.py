"""Task types that call out and use secrets, for the tests of what handlers reach."""

import logging
from typing import Any

from pydantic import BaseModel

from despacho import BlockingTaskContext, TaskContext, task_type


class Call(BaseModel):
    """Whom to call; `at` and `n` are what every test submits."""

    at: str = ""
    n: int = 0
    url: str = ""
    name: str = "TEST_TOKEN"


_OPTIONS: dict[str, Any] = {
    "timeout_seconds": 30,
    "max_attempts": 1,
    "backoff_base_seconds": 0.05,
    "secrets": ["TEST_TOKEN"],
}


def _headers(ctx: TaskContext | BlockingTaskContext, call: Call) -> dict[str, str]:
    return {"Authorization": f"Bearer {ctx.secret(call.name)}"}


@task_type("call_out", **_OPTIONS)
async def call_out(ctx: TaskContext, call: Call) -> Any:
    """Call with the secret, from the loop."""
    response = await ctx.http.post(call.url, json={"n": call.n}, headers=_headers(ctx, call))
    return response.raise_for_status().json()


@task_type("call_out_thread", **_OPTIONS)
def call_out_thread(ctx: BlockingTaskContext, call: Call) -> Any:
    """Call with the secret, from a thread."""
    response = ctx.http.post(call.url, json={"n": call.n}, headers=_headers(ctx, call))
    return response.raise_for_status().json()


@task_type("call_out_process", executor="process", **_OPTIONS)
def call_out_process(ctx: BlockingTaskContext, call: Call) -> Any:
    """Call with the secret, from a process."""
    response = ctx.http.post(call.url, json={"n": call.n}, headers=_headers(ctx, call))
    return response.raise_for_status().json()


_ONCE: dict[str, Any] = {"timeout_seconds": 30, "max_attempts": 1}


@task_type("call_once", **_ONCE)
async def call_once(ctx: TaskContext, call: Call) -> Any:
    """Call as an effect, from the loop."""

    async def post(url: str) -> str:
        return str((await ctx.http.post(url, json={})).json()["n"])

    return await ctx.effect("post", f"post:{ctx.task_id}", post, call.url)


def _call_once(ctx: BlockingTaskContext, call: Call) -> Any:
    def post(url: str) -> str:
        return str(ctx.http.post(url, json={}).json()["n"])

    return ctx.effect("post", f"post:{ctx.task_id}", post, call.url)


@task_type("call_once_thread", **_ONCE)
def call_once_thread(ctx: BlockingTaskContext, call: Call) -> Any:
    """Call as an effect, from a thread."""
    return _call_once(ctx, call)


@task_type("call_once_process", executor="process", **_ONCE)
def call_once_process(ctx: BlockingTaskContext, call: Call) -> Any:
    """Call as an effect, from a process."""
    return _call_once(ctx, call)


def _leak(ctx: TaskContext | BlockingTaskContext, call: Call) -> None:
    value = ctx.secret(call.name)
    ctx.log.warning("using %s", value, extra={"value": value})
    logging.getLogger("somebody.else").error("it is %r", {"key": value})
    ctx.progress(0.5, f"with {value}")
    raise ValueError(f"refused {value} by https://user:{value}@example.com/?q={value}")


@task_type("leak", **_OPTIONS)
async def leak(ctx: TaskContext, call: Call) -> None:
    """Say the secret wherever a handler can."""
    _leak(ctx, call)


@task_type("leak_process", executor="process", **_OPTIONS)
def leak_process(ctx: BlockingTaskContext, call: Call) -> None:
    """Say the secret wherever a handler can, from a process."""
    _leak(ctx, call)
