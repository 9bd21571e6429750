"""The service that `despacho demo` starts for itself: embedded, on a free port, in a directory that is removed."""

import asyncio
import secrets
import tempfile
from collections.abc import Callable
from pathlib import Path

from pydantic import SecretStr

from app.cli.client import Client, connected
from app.cli.ending import Interrupted
from app.cli.hosting import run
from app.cli.up import Running, serve
from app.client.target import Secret, Target
from app.settings import load_settings


def with_service(work: Callable[[Client], None]) -> None:
    """Call `work` in a thread with a client of a service that lives as long as it takes. Raises what it raises.

    Addresses of a database or a broker in the environment are left alone: a demonstration has no business there.
    """
    with tempfile.TemporaryDirectory(prefix="despacho-demo-", ignore_cleanup_errors=True) as directory:
        key = SecretStr(f"dsp_{secrets.token_urlsafe(32)}")
        own = {"database_url": None, "amqp_url": None, "metrics_port": 0}
        where = {"data_dir": Path(directory), "bootstrap_key": key, "api": {"host": "127.0.0.1", "port": 0}}
        settings = load_settings(**own, **where)
        if "log_level" not in settings.model_fields_set:
            settings = settings.model_copy(update={"log_level": "WARNING"})

        async def host(stop: asyncio.Event) -> None:
            finished = False

            async def on_running(running: Running) -> None:
                nonlocal finished
                try:
                    with connected(Target(running.url, Secret(key.get_secret_value()))) as client:
                        await asyncio.to_thread(work, client)
                    finished = True
                finally:
                    stop.set()

            await serve(settings, stop, on_running)
            if not finished:
                raise Interrupted("interrupted")

        run(host, settings, "demo")
