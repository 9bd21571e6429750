"""Tools of MCP servers for agents: named server.tool, marked as effects by the operator."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from despacho import DeadLetter, TaskContext, Tool, ToolError
from workers.mcp.errors import ToolRefused

_TIMEOUT_SECONDS = 60.0
_MOST_SAID = 2000


@dataclass(frozen=True, slots=True)
class RemoteTool:
    """One tool of an MCP server."""

    name: str

    @property
    def server(self) -> str:
        """Name its server."""
        return self.name.rpartition(".")[0]

    @property
    def tool(self) -> str:
        """Give its name there."""
        return self.name.rpartition(".")[2]

    @property
    def timeout_seconds(self) -> float:
        """How long a call may take; the server's own limit may be shorter."""
        return _TIMEOUT_SECONDS

    @property
    def effect_terms(self) -> Mapping[str, Any]:
        """A server makes no promise about repeated keys: what nobody knows is a doubt."""
        return {}

    @property
    def repeatable(self) -> bool:
        """The same effect is not had twice."""
        return False

    async def shown(self, ctx: TaskContext) -> Tool:
        """Give what the server says of it now. Raises DeadLetter (`mcp_unknown_tool`), and what the server raises."""
        found = {one.name: one for one in await ctx.mcp(self.server).tools()}.get(self.tool)
        if found is None:
            raise DeadLetter("mcp_unknown_tool", f"the MCP server {self.server} has no tool {self.tool} now")
        spoken = re.sub(r"[^A-Za-z0-9_-]", "_", self.name.replace(".", "__"))[:64]
        return Tool(spoken, found.description, found.input_schema)

    def faults(self, arguments: Mapping[str, Any]) -> Sequence[str]:
        """List nothing: the server's own schema is asked with the call."""
        return []

    async def prepare(self, ctx: TaskContext, arguments: Mapping[str, Any]) -> None:
        """Hold the arguments against the server's schema. Raises ToolError."""
        try:
            await ctx.mcp(self.server).check(self.tool, arguments)
        except ToolRefused as error:
            raise ToolError(error.message) from None

    async def run(self, ctx: TaskContext, arguments: Mapping[str, Any], key: str | None) -> Any:
        """Call it. Raises ToolError for what is told to the model; an effect that says that it failed is a doubt."""
        tools = ctx.mcp(self.server)
        if key is not None:
            result = await tools.call(self.tool, arguments, idempotency_key=key)
            if result.is_error:
                raise ToolRefused("mcp_tool_failed", f"the tool {self.name} says that it failed")
        else:
            try:
                result = await tools.call(self.tool, arguments)
            except ToolRefused as error:
                raise ToolError(error.message) from None
            if result.is_error:
                raise ToolError(result.text[:_MOST_SAID])
        return result.structured if result.structured is not None else result.text
