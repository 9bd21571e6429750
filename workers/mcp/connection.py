"""One MCP server of one process: opened with the first call, kept, made anew when it has died, closed at the drain.

A task of its own holds the session, because what the SDK opens must be closed where it was opened; handlers only wait
for it. A handler that is cancelled takes nothing of the connection along.
"""

import asyncio
import contextlib
import time
from collections.abc import Mapping
from typing import Any

from app.agent_settings import McpServer, McpSettings
from app.secret_providers import SecretProviders
from app.version import product_version
from workers.extra import load_extra
from workers.mcp.errors import ServerUnavailable, ToolRefused, ToolTimedOut, of_rpc
from workers.mcp.http import http_transport
from workers.mcp.stdio import stdio_transport

_MOST_PAGES = 50
_MOST_TOOLS = 2_000
_PING_SECONDS = 5.0


class Connection:
    """The connection to one server. Calls wait for their turn within their own time."""

    def __init__(self, name: str, server: McpServer, settings: McpSettings, secrets: SecretProviders) -> None:
        self.name = name
        self.timeout_seconds = server.call_timeout_seconds or settings.call_timeout_seconds
        self._server = server
        self._settings = settings
        self._secrets = secrets
        self._turns = asyncio.Semaphore(server.max_concurrent_calls)
        self._opening = asyncio.Lock()
        self._holder: asyncio.Task[None] | None = None
        self._client: Any = None
        self._leave = asyncio.Event()
        self._tools: Mapping[str, Any] | None = None
        self._listed_at = 0.0
        self._checks: set[asyncio.Task[None]] = set()

    async def tools(self, *, fresh: bool) -> Mapping[str, Any]:
        """Give the server's tools by name; `fresh` asks it now, otherwise a list of lately will do."""
        client = await self._opened()
        if not fresh and self._tools is not None and time.monotonic() - self._listed_at < self._limit_of_list:
            return self._tools
        found: dict[str, Any] = {}
        cursor: str | None = None
        for _ in range(_MOST_PAGES):
            page = await self._asked("tools/list", client.list_tools(cursor=cursor, cache_mode="bypass"))
            found.update((tool.name, tool) for tool in page.tools)
            cursor = page.next_cursor
            if cursor is None or len(found) > _MOST_TOOLS:
                break
        self._tools, self._listed_at = found, time.monotonic()
        return found

    async def call(self, tool: str, arguments: Mapping[str, Any], meta: Mapping[str, Any], seconds: float) -> Any:
        """Call a tool; gives the SDK's result. Raises ToolTimedOut, ServerUnavailable, ToolRefused or Retry."""
        client = await self._opened()
        asking = client.call_tool(tool, dict(arguments), seconds, meta=dict(meta) or None)
        return await self._asked(f"the tool {tool}", asking)

    @contextlib.asynccontextmanager
    async def turn(self, what: str, seconds: float) -> Any:
        """Have one of the server's places, for at most so many seconds, the wait for it included."""
        try:
            async with asyncio.timeout(seconds), self._turns:
                yield
        except TimeoutError as error:
            self._look_after()
            if isinstance(error, ToolTimedOut):
                raise
            raise ToolTimedOut(f"{what} of the MCP server {self.name} did not answer in {seconds:g} seconds") from None

    async def close(self) -> None:
        """Close the connection, and a child process with it."""
        for check in list(self._checks):
            check.cancel()
        holder = self._holder
        if holder is not None:
            self._leave.set()
            _, late = await asyncio.wait((holder,), timeout=10.0)
            for task in late:
                task.cancel()
            await asyncio.gather(holder, return_exceptions=True)

    async def _asked(self, what: str, asking: Any) -> Any:
        from mcp.shared.exceptions import MCPError
        from pydantic import ValidationError

        try:
            return await asking
        except MCPError as error:
            translated = of_rpc(self.name, what, error)
            if isinstance(translated, ServerUnavailable) and error.message == "Session terminated":
                self._leave.set()
            raise translated from None
        except (ValidationError, ValueError, RuntimeError) as error:
            kind = type(error).__name__
            raise ToolRefused(
                "mcp_invalid_answer", f"the MCP server {self.name} answered {what} not as the protocol says ({kind})"
            ) from None
        except TimeoutError:
            raise
        except OSError as error:
            raise ServerUnavailable(f"the MCP server {self.name} went away ({type(error).__name__})") from None

    @property
    def _limit_of_list(self) -> float:
        return self._settings.tools_cache_seconds

    async def _opened(self) -> Any:
        """Give the client of a living connection, which is made where there is none."""
        async with self._opening:
            if self._holder is None or self._holder.done() or self._leave.is_set():
                await self._open()
            return self._client

    async def _open(self) -> None:
        load_extra("mcp")
        if self._holder is not None and not self._holder.done():
            await asyncio.wait((self._holder,), timeout=5.0)
        headers = {header: await self._secrets.value(name) for header, name in self._server.headers.items()}
        environment = {variable: await self._secrets.value(name) for variable, name in self._server.env.items()}
        self._leave = asyncio.Event()
        self._tools = None
        ready: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._holder = asyncio.create_task(self._hold(headers, environment, ready, self._leave))
        try:
            async with asyncio.timeout(self._settings.connect_timeout_seconds):
                self._client = await asyncio.shield(ready)
        except BaseException as error:
            if not ready.done():
                ready.cancel()
            self._holder.cancel()
            if isinstance(error, asyncio.CancelledError):
                raise
            self._leave.set()
            why = "did not greet in time" if isinstance(error, TimeoutError) else "cannot be started or reached"
            if isinstance(error, ToolRefused):
                raise
            raise ServerUnavailable(f"the MCP server {self.name} {why}") from None

    async def _hold(
        self, headers: Mapping[str, str], environment: Mapping[str, str], ready: Any, leave: asyncio.Event
    ) -> None:
        """Hold the session open until it is to be left or has ended; whatever ends it is no failure of this task."""
        from mcp import Client
        from mcp.shared.exceptions import MCPError
        from mcp_types import Implementation

        server = self._server
        transport = (
            stdio_transport(
                str(server.command), server.args, {**server.variables, **environment}, server.cwd,
                self._settings.max_answer_bytes,
            )
            if server.transport == "stdio"
            else http_transport(
                str(server.url), headers, self._settings.connect_timeout_seconds, self._settings.max_answer_bytes
            )
        )  # fmt: skip
        watched = _Watched(transport, leave)
        info = Implementation(name="despacho", version=product_version())
        seconds = self._settings.connect_timeout_seconds
        try:
            async with Client(
                watched, client_info=info, read_timeout_seconds=seconds, cache=None, message_handler=self._heard
            ) as client:
                if not ready.done():
                    ready.set_result(client)
                await leave.wait()
        except BaseException as error:
            if not ready.done():
                found = of_rpc(self.name, "the greeting", error) if isinstance(error, MCPError) else None
                ready.set_exception(found if isinstance(found, ToolRefused) else ConnectionError("not opened"))
            if isinstance(error, asyncio.CancelledError):
                raise
        finally:
            leave.set()

    async def _heard(self, message: Any) -> None:
        """Forget the list of tools when the server says that it has changed."""
        if type(message).__name__ == "ToolListChangedNotification":
            self._tools = None

    def _look_after(self) -> None:
        """After a call without an answer: see whether the server still talks; where not, end it for the next call."""
        client, leave = self._client, self._leave
        if client is None or leave.is_set() or self._checks:
            return
        check = asyncio.create_task(self._check(client, leave))
        self._checks.add(check)
        check.add_done_callback(self._checks.discard)

    async def _check(self, client: Any, leave: asyncio.Event) -> None:
        from mcp.shared.exceptions import MCPError
        from mcp_types import REQUEST_TIMEOUT

        try:
            async with asyncio.timeout(_PING_SECONDS):
                await client.list_tools(cache_mode="bypass")
        except MCPError as error:
            if error.code == REQUEST_TIMEOUT:
                leave.set()
        except Exception:
            leave.set()


class _Watched:
    """A transport that tells when the server's side of it has ended."""

    def __init__(self, transport: Any, ended: asyncio.Event) -> None:
        self._transport = transport
        self._ended = ended

    async def __aenter__(self) -> tuple[Any, Any]:
        reading, writing = await self._transport.__aenter__()
        return _Reading(reading, self._ended), writing

    async def __aexit__(self, *raised: Any) -> Any:
        return await self._transport.__aexit__(*raised)


class _Reading:
    def __init__(self, inner: Any, ended: asyncio.Event) -> None:
        self._inner = inner
        self._ended = ended

    def __aiter__(self) -> "_Reading":
        return self

    async def __anext__(self) -> Any:
        try:
            return await self._inner.__anext__()
        except StopAsyncIteration:
            self._ended.set()
            raise

    async def __aenter__(self) -> "_Reading":
        await self._inner.__aenter__()
        return self

    async def __aexit__(self, *raised: Any) -> Any:
        return await self._inner.__aexit__(*raised)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)
