"""The agents that a process talks to, through the SDK's client on top of the guard of `app/outbound`.

An agent by name is the operator's: its host may be private, and it gets its credentials, which go to its own origin
alone. An agent by URL is a task's: it is reached only where any other call of a task may go, without credentials.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Generator, Mapping
from datetime import UTC, datetime
from typing import Any, TypeVar

import httpx

from app.agent_settings import NAME, A2aAgent
from app.domain.addresses import check_url, parse_allowed
from app.domain.errors import DeadLetter, Retry
from app.domain.retry_after import parse_retry_after
from app.outbound.guard import GuardedTransport
from app.secret_providers import SecretProviders
from app.settings import Settings
from app.version import product_version
from workers.extra import load_extra

T = TypeVar("T")
_CARD_SECONDS = 300.0
_MOST_KEPT = 64
_TEMPORARY = frozenset({408, 425, 429, 500, 502, 503, 504})


class AgentUnavailable(Retry):
    """The agent cannot be reached or does not answer for the moment."""

    def __init__(self, message: str, after_seconds: float | None = None) -> None:
        super().__init__(after_seconds, message, "a2a_connection")

    def __reduce__(self) -> tuple[type["AgentUnavailable"], tuple[str, float | None]]:  # type: ignore[override]
        return type(self), (self.message, self.after_seconds)


class RemoteTaskLost(DeadLetter):
    """The agent does not know the task any more that it had taken."""

    def __init__(self) -> None:
        super().__init__("delegation_lost", "the agent does not know the task any more that it had taken")

    def __reduce__(self) -> tuple[type["RemoteTaskLost"], tuple[()]]:  # type: ignore[override]
        return type(self), ()


class Agents:
    """Clients of agents, by name or URL; a card is read again after five minutes."""

    def __init__(self, settings: Settings, secrets: SecretProviders) -> None:
        self._settings = settings
        self._secrets = secrets
        self._clients: dict[str, tuple[Any, httpx.AsyncClient, float]] = {}
        self._opening = asyncio.Lock()

    async def ask(self, agent: str, asking: Callable[[Any], Awaitable[T]]) -> T:
        """Do something with an agent's client. Raises AgentUnavailable, RemoteTaskLost or DeadLetter."""
        load_extra("a2a")
        try:
            async with asyncio.timeout(self._settings.a2a.request_timeout_seconds):
                return await asking(await self._client(agent))
        except TimeoutError:
            raise AgentUnavailable("the agent did not answer in time") from None
        except (DeadLetter, Retry):
            raise
        except Exception as error:
            raise _translated(error) from None

    async def close(self) -> None:
        """Close all connections."""
        for _, http, _ in self._clients.values():
            await http.aclose()
        self._clients.clear()

    async def _client(self, agent: str) -> Any:
        async with self._opening:
            known = self._clients.get(agent)
            if known is not None and time.monotonic() < known[2]:
                return known[0]
            client, http = await self._open(agent)
            if known is not None:
                await known[1].aclose()
            elif len(self._clients) >= _MOST_KEPT:
                _, oldest, _ = self._clients.pop(next(iter(self._clients)))
                await oldest.aclose()
            self._clients[agent] = client, http, time.monotonic() + _CARD_SECONDS
            return client

    async def _open(self, agent: str) -> tuple[Any, httpx.AsyncClient]:
        from a2a.client.card_resolver import A2ACardResolver
        from a2a.client.client import ClientConfig
        from a2a.client.client_factory import ClientFactory
        from a2a.utils.constants import TransportProtocol

        chosen, is_ours = self._chosen(agent)
        headers = {header: await self._secrets.value(name) for header, name in chosen.headers.items()}
        http = self._http(chosen.url, headers, is_ours)
        try:
            card = await A2ACardResolver(http, chosen.url).get_agent_card()
            config = ClientConfig(
                streaming=False, polling=True, httpx_client=http,
                supported_protocol_bindings=[TransportProtocol.JSONRPC, TransportProtocol.HTTP_JSON],
            )  # fmt: skip
            try:
                return ClientFactory(config).create(card), http
            except ValueError:
                raise DeadLetter(
                    "agent_incompatible", "the agent's card names no transport that is spoken here (JSON-RPC, REST)"
                ) from None
        except BaseException:
            await http.aclose()
            raise

    def _chosen(self, agent: str) -> tuple[A2aAgent, bool]:
        """Say where an agent is, and whether the operator named it. Raises DeadLetter."""
        settings = self._settings.a2a
        if agent in settings.agents:
            return settings.agents[agent], True
        if NAME.match(agent):
            known = ", ".join(sorted(settings.agents)) or "none"
            raise DeadLetter("unknown_agent", f"no such agent is configured here (DESPACHO_A2A__AGENTS has: {known})")
        if not settings.allow_urls:
            raise DeadLetter("agent_not_allowed", "agents are called by name alone here (DESPACHO_A2A__ALLOW_URLS)")
        check_url(agent, parse_allowed(self._settings.outbound.allowed_networks))
        return A2aAgent.model_construct(url=agent, headers={}), False

    def _http(self, url: str, headers: Mapping[str, str], is_ours: bool) -> httpx.AsyncClient:
        outbound = self._settings.outbound
        host = httpx.URL(url).host
        transport = GuardedTransport(
            parse_allowed([*outbound.allowed_networks, *([host] if is_ours else [])]),
            max_response_bytes=self._settings.a2a.max_answer_bytes,
            deadline_seconds=self._settings.a2a.request_timeout_seconds,
            ca_file=None if outbound.ca_file is None else str(outbound.ca_file),
        )
        return httpx.AsyncClient(
            transport=transport,
            auth=_OwnOrigin(httpx.URL(url), headers),
            trust_env=False,
            follow_redirects=False,
            timeout=httpx.Timeout(self._settings.a2a.request_timeout_seconds),
            headers={"User-Agent": f"Despacho/{product_version()}"},
        )


