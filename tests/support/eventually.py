"""Wait for a fact, never for time."""

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

Fact = TypeVar("Fact")


async def eventually(
    check: Callable[[], Fact | Awaitable[Fact]],
    *,
    within_seconds: float = 10.0,
    every_seconds: float = 0.01,
    what: str = "",
) -> Fact:
    """Call `check` until it returns something true and return that.

    A check may also be a function of `assert` lines that ends with `return True`. Raises AssertionError when the time
    is over, with what the last call returned or asserted; every other error of the check goes straight through.
    """
    started = time.monotonic()
    calls = 0
    while True:
        calls += 1
        try:
            answer = check()
            fact: Fact = await answer if inspect.isawaitable(answer) else answer
            seen = f"it returned {fact!r}"
        except AssertionError as error:
            seen = f"it asserted: {error}" if str(error) else "its assertion failed"
        else:
            if fact:
                return fact
        if time.monotonic() - started >= within_seconds:
            name = what or getattr(check, "__qualname__", repr(check))
            raise AssertionError(
                f"not true within {within_seconds:g} s ({calls} looks): {name}; at the last look {seen}"
            )
        await asyncio.sleep(every_seconds)
