"""Coalescing: while one flush is in flight, what arrives waits and goes together in the next.

Quiet: one item, no waiting. Busy: hundreds per flush. A timer that lingers for company gained nothing over this.
One poison item is found by splitting and never fails its neighbours.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

T = TypeVar("T")
R = TypeVar("R")


class Coalescer(Generic[T, R]):
    """Hand single items to a function that works on many; each caller gets its own item's answer or error."""

    def __init__(
        self,
        flush: Callable[[Sequence[T]], Awaitable[Sequence[R]]],
        *,
        max_items: int,
        splits_on: Callable[[BaseException], bool],
        observe: Callable[[int], None] | None = None,
    ) -> None:
        """`flush` answers in order; `splits_on` says which of its errors are one item's fault."""
        self._flush = flush
        self._max_items = max_items
        self._splits_on = splits_on
        self._observe = observe
        self._waiting: list[tuple[T, asyncio.Future[R]]] = []
        self._flushing: asyncio.Task[None] | None = None

    async def submit(self, item: T) -> R:
        """Wait for the answer to `item`. Raises what the flush raised for it."""
        future: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        self._waiting.append((item, future))
        if self._flushing is None:
            self._flushing = asyncio.create_task(self._run())
        return await future

    async def _run(self) -> None:
        try:
            while self._waiting:
                batch = self._waiting[: self._max_items]
                del self._waiting[: len(batch)]
                batch = [entry for entry in batch if not entry[1].cancelled()]
                if batch:
                    if self._observe is not None:
                        self._observe(len(batch))
                    await self._answer(batch)
        finally:
            self._flushing = None

    async def _answer(self, batch: list[tuple[T, asyncio.Future[R]]]) -> None:
        try:
            answers = await self._flush([item for item, _ in batch])
        except BaseException as error:
            if len(batch) > 1 and self._splits_on(error):
                middle = len(batch) // 2
                await self._answer(batch[:middle])
                await self._answer(batch[middle:])
                return
            for _, future in batch:
                if not future.done():
                    future.set_exception(error)
            if isinstance(error, asyncio.CancelledError):
                raise
            return
        for (_, future), answer in zip(batch, answers, strict=True):
            if not future.done():
                future.set_result(answer)
