"""How calls of tools fail: what may mend itself is a Retry or a TimeoutError, the rest is a DeadLetter."""

from typing import Any

from app.domain.errors import DeadLetter, Retry

ANSWER_TOO_LARGE = -31_001
ANSWER_UNREADABLE = -31_002
ACCESS_REFUSED = -31_003
"""JSON-RPC error codes that our transports give to calls whose answer never reaches the session."""


class ServerUnavailable(Retry):
    """The server cannot be started or reached, or went away; its connection is made anew with the next call."""

    def __init__(self, message: str) -> None:
        super().__init__(None, message, "mcp_connection")

    def __reduce__(self) -> tuple[type["ServerUnavailable"], tuple[str]]:  # type: ignore[override]
        return type(self), (self.message,)


class ToolTimedOut(TimeoutError):
    """A tool did not answer in time; classified as `timeout`."""


class ToolRefused(DeadLetter):
    """A call that no retry can help."""


def of_rpc(server: str, what: str, error: Any) -> Exception:
    """Translate an MCPError into an error of ours; the server's own words are not repeated, its code is."""
    from mcp_types import CONNECTION_CLOSED, INTERNAL_ERROR, INVALID_PARAMS, METHOD_NOT_FOUND, REQUEST_TIMEOUT

    code, said = int(error.code), str(error.message)
    if code == REQUEST_TIMEOUT:
        return ToolTimedOut(f"{what} of the MCP server {server} did not answer in time")
    if code == ANSWER_TOO_LARGE or said.startswith("SSE stream failed"):
        return ToolRefused(
            "mcp_answer_too_large",
            f"the answer of {what} of the MCP server {server} is larger than DESPACHO_MCP__MAX_ANSWER_BYTES",
        )
    if code == CONNECTION_CLOSED or said == "Session terminated":
        return ServerUnavailable(f"the connection to the MCP server {server} was lost")
    if code == ACCESS_REFUSED:
        return ToolRefused("mcp_access_refused", f"the MCP server {server} refuses the credentials that it was given")
    if code == ANSWER_UNREADABLE or said.startswith("Failed to parse"):
        return ToolRefused("mcp_invalid_answer", f"the answer of {what} of the MCP server {server} cannot be read")
    if code == METHOD_NOT_FOUND:
        return ToolRefused("mcp_unknown_tool", f"the MCP server {server} does not know {what}")
    if code == INVALID_PARAMS:
        return ToolRefused("mcp_invalid_arguments", f"the MCP server {server} refuses the arguments of {what}")
    if code == INTERNAL_ERROR:
        return Retry(None, f"the MCP server {server} failed in {what}", "mcp_server_error")
    return ToolRefused("mcp_protocol", f"the MCP server {server} answered {what} with the error {code}")
