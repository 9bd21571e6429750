"""The roles without an API, for several processes and machines: worker and dispatcher.

The web framework stays out of their processes: it is most of the time of a start, and 40 MB.
"""

import asyncio
import importlib

from app.cli.ending import WrongUsage
from app.cli.hosting import Role, database_url, exported, play, rabbit, runtime_on
from app.runtime import Runtime
from app.services.pokes import Poker
from app.settings import Settings


def open_nursery(settings: Settings) -> None:
    """Let the worker's children be forked from here, before anything else is begun."""
    importlib.import_module("workers.nursery").open_nursery(settings)


async def serve_worker(settings: Settings, stop: asyncio.Event) -> None:
    """Run one worker pool, and stand for the lead where the settings say so, until `stop` is set and it has drained."""
    url, broker = database_url(settings), rabbit(settings)
    async with runtime_on(settings, name="worker", url=url, broker=broker) as runtime:
        known = runtime.policy.current.by_name
        unknown = [name for name in settings.worker.classes if name not in known]
        if unknown:
            raise WrongUsage(f"no such class in the policy: {', '.join(unknown)}; there are {', '.join(known)}")

        async def worker(stop: asyncio.Event) -> None:
            await importlib.import_module("workers.roles").serve_worker(runtime, stop, database_url=url)

        roles: dict[str, Role] = {"worker": worker}
        if settings.worker.host_dispatcher:
            roles["dispatcher"] = dispatcher_on(runtime, url)
        else:
            runtime.dispatcher_poke.forward = Poker(runtime).forward
        with exported(runtime):
            await play(stop, roles, drain_seconds=settings.worker.drain_grace_seconds)


async def serve_dispatcher(settings: Settings, stop: asyncio.Event) -> None:
    """Stand for the dispatcher's lead until `stop` is set."""
    url, broker = database_url(settings), rabbit(settings)
    async with runtime_on(settings, name="dispatcher", url=url, broker=broker) as runtime:
        with exported(runtime):
            await play(stop, {"dispatcher": dispatcher_on(runtime, url)}, drain_seconds=0.0)


def dispatcher_on(runtime: Runtime, url: str) -> Role:
    """Make the role of a dispatcher candidate beside others in one process."""

    async def dispatcher(stop: asyncio.Event) -> None:
        await importlib.import_module("workers.roles").serve_dispatcher(runtime, stop, database_url=url)

    return dispatcher
