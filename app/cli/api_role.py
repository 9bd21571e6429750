"""The role of the API: the front door in a process of its own, with a dispatcher candidate beside it."""

import asyncio

from app.cli.hosting import Role, database_url, play, rabbit, runtime_on
from app.cli.roles import dispatcher_on
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
                roles["dispatcher"] = dispatcher_on(runtime, url)
            else:
                runtime.dispatcher_poke.forward = Poker(runtime).forward
            print(f"The API is served on {url_of(bound)}", flush=True)  # noqa: T201 - said to whoever started it
            await play(stop, roles, drain_seconds=settings.worker.drain_grace_seconds)


async def _first_key(runtime: Runtime) -> None:
    """See that an empty installation gets its admin key; one that is minted here is shown this once.

    A key that must not stand in the collected output of a container is set by DESPACHO_BOOTSTRAP_KEY instead.
    """
    made = await first_start(runtime.database, runtime.settings)
    if made is not None:
        redact(made.secret)
        if made.is_minted:
            print(f"The admin key, shown this once: {made.secret}", flush=True)  # noqa: T201
