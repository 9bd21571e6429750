"""The two thin shells that carry requests and flows out: blocking and awaiting. Only here is anything sent or slept.

Both do the same, line by line; everything that decides is in `retrying.py`, `answering.py` and the flows themselves.
"""

import asyncio
import random
import ssl
import time
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar, cast

import httpx

from app.client.answering import Lost, Reply, read
from app.client.errors import DespachoError
from app.client.request import Flow, Items, Load, Pause, Request, Step, Stream
from app.client.retrying import Retries, Tries
from app.client.target import Secret, Target
from app.version import product_version

T = TypeVar("T")

_CONNECT_WITHIN_SECONDS = 5.0
# Below the 5 s after which the server closes an idle connection: a request must not meet the closing.
_KEPT_IDLE_SECONDS = 4.0
_CONNECTIONS = 20


@dataclass(frozen=True, slots=True)
class Setup:
    """How to talk: where to, how long one answer may take, how patiently."""

    target: Target
    timeout_seconds: float = 30.0
    retries: Retries = field(default_factory=Retries)
    typed: bool = True
    """False: answers are plain JSON, as they came."""
    transport: Any = None
    """Stands in for the network in tests."""
    agent: str = "despacho-client"
    draw: Callable[[], float] = random.random

    def __post_init__(self) -> None:
        if not 0 < self.timeout_seconds < float("inf"):
            raise ValueError("timeout_seconds should be a number above 0")

    def of_httpx(self, limits: httpx.Limits) -> dict[str, Any]:
        """Return the arguments that both of httpx's clients take."""
        key = self.target.key
        return {
            "base_url": self.target.url,
            "headers": {"User-Agent": f"{self.agent}/{product_version()}", "Accept": "application/json"},
            "auth": None if key is None else Bearer(key),
            "limits": limits,
            "transport": self.transport,
            "follow_redirects": False,
            # A proxy of the environment is for the outside; a key sent to the wrong place is lost.
            "trust_env": not self.target.is_local,
            # Loading the trusted authorities takes longer than a request; here nothing is there to be trusted.
            "verify": ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT) if self.target.is_local_http else True,
        }

    def of_request(self, request: Request[Any]) -> dict[str, Any]:
        """Return the arguments of one exchange."""
        timeout = httpx.Timeout(
            self.timeout_seconds + request.wait_seconds, connect=min(_CONNECT_WITHIN_SECONDS, self.timeout_seconds)
        )
        return {
            "method": request.method,
            "url": request.path,
            "params": request.parameters or None,
            "content": request.body,
            "headers": dict(request.headers),
            "timeout": timeout,
        }

    def tries(self, request: Request[Any]) -> Tries:
        """Begin with a request."""
        return Tries(request, self.retries, time.monotonic(), self.draw)

    def pause_after(self, tries: Tries, outcome: Reply | Lost) -> float | None:
        """Return how long to wait before the next try; None when this outcome is the last."""
        return tries.pause_after(outcome, now=time.monotonic(), wall=datetime.now(UTC))

    def read(self, tries: Tries, outcome: Reply | Lost) -> Any:
        """Return the answer. Raises DespachoError."""
        return read(
            tries.request,
            outcome,
            url=self.target.url,
            typed=self.typed,
            in_doubt=tries.in_doubt,
            now=datetime.now(UTC),
        )


class Bearer(httpx.Auth):
    """The key, put on each request as it leaves: it is in no client's headers and in no repr."""

    def __init__(self, key: Secret) -> None:
        self._key = key

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        """Add the header."""
        if "Authorization" not in request.headers:
            request.headers["Authorization"] = f"Bearer {self._key.get_secret_value()}"
        yield request


class Blocking:
    """Carries out by blocking. May be shared by threads."""

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        self._http = httpx.Client(**setup.of_httpx(_limits()))

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def ask(self, request: Request[T]) -> T:
        """Send a request, as often as is worth it. Raises DespachoError."""
        tries = self.setup.tries(request)
        while True:
            outcome = self._exchange(request)
            pause = self.setup.pause_after(tries, outcome)
            if pause is None:
                return cast(T, self.setup.read(tries, outcome))
            time.sleep(pause)

    def run(self, work: Request[T] | Flow[T]) -> T:
        """Carry out a request or a flow that has one end. Raises DespachoError."""
        if isinstance(work, Request):
            return self.ask(work)
        step = advance(work)
        while not isinstance(step, Finished):
            step = self._take(work, step)
        return cast(T, step.value)

    def stream(self, work: Stream[T]) -> Iterator[T]:
        """Carry out a flow and give its items as they come. Raises DespachoError."""
        step = advance(work)
        while not isinstance(step, Finished):
            if isinstance(step, Items):
                yield from step.items
                step = advance(work)
            else:
                step = self._take(work, step)

    def _take(self, work: Flow[Any], step: Step) -> "Step | Finished":
        try:
            answer = self._do(step)
        except (DespachoError, OSError) as error:
            return advance(work, error=error)
        return advance(work, answer)

    def _do(self, step: Step) -> Any:
        match step:
            case Request():
                return self.ask(step)
            case Pause():
                return time.sleep(step.seconds)
            case Load():
                return Path(step.path).read_bytes()

    def _exchange(self, request: Request[Any]) -> Reply | Lost:
        try:
            return _reply(self._http.request(**self.setup.of_request(request)))
        except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError) as error:
            return lost(error, self.setup.target.url)