class _OwnOrigin(httpx.Auth):
    """Puts credentials on requests to one origin, and on no others: an agent's card may name any address."""

    def __init__(self, url: httpx.URL, headers: Mapping[str, str]) -> None:
        self._origin = (url.scheme, url.host, url.port)
        self._headers = headers

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        """Add the headers."""
        if (request.url.scheme, request.url.host, request.url.port) == self._origin:
            request.headers.update(self._headers)
        yield request


def _translated(error: Exception) -> Exception:
    """Say what an error of the SDK's means; its text, which may hold what was answered, is not repeated."""
    from a2a.utils.errors import A2AError, InternalError, TaskNotFoundError

    seen: BaseException | None = error
    for _ in range(10):
        if isinstance(seen, DeadLetter | Retry):
            return seen
        if isinstance(seen, TaskNotFoundError):
            return RemoteTaskLost()
        if isinstance(seen, httpx.HTTPStatusError):
            return _of_status(seen.response)
        if isinstance(seen, httpx.TransportError | TimeoutError):
            return AgentUnavailable(f"the agent cannot be reached or went away ({type(seen).__name__})")
        following = None if seen is None else seen.__cause__ or seen.__context__
        if following is None:
            break
        seen = following
    if isinstance(error, InternalError):
        return Retry(None, "the agent failed by itself", "a2a_server_error")
    if isinstance(error, A2AError):
        return DeadLetter("agent_refused", f"the agent refused the call ({type(error).__name__})")
    return DeadLetter("delegation_invalid_answer", f"the agent's answer cannot be read ({type(error).__name__})")


def _of_status(response: httpx.Response) -> Exception:
    status = response.status_code
    if status in _TEMPORARY:
        after = parse_retry_after(response.headers.get("retry-after"), datetime.now(UTC))
        return AgentUnavailable(f"the agent answers {status} for the moment", after)
    if status in (401, 403):
        return DeadLetter("agent_access_refused", "the agent refuses the credentials that it was given")
    return DeadLetter("agent_refused", f"the agent answers {status}")
