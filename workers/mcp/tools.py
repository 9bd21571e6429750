"""The facility behind `ctx.mcp`, and the handle that a handler has of one server."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from app.agent_settings import McpSettings
from app.domain.errors import DeadLetter
from app.domain.journal import NotJson, json_text
from app.secret_providers import SecretProviders
from workers.attempt import Attempt
from workers.bridge import Bridge
from workers.extra import load_extra
from workers.mcp.answers import ToolInfo, ToolResult, answer_of, info_of
from workers.mcp.connection import Connection
from workers.mcp.errors import ToolRefused

if TYPE_CHECKING:
    from workers.context import TaskContext

ExternalId = Callable[[ToolResult], str | None]


class McpServers:
    """The MCP servers of one process; each is connected when it is first called."""

    def __init__(self, settings: McpSettings, secrets: SecretProviders) -> None:
        self._settings = settings
        self._secrets = secrets
        self._connections: dict[str, Connection] = {}

    def connection(self, name: str) -> Connection:
        """Give the connection to a configured server. Raises DeadLetter (`unknown_mcp_server`)."""
        if name not in self._connections:
            server = self._settings.servers.get(name)
            if server is None:
                known = ", ".join(sorted(self._settings.servers)) or "none"
                raise DeadLetter(
                    "unknown_mcp_server",
                    f"no such MCP server is configured here (DESPACHO_MCP__SERVERS has: {known})",
                )
            self._connections[name] = Connection(name, server, self._settings, self._secrets)
        return self._connections[name]

    @property
    def max_answer_bytes(self) -> int:
        """How large an answer may be."""
        return self._settings.max_answer_bytes

    async def close(self) -> None:
        """Close every connection."""
        await asyncio.gather(*(one.close() for one in self._connections.values()), return_exceptions=True)


class McpTools:
    """One server's tools for one attempt: those that its task type names, and no others."""

    __slots__ = ("_context", "_name", "_servers")

    def __init__(self, context: "TaskContext", name: str, servers: McpServers) -> None:
        """Raises DeadLetter where the type does not name the server."""
        self._context = context
        self._name = name
        self._servers = servers
        if name not in context.owner.spec.mcp:
            raise DeadLetter(
                "mcp_server_not_allowed",
                f"the type {context.owner.spec.name} does not name this MCP server: add it to"
                ' @task_type(…, mcp={"server": ["tool"]})',
            )

    async def tools(self) -> tuple[ToolInfo, ...]:
        """List the tools that the server has now and the type may call. Raises as `call`."""
        connection = self._servers.connection(self._name)
        async with connection.turn("the list of tools", connection.timeout_seconds):
            found = await connection.tools(fresh=True)
        try:
            return tuple(info_of(found[name]) for name in self._allowed if name in found)
        except (ValueError, RecursionError) as error:
            raise ToolRefused("mcp_invalid_answer", f"the tools of {self._name} cannot be listed: {error}") from None

    async def call(
        self, tool: str, arguments: Mapping[str, Any] | None = None, *, timeout_seconds: float | None = None
    ) -> ToolResult:
        """Call a tool and give its answer, cleaned; the arguments are held against its schema first.

        A tool that says itself that it failed gives a result with `is_error`. Raises DeadLetter: `tool_not_allowed`,
        `mcp_unknown_tool`, `mcp_invalid_arguments`, `mcp_invalid_answer`, `mcp_answer_too_large`,
        `mcp_access_refused`; ToolTimedOut (`timeout`) and Retry (`mcp_connection`, `mcp_server_error`), which are
        tried again.
        """
        return await self._called(tool, arguments, timeout_seconds, {})

    async def effect_call(
        self,
        tool: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        key: str,
        effect_type: str = "mcp_tool",
        external_id: ExternalId | None = None,
        timeout_seconds: float | None = None,
        **terms: Any,
    ) -> str | None:
        """Call a tool that changes the world, at most once per key: through `ctx.effect`; gives the external id.

        `external_id` finds it in the result; without it the member `id` of the structured answer is taken. The server
        gets the key's digest in `_meta` as `despacho/idempotencyKey`. A tool that says that it failed raises
        DeadLetter (`mcp_tool_failed`), which leaves the effect in doubt where the tool may have acted.
        """
        found = external_id or _id_of
        connection = self._servers.connection(self._name)
        seconds = timeout_seconds or connection.timeout_seconds
        # Checked, and connected, before anything is reserved: what fails here has sent nothing.
        checked = await self._checked(connection, tool, arguments, seconds)

        async def calling(_: str, given: Mapping[str, Any], *, idempotency_key: str) -> str | None:
            result = await self._called(tool, given, timeout_seconds, {"despacho/idempotencyKey": idempotency_key})
            if result.is_error:
                raise ToolRefused("mcp_tool_failed", f"the tool {self._name}/{tool} says that it failed")
            return found(result)

        return await self._context.effect(
            effect_type, key, calling, f"{self._name}/{tool}", checked, call_timeout_seconds=seconds, **terms
        )

    @property
    def _allowed(self) -> Sequence[str]:
        return self._context.owner.spec.mcp[self._name]

    async def _called(
        self, tool: str, arguments: Mapping[str, Any] | None, seconds: float | None, more: Mapping[str, Any]
    ) -> ToolResult:
        connection = self._servers.connection(self._name)
        seconds = seconds or connection.timeout_seconds
        given = await self._checked(connection, tool, arguments, seconds)
        async with connection.turn(f"the tool {tool}", seconds):
            result = await connection.call(tool, given, {**_trace(self._context.owner), **more}, seconds)
        return answer_of(self._name, tool, result, self._servers.max_answer_bytes)

    async def _checked(
        self, connection: Connection, tool: str, arguments: Mapping[str, Any] | None, seconds: float
    ) -> Mapping[str, Any]:
        """Hold a call against what the type allows and what the tool takes."""
        if tool not in self._allowed:
            shown = tool if isinstance(tool, str) and tool.isprintable() and len(tool) <= 128 else "of this name"
            raise DeadLetter(
                "tool_not_allowed",
                f"the type {self._context.owner.spec.name} may not call the tool {shown} of the MCP server"
                f" {self._name}: add it to @task_type(…, mcp=…)",
            )
        given = {} if arguments is None else arguments
        try:
            json_text(given)
        except NotJson as error:
            raise ToolRefused(
                "mcp_invalid_arguments", f"the arguments of {tool} should be JSON; they have {error}"
            ) from None
        async with connection.turn("the list of tools", seconds):
            found = (await connection.tools(fresh=False)).get(tool) or (await connection.tools(fresh=True)).get(tool)
        if found is None:
            raise ToolRefused("mcp_unknown_tool", f"the MCP server {self._name} has no tool {tool} now")
        _validate(f"{self._name}/{tool}", found.input_schema, given)
        return given


