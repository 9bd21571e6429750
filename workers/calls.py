"""Calling what a handler hands over: coroutine functions on the loop, plain functions in a thread."""

import contextvars
import inspect
from collections.abc import Callable
from typing import Any

from workers.threads import HandlerThreads

# Threads of their own, not the loop's default ones: of those there are six on two cores, and one call that never
# returns would keep the process from ending.
_threads = HandlerThreads()


async def invoke(call: Callable[..., Any], *arguments: Any) -> Any:
    """Call and wait for the value. A plain function runs in a thread, so that it cannot stop the loop.

    Raises what it raises; StopIteration, which a future refuses, as RuntimeError.
    """
    if is_async(call):
        return await call(*arguments)
    value = await _threads.call(contextvars.copy_context().run, call, *arguments)
    return await value if inspect.isawaitable(value) else value


def is_async(call: Callable[..., Any]) -> bool:
    """Say whether calling it gives a coroutine."""
    return inspect.iscoroutinefunction(call) or inspect.iscoroutinefunction(type(call).__call__)
