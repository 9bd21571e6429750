"""Synchronous methods: pairing what the peer answers with who waits for it, in the order of asking."""

import asyncio
from collections import deque


class Calls:
    """The calls of one channel that wait for an answer; answers come in the order of the calls."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: deque[tuple[int, asyncio.Future[bytes]]] = deque()

    def expect(self, method_id: int) -> asyncio.Future[bytes]:
        """Return a future for the payload of the next `method_id` that nobody before waits for."""
        future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._waiting.append((method_id, future))
        return future

    def answer(self, method_id: int, payload: bytes) -> bool:
        """Give an answer to whom it is due; False when nobody waits for such a one."""
        if not self._waiting or self._waiting[0][0] != method_id:
            return False
        _, future = self._waiting.popleft()
        if not future.done():
            future.set_result(payload)
        return True

    def fail(self, error: Exception) -> None:
        """Let every waiting call raise `error`."""
        while self._waiting:
            _, future = self._waiting.popleft()
            if not future.done():
                future.set_exception(error)
                future.exception()  # whoever gave up waiting is not to be told by the loop
