"""Serving the API with uvicorn inside a loop of ours: a socket that is bound first, and an end that we decide."""

import asyncio
import contextlib
import errno
import socket
from collections.abc import Callable, Iterator

import uvicorn

from app.api.front import Front
from app.cli.ending import CommandFailed
from app.main import create_app
from app.runtime import Runtime

_BACKLOG = 2048
_LAST_ANSWERS_SECONDS = 5


def bind(host: str, port: int) -> socket.socket:
    """Bind the address of the API. Raises CommandFailed, naming the flag that would help."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        bound = socket.socket(family, kind, protocol)
    except OSError as error:
        raise CommandFailed(f"--host {host}: {error.strerror}; give an address of this machine") from None
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind(address)
        # Listening at once finds out who else does, long before anything is started for nothing.
        bound.listen(_BACKLOG)
    except OSError as error:
        bound.close()
        if error.errno == errno.EADDRINUSE:
            raise CommandFailed(
                f"port {port} of {host} is taken by another program: give another one with --port, or 0 for any"
            ) from None
        if error.errno == errno.EACCES:
            raise CommandFailed(f"this user may not use port {port}: give one above 1023 with --port") from None
        raise CommandFailed(f"{host}:{port} cannot be used ({error.strerror}): see --host and --port") from None
    return bound


def url_of(bound: socket.socket) -> str:
    """Return the URL that reaches the socket from this machine."""
    host, port = bound.getsockname()[:2]
    if host in ("0.0.0.0", "::"):  # noqa: S104 - compared, not bound
        host = "127.0.0.1" if host == "0.0.0.0" else "::1"  # noqa: S104
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


class Api:
    """One API server on one bound socket."""

    def __init__(self, runtime: Runtime, bound: socket.socket) -> None:
        application = create_app(runtime)
        self._front: Front = application.state.front
        config = uvicorn.Config(
            application,
            http="httptools",
            ws="none",
            lifespan="on",
            log_config=None,
            access_log=False,
            server_header=False,
            backlog=_BACKLOG,
            timeout_graceful_shutdown=_LAST_ANSWERS_SECONDS,
        )
        self._bound = bound
        self.serving = asyncio.Event()
        self._server = _Server(config, on_started=self.serving.set)

    async def serve(self, stop: asyncio.Event) -> None:
        """Serve until `stop` is set and the last answers are given. Raises CommandFailed when it cannot start."""
        stopping = asyncio.create_task(self._end_when(stop))
        try:
            await self._server.serve(sockets=[self._bound])
        except SystemExit:
            raise CommandFailed("the API could not start; the reason is in the log above") from None
        finally:
            stopping.cancel()

    async def _end_when(self, stop: asyncio.Event) -> None:
        await stop.wait()
        # Who waits for a task is told how it stands, while there still is a connection to tell it on.
        self._front.waiters.close()
        self._server.should_exit = True


class _Server(uvicorn.Server):
    """uvicorn without its signal handlers, which would take ours away."""

    def __init__(self, config: uvicorn.Config, *, on_started: Callable[[], None]) -> None:
        super().__init__(config)
        self._on_started = on_started

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._on_started()
