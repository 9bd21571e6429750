"""A plain handler's thread and the loop: calls come back to the handler's own thread, and no error stops the loop."""

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from workers.bridge import Bridge


def in_thread(function: Callable[[Bridge], Any]) -> "asyncio.Future[Any]":
    bridge = Bridge(asyncio.get_running_loop())
    return asyncio.ensure_future(asyncio.to_thread(function, bridge))


async def applied(call: Callable[..., Any], *arguments: object) -> Any:
    return await call(*arguments)


async def test_a_call_runs_in_the_thread_that_waits_for_it_and_may_wait_again_itself() -> None:
    def handler(bridge: Bridge) -> tuple[int, list[object]]:
        def inner(n: int) -> object:
            return [n, threading.get_ident()]

        def outer(n: int) -> object:
            return [n, bridge.run(lambda here: applied(here(inner), n + 1))]

        return threading.get_ident(), bridge.run(lambda here: applied(here(outer), 1))

    own, answer = await in_thread(handler)

    assert answer == [1, [2, own]]


async def test_a_hundred_threads_that_wait_in_each_others_place_all_come_through() -> None:
    def handler(bridge: Bridge) -> int:
        return bridge.run(lambda here: applied(here(lambda: bridge.run(lambda inner: applied(inner(lambda: 1))))))

    done: list[int] = []

    def whole(bridge: Bridge) -> None:
        done.append(handler(bridge))

    bridge = Bridge(asyncio.get_running_loop())
    threads = [threading.Thread(target=whole, args=(bridge,)) for _ in range(100)]
    for thread in threads:
        thread.start()
    async with asyncio.timeout(20):
        while any(thread.is_alive() for thread in threads):  # noqa: ASYNC110 - threads tell nobody that they end
            await asyncio.sleep(0.01)

    assert sum(done) == 100


@pytest.mark.parametrize("error", [ValueError, SystemExit, KeyboardInterrupt, GeneratorExit, asyncio.CancelledError])
async def test_whatever_a_call_raises_comes_out_in_the_handler_and_the_loop_goes_on(error: type[BaseException]) -> None:
    def handler(bridge: Bridge) -> str:
        def call() -> None:
            raise error

        try:
            bridge.run(lambda here: applied(here(call)))
        except BaseException as raised:
            return type(raised).__name__
        return "nothing"

    assert await in_thread(handler) == error.__name__


async def test_stop_iteration_comes_out_as_another_error() -> None:
    def handler(bridge: Bridge) -> str:
        with pytest.raises(RuntimeError):
            bridge.run(lambda here: applied(here(lambda: next(iter(())))))
        return "raised"

    assert await in_thread(handler) == "raised"


async def test_a_coroutine_function_runs_on_the_loop_and_an_awaitable_is_awaited_there() -> None:
    async def on_the_loop() -> int:
        return threading.get_ident()

    def handler(bridge: Bridge) -> list[int]:
        return [
            bridge.run(lambda here: applied(here(on_the_loop))),
            bridge.run(lambda here: applied(here(lambda: on_the_loop()))),
        ]

    assert await in_thread(handler) == [threading.get_ident()] * 2


async def test_on_the_loop_itself_it_refuses_to_block() -> None:
    bridge = Bridge(asyncio.get_running_loop())

    with pytest.raises(RuntimeError, match="plain functions"):
        bridge.run(lambda here: applied(here(int)))
