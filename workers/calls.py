"""Calling what a handler hands over: coroutine functions on the loop, plain functions in a thread."""

import asyncio
import inspect
from collections.abc import Callable
from typing import Any


async def invoke(call: Callable[..., Any], *arguments: Any) -> Any:
    """Call and wait for the value. A plain function runs in a thread, so that it cannot stop the loop.

    Raises what it raises; StopIteration, which a future refuses, as RuntimeError.
    """
    if inspect.iscoroutinefunction(call) or inspect.iscoroutinefunction(type(call).__call__):
        return await call(*arguments)
    value = await asyncio.to_thread(_called, call, *arguments)
    return await value if inspect.isawaitable(value) else value


def _called(call: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return call(*arguments)
    except StopIteration as error:
        raise RuntimeError(f"{getattr(call, '__name__', 'the call')} raised StopIteration") from error
