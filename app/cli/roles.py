"""The roles one by one, for several processes and machines: API, worker, dispatcher."""

import asyncio
import importlib
import sys

from app.cli.ending import CommandFailed, WrongUsage
from app.cli.hosting import Role, database_url, exported, play, rabbit, runtime_on
from app.cli.web import Api, bind, url_of
from app.runtime import Runtime
from app.services.bootstrap import first_start
from app.services.pokes import Poker
from app.settings import Settings
from app.store import api_keys
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
    """See that an empty installation gets its admin key; one that is minted here is shown to a terminal only.

    Where nobody watches, output ends in a log, and a key in a log is nobody's secret. Raises CommandFailed.
    """
    would_mint = runtime.settings.bootstrap_key is None and not sys.stdout.isatty()
    if would_mint and not await runtime.database.run(api_keys.any_exists):
        raise CommandFailed(
            "no key exists yet, so nobody could call this API: set DESPACHO_BOOTSTRAP_KEY to an admin key that you "
            "choose (32 or more random characters), or start once from a terminal to be given one"
        )
    made = await first_start(runtime.database, runtime.settings)
    if made is not None:
        redact(made.secret)
        if made.is_minted:
            print(f"The admin key, shown this once: {made.secret}", flush=True)  # noqa: T201
