"""Contexts whose MCP servers are the trial server of `tests/support`, over stdio or HTTP."""

import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from app.agent_settings import McpSettings
from app.domain.task_types import TaskTypeSpec
from app.secret_providers import SecretProviders
from app.settings import SecretsSettings
from tests.support.contexts import no_input
from tests.support.mcp_server import PROGRAM
from workers.attempt import Attempt
from workers.context import TaskContext
from workers.facilities import Facilities
from workers.mcp.tools import McpServers

TOOLS = (
    "add", "meta", "environment", "variable", "pid", "die", "never", "block", "failing", "text", "grow", "later",
    "surrogate", "deep", "nonsense", "fine", "gone",
)  # fmt: skip
STDIO = {"transport": "stdio", "command": sys.executable, "args": [PROGRAM]}
RAW = {"transport": "stdio", "command": sys.executable, "args": [PROGRAM, "raw"]}
TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


@asynccontextmanager
async def a_context(
    servers: Mapping[str, Any], *, tools: Mapping[str, tuple[str, ...]] | None = None, **settings: Any
) -> AsyncIterator[TaskContext]:
    """Have a context whose type may call `TOOLS` of every server."""
    mcp = McpServers(McpSettings(servers=dict(servers), **settings), SecretProviders(SecretsSettings()))
    spec = TaskTypeSpec("trial", mcp=dict.fromkeys(servers, TOOLS) if tools is None else tools)
    owner = Attempt("task_1", "acme", spec, 1, 1, 1, "common", "worker_1", 60.0, TRACE)
    facilities = Facilities(read_input=no_input, mcp=mcp)
    try:
        yield TaskContext(owner, facilities)
    finally:
        await facilities.close()
