"""How a plain handler's thread uses what lives on the loop, without a bridge per method.

The thread waits for a coroutine; what the coroutine is to call back (the `call` of a step or of an effect) runs in
the waiting thread itself. So it may use the context again, finds its own thread's connections, and no pool of threads
can be exhausted by calls that wait for each other.
"""

import asyncio
import contextvars
import inspect
import queue
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from workers.calls import is_async

T = TypeVar("T")
Here = Callable[[Callable[..., Any]], Callable[..., Any]]
"""Makes of a plain function one that the loop can await and that runs in the handler's thread."""


class Bridge:
    """Runs coroutines on `loop` for threads that wait for them."""

    __slots__ = ("_loop",)

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def run(self, begin: Callable[[Here], Coroutine[Any, Any, T]]) -> T:
        """Wait for `begin(here)`; whatever it raises is raised here. Raises RuntimeError on the loop's own thread."""
        if asyncio._get_running_loop() is self._loop:
            raise RuntimeError(
                "the context of a plain handler blocks: use it in plain functions, not in an `async def` on the loop"
            )
        requests: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        ended: list[tuple[bool, Any]] = []
        running: list[asyncio.Task[None]] = []

        async def whole() -> None:
            # Nothing leaves this task but through `ended`: a SystemExit of the handler's would stop the loop.
            try:
                ended.append((True, await begin(lambda call: self._asked(call, requests))))
            except BaseException as error:
                ended.append((False, error))
            requests.put(None)

        self._loop.call_soon_threadsafe(lambda: running.append(self._loop.create_task(whole())))
        while (request := requests.get()) is not None:
            request()
        good, value = ended[0]
        if good:
            answer: T = value
            return answer
        raise value

    def _asked(
        self, call: Callable[..., Any], requests: "queue.SimpleQueue[Callable[[], None] | None]"
    ) -> Callable[..., Any]:
        if not callable(call) or is_async(call):
            return call  # what cannot be called is for the coroutine to refuse

        async def on_the_handlers_thread(*arguments: Any) -> Any:
            answer: asyncio.Future[tuple[bool, Any]] = self._loop.create_future()
            context = contextvars.copy_context()

            def request() -> None:
                try:
                    said = (True, context.run(call, *arguments))
                except BaseException as error:
                    said = (False, error)
                self._loop.call_soon_threadsafe(_deliver, answer, said)

            requests.put(request)
            good, value = await answer
            if not good:
                raise value  # StopIteration leaves a coroutine as RuntimeError
            return await value if inspect.isawaitable(value) else value

        return on_the_handlers_thread


def _deliver(answer: "asyncio.Future[tuple[bool, Any]]", said: tuple[bool, Any]) -> None:
    if not answer.done():
        answer.set_result(said)
