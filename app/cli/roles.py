"""The roles one by one, for several processes and machines: API, worker, dispatcher."""

import asyncio
import importlib

from app.cli.ending import WrongUsage
from app.cli.hosting import Role, database_url, exported, play, rabbit, runtime_on
from app.cli.web import Api, bind, url_of
from app.runtime import Runtime
from app.services.bootstrap import first_start
from app.services.pokes import Poker
from app.settings import Settings
from app.telemetry.logs import redact


async def serve_api(settings: Settings, stop: asyncio.Event) -> None:
    """Serve the API, and stand for the dispatcher's lead where the settings say so, until `stop` is set."""
    url, broker = database_url(settings), rabbit(settings)
    with bind(settings.api.host, settings.api.port) as bound:
        async with runtime_on(settings, name="api", url=url, broker=broker) as runtime:
            await _first_key(runtime)
            api = Api(runtime, bound)
            roles: dict[str, Role] = {"api": api.serve}
            if settings.api.host_dispatcher:
                roles["dispatcher"] = _dispatcher(runtime, url)
            else:
                runtime.dispatcher_poke.forward = Poker(runtime).forward
            print(f"The API is served on {url_of(bound)}", flush=True)  # noqa: T201 - said to whoever started it
            await play(stop, roles, drain_seconds=settings.worker.drain_grace_seconds)


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
            roles["dispatcher"] = _dispatcher(runtime, url)
        else:
            runtime.dispatcher_poke.forward = Poker(runtime).forward
        with exported(runtime):
            await play(stop, roles, drain_seconds=settings.worker.drain_grace_seconds)


async def serve_dispatcher(settings: Settings, stop: asyncio.Event) -> None:
    """Stand for the dispatcher's lead until `stop` is set."""
    url, broker = database_url(settings), rabbit(settings)
    async with runtime_on(settings, name="dispatcher", url=url, broker=broker) as runtime:
        with exported(runtime):
            await play(stop, {"dispatcher": _dispatcher(runtime, url)}, drain_seconds=0.0)


def _dispatcher(runtime: Runtime, url: str) -> Role:
    async def dispatcher(stop: asyncio.Event) -> None:
        await importlib.import_module("workers.roles").serve_dispatcher(runtime, stop, database_url=url)

    return dispatcher


async def _first_key(runtime: Runtime) -> None:
    """See that an empty installation gets its admin key; one that is minted here is shown this once.

    A key that must not stand in the collected output of a container is set by DESPACHO_BOOTSTRAP_KEY instead.
    """
    made = await first_start(runtime.database, runtime.settings)
    if made is not None:
        redact(made.secret)
        if made.is_minted:
            print(f"The admin key, shown this once: {made.secret}", flush=True)  # noqa: T201
