"""Wake-up calls to a dispatcher in another process: empty, coalesced, never inside a submitting transaction.

NOTIFY takes a global lock at commit, so there is at most one on its way from a process, and a few milliseconds between
two. A lost one costs an idle poll.
"""

import asyncio
import contextlib

from sqlalchemy import text

from app.runtime import Runtime

CHANNEL = "despacho_poke"
_NOTIFY = text(f"NOTIFY {CHANNEL}")
_APART_SECONDS = 0.01


class Poker:
    """Forwards pokes to the other processes while none here leads."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._wanted = False
        self._sending: asyncio.Task[None] | None = None

    def forward(self) -> None:
        """Send a poke, now or with the next one."""
        self._wanted = True
        if self._sending is None:
            self._sending = asyncio.get_running_loop().create_task(self._send())

    async def _send(self) -> None:
        try:
            while self._wanted:
                self._wanted = False
                with contextlib.suppress(Exception):
                    await self._runtime.database.execute_hot(_NOTIFY, {}, retry_for_seconds=0.0)
                await asyncio.sleep(_APART_SECONDS)
        finally:
            self._sending = None
