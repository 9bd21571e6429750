"""What has arrived at a consumer and was not received yet; a delivery costs no future and no task on its way."""

import asyncio
from collections import deque
from collections.abc import Callable

from app.broker.base import BrokerClosed, Delivery


class Arrivals:
    """A waiting line of deliveries with one caller of `receive` at a time."""

    __slots__ = ("_line", "_stopped", "_waiter")

    def __init__(self) -> None:
        self._line: deque[Delivery] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self._stopped = False

    def put(self, delivery: Delivery) -> None:
        """Append a delivery and wake the receiver."""
        self._line.append(delivery)
        if (waiter := self._waiter) is not None and not waiter.done():
            waiter.set_result(None)

    async def receive(self, max_items: int) -> list[Delivery]:
        """Wait for at least one delivery and return up to `max_items`. Raises BrokerClosed once stopped."""
        line = self._line
        while not line:
            if self._stopped:
                raise BrokerClosed("the consumer was paused or closed: nothing more will come")
            if self._waiter is not None:
                raise RuntimeError("two callers wait on one consumer: give each a consumer of its own")
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        return [line.popleft() for _ in range(min(max_items, len(line)))]

    def drop(self, unwanted: Callable[[Delivery], bool]) -> list[Delivery]:
        """Take out and return the deliveries that are unwanted."""
        dropped = [delivery for delivery in self._line if unwanted(delivery)]
        kept = [delivery for delivery in self._line if not unwanted(delivery)]
        self._line.clear()
        self._line.extend(kept)
        return dropped

    def stop(self) -> list[Delivery]:
        """Hand nothing out any more; return what was still in line."""
        self._stopped = True
        dropped = self.drop(lambda _: True)
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
        return dropped