class Awaiting:
    """Carries out under asyncio."""

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        self._http = httpx.AsyncClient(**setup.of_httpx(_limits()))

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def ask(self, request: Request[T]) -> T:
        """Send a request, as often as is worth it. Raises DespachoError."""
        tries = self.setup.tries(request)
        while True:
            outcome = await self._exchange(request)
            pause = self.setup.pause_after(tries, outcome)
            if pause is None:
                return cast(T, self.setup.read(tries, outcome))
            await asyncio.sleep(pause)

    async def run(self, work: Request[T] | Flow[T]) -> T:
        """Carry out a request or a flow that has one end. Raises DespachoError."""
        if isinstance(work, Request):
            return await self.ask(work)
        step = advance(work)
        while not isinstance(step, Finished):
            step = await self._take(work, step)
        return cast(T, step.value)

    async def stream(self, work: Stream[T]) -> AsyncIterator[T]:
        """Carry out a flow and give its items as they come. Raises DespachoError."""
        step = advance(work)
        while not isinstance(step, Finished):
            if isinstance(step, Items):
                for item in step.items:
                    yield item
                step = advance(work)
            else:
                step = await self._take(work, step)

    async def _take(self, work: Flow[Any], step: Step) -> "Step | Finished":
        try:
            answer = await self._do(step)
        except (DespachoError, OSError) as error:
            return advance(work, error=error)
        return advance(work, answer)

    async def _do(self, step: Step) -> Any:
        match step:
            case Request():
                return await self.ask(step)
            case Pause():
                return await asyncio.sleep(step.seconds)
            case Load():
                return await asyncio.to_thread(Path(step.path).read_bytes)

    async def _exchange(self, request: Request[Any]) -> Reply | Lost:
        try:
            return _reply(await self._http.request(**self.setup.of_request(request)))
        except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError) as error:
            return lost(error, self.setup.target.url)


class Plain(Blocking):
    """Blocks, and gives answers as the plain JSON that came: for programs that only show them."""


@dataclass(frozen=True, slots=True)
class Finished:
    """The end of a flow, with what it came to."""

    value: Any


def advance(work: Flow[Any], answer: Any = None, *, error: Exception | None = None) -> Step | Finished:
    """Give a flow what its last step led to; returns its next step, or its end. Raises what the flow raises."""
    try:
        return work.send(answer) if error is None else work.throw(error)
    except StopIteration as stop:
        return Finished(stop.value)


def lost(error: Exception, url: str) -> Lost:
    """Say why no answer came, and whether anything can have been sent."""
    if isinstance(error, httpx.InvalidURL | httpx.UnsupportedProtocol):
        return Lost("the URL of the API cannot be read", "address", nothing_sent=True, temporary=False)
    if isinstance(error, httpx.ConnectError) and _is_tls(error):
        text = (
            f"{url} shows a certificate that is not trusted, or speaks no TLS: check the name and the port; a private "
            "authority's file goes in SSL_CERT_FILE"
        )
        return Lost(text, "tls", nothing_sent=True, temporary=False)
    if isinstance(error, httpx.ProxyError):
        text = f"the proxy of the environment did not let {url} through; NO_PROXY names what needs none"
        return Lost(text, "proxy", nothing_sent=True)
    if isinstance(error, httpx.ConnectError):
        text = f"nothing answers at {url}: is the service running, and is the address right (DESPACHO_URL)?"
        return Lost(text, "refused", nothing_sent=True)
    if isinstance(error, httpx.ConnectTimeout | httpx.PoolTimeout):
        return Lost(f"{url} did not take a connection in time; is the address right?", "timeout", nothing_sent=True)
    if isinstance(error, httpx.TimeoutException):
        return Lost(f"{url} did not answer in time; {url}/readyz says how it stands", "timeout")
    return Lost(f"the connection to {url} was lost ({type(error).__name__}); try again")


def _is_tls(error: BaseException) -> bool:
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, ssl.SSLError):
            return True
        seen = seen.__cause__ or seen.__context__
    return False


def _reply(answer: httpx.Response) -> Reply:
    return Reply(answer.status_code, answer.headers, answer.content)


def _limits() -> httpx.Limits:
    return httpx.Limits(
        max_connections=_CONNECTIONS * 5, max_keepalive_connections=_CONNECTIONS, keepalive_expiry=_KEPT_IDLE_SECONDS
    )