class BlockingMcpTools:
    """The same for plain handlers: calls block the handler's thread."""

    __slots__ = ("_bridge", "_tools")

    def __init__(self, tools: McpTools, bridge: Bridge) -> None:
        self._tools = tools
        self._bridge = bridge

    def tools(self) -> tuple[ToolInfo, ...]:
        """List the tools; see McpTools."""
        return self._bridge.run(lambda _: self._tools.tools())

    def call(
        self, tool: str, arguments: Mapping[str, Any] | None = None, *, timeout_seconds: float | None = None
    ) -> ToolResult:
        """Call a tool; see McpTools."""
        return self._bridge.run(lambda _: self._tools.call(tool, arguments, timeout_seconds=timeout_seconds))

    def effect_call(
        self, tool: str, arguments: Mapping[str, Any] | None = None, *, key: str, **more: Any
    ) -> str | None:
        """Call a tool that changes the world; see McpTools."""
        return self._bridge.run(lambda _: self._tools.effect_call(tool, arguments, key=key, **more))


def _trace(owner: Attempt) -> dict[str, str]:
    if owner.traceparent is None:
        return {}
    return {"traceparent": owner.traceparent} | ({"tracestate": owner.tracestate} if owner.tracestate else {})


def _validate(name: str, schema: Any, arguments: Mapping[str, Any]) -> None:
    """Hold arguments against a tool's schema; values are not repeated. References outside it are not followed."""
    jsonschema, referencing = load_extra("jsonschema"), load_extra("referencing")
    try:
        kind = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)
        kind.check_schema(schema)
        wrong = next(kind(schema, registry=referencing.Registry()).iter_errors(dict(arguments)), None)
    except Exception as error:
        text = f"the input schema of the tool {name} cannot be used ({type(error).__name__})"
        raise ToolRefused("mcp_invalid_schema", text) from None
    if wrong is not None:
        place = "/".join(str(part) for part in wrong.absolute_path)[:200] or "the arguments"
        raise ToolRefused(
            "mcp_invalid_arguments",
            f"{place} of the call of {name} does not match the tool's schema ({wrong.validator})",
        )


def _id_of(result: ToolResult) -> str | None:
    found = result.structured.get("id") if isinstance(result.structured, dict) else None
    return str(found)[:255] if isinstance(found, str | int) else None
