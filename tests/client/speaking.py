"""Both clients through one door: a test says what it asks, and gets what came, whichever shell it was."""

import asyncio
import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from app.client import AsyncClient, Client, Retries

KINDS = ("blocking", "asyncio")
QUICK = Retries(for_seconds=5.0, base_seconds=0.01, cap_seconds=0.05)


@dataclass(frozen=True, slots=True)
class Speaker:
    """A client of either kind."""

    client: Any

    async def __call__(self, ask: Callable[[Any], Any]) -> Any:
        """Return what `ask` of the client comes to; what is iterated over comes as a list."""
        if isinstance(self.client, Client):
            return await asyncio.to_thread(lambda: _gathered(ask(self.client)))
        asked = ask(self.client)
        if hasattr(asked, "__aiter__"):
            return [item async for item in asked]
        return await asked if inspect.isawaitable(asked) else asked

    async def of(self, asked: Callable[[], Any]) -> Any:
        """Return what a call on something of the client's, such as a handle, comes to."""
        return await self(lambda _: asked())

    async def close(self) -> None:
        """Close the client."""
        if isinstance(self.client, Client):
            self.client.close()
        else:
            await self.client.close()


def a_speaker(kind: str, url: str, key: str = "dsp_k", *, retries: Retries = QUICK, **more: Any) -> Speaker:
    """Make a client of a kind."""
    make = Client if kind == "blocking" else AsyncClient
    return Speaker(make(url, key, retries=retries, **more))


def _gathered(asked: Any) -> Any:
    return list(asked) if isinstance(asked, Iterator) else asked
