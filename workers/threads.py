"""Threads for plain handlers. Daemons, unlike those of `concurrent.futures`: a handler that never returns must not keep
the process from ending once everything is drained. Idle threads are reused; there are never more than the slots.
"""

import asyncio
import queue
import threading
from collections.abc import Callable
from typing import Any

_Job = tuple[Callable[..., Any], tuple[Any, ...], asyncio.AbstractEventLoop, "asyncio.Future[Any]"]
_IDLE_SECONDS = 60.0


class HandlerThreads:
    """Runs calls in daemon threads; starts one whenever none is idle (the slots bound how many that can be)."""

    def __init__(self) -> None:
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._idle = 0
        self._lock = threading.Lock()
        self._count = 0

    def call(self, function: Callable[..., Any], *arguments: Any) -> "asyncio.Future[Any]":
        """Run `function` in a thread; the future, of the running loop, gets its answer or whatever it raises."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        with self._lock:
            start = self._idle <= 0
            if start:
                self._count += 1
            else:
                self._idle -= 1
        if start:
            threading.Thread(target=self._work, name=f"handler-{self._count}", daemon=True).start()
        self._jobs.put((function, arguments, loop, future))
        return future

    def close(self) -> None:
        """Let idle threads end; those that still run a handler are left to it."""
        with self._lock:
            idle, self._idle = self._idle, 0
        for _ in range(idle):
            self._jobs.put(None)

    def _work(self) -> None:
        while True:
            try:
                job = self._jobs.get(timeout=_IDLE_SECONDS)
            except queue.Empty:
                with self._lock:
                    if self._idle <= 0:
                        continue
                    self._idle -= 1
                return
            if job is None:
                return
            self._run(*job)
            with self._lock:
                self._idle += 1

    @staticmethod
    def _run(
        function: Callable[..., Any],
        arguments: tuple[Any, ...],
        loop: asyncio.AbstractEventLoop,
        future: "asyncio.Future[Any]",
    ) -> None:
        answer: Any = None
        raised: BaseException | None = None
        try:
            answer = function(*arguments)
        except BaseException as error:
            raised = error

        def deliver() -> None:
            if future.done():
                return
            if raised is None:
                future.set_result(answer)
            elif isinstance(raised, StopIteration):
                # A future refuses this one: it would end whoever awaits it.
                wrapped = RuntimeError("the handler raised StopIteration")
                wrapped.__cause__ = raised
                future.set_exception(wrapped)
            else:
                future.set_exception(raised)

        try:
            loop.call_soon_threadsafe(deliver)
        except RuntimeError:
            return  # the loop is closed: nobody waits for the answer any more
