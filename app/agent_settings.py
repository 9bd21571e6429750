"""Settings of MCP servers and A2A agents: what operators configure by name, with the names of secrets, never values."""

import re
import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from app.domain.secret_names import SECRET_NAME

Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NAME = re.compile(r"^[A-Za-z][A-Za-z0-9_.-]{0,63}$")
"""What a server or an agent may be called."""


class _Group(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


def _check_secrets(value: dict[str, str]) -> dict[str, str]:
    if not all(SECRET_NAME.fullmatch(name) for name in value.values()):
        raise ValueError("each value should be the name of a secret, such as FILES_TOKEN, never the secret itself")
    return value


def _check_url(value: str | None) -> str | None:
    if value is not None and not re.match(r"^https?://[^\s@/?#]+[^\s@?#]*$", value):
        raise ValueError("should be an http:// or https:// URL without user, query and fragment")
    return value


class McpServer(_Group):
    """One MCP server: a program that the worker starts (`stdio`), or an address (`http`)."""

    transport: Literal["stdio", "http"]
    command: str | None = None
    args: list[str] = Field(default_factory=list)
    variables: dict[str, str] = Field(default_factory=dict)
    """Plain environment variables of the program; it gets these, `env`, and nothing else."""
    env: dict[str, str] = Field(default_factory=dict)
    """Environment variables whose values are secrets: variable → name of the secret."""
    cwd: Path | None = None
    url: str | None = None
    headers: dict[str, str] = Field(default_factory=dict)
    """Headers whose values are secrets: header → name of the secret."""
    max_concurrent_calls: int = Field(8, ge=1, le=1000)
    call_timeout_seconds: Seconds | None = None

    _secrets = field_validator("env", "headers")(_check_secrets)
    _url = field_validator("url")(_check_url)

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if self.transport == "stdio" and (not self.command or self.url or self.headers):
            raise ValueError("a stdio server should have a command (args, env, variables), and no url or headers")
        if self.transport == "http" and (not self.url or self.command or self.args or self.env or self.variables):
            raise ValueError("an http server should have a url (and headers), and no command, args, env or variables")
        return self


def _named(value: dict[str, Any]) -> dict[str, Any]:
    if not all(NAME.match(name) for name in value):
        raise ValueError("names should be a letter and then up to 63 letters, digits, _, . or -")
    return value


class McpSettings(_Group):
    """Which MCP servers handlers may call, and how long and how large a call may be."""

    servers: dict[str, McpServer] = Field(
        default_factory=dict,
        description='name → {"transport": "stdio", "command", "args", "env": {variable: secret}, "variables", "cwd"} or'
        ' {"transport": "http", "url", "headers": {header: secret}}; both: "max_concurrent_calls" (8),'
        ' "call_timeout_seconds"',
    )
    servers_file: Path | None = Field(None, description="a TOML file with the same, as tables [servers.<name>]")
    connect_timeout_seconds: Seconds = Field(15.0, description="to start or reach a server and greet it")
    call_timeout_seconds: Seconds = Field(60.0, description="for one call of a tool, waiting for its turn included")
    max_answer_bytes: int = Field(1024 * 1024, ge=1024, description="a larger answer of a server is a failure")
    tools_cache_seconds: Seconds = Field(30.0, description="how long a server's list of tools is used again")

    _names = field_validator("servers")(_named)

    @model_validator(mode="before")
    @classmethod
    def _with_file(cls, value: Any) -> Any:
        if not isinstance(value, dict) or not value.get("servers_file"):
            return value
        try:
            found = tomllib.loads(Path(value["servers_file"]).read_text(encoding="utf-8")).get("servers", {})
        except (OSError, ValueError) as error:
            raise ValueError(f"servers_file cannot be read ({type(error).__name__})") from None
        if not isinstance(found, dict):
            raise ValueError("servers_file should hold tables named [servers.<name>]")
        given = value.get("servers")
        return {**value, "servers": {**found, **(given if isinstance(given, dict) else {})}}


class A2aAgent(_Group):
    """One agent that speaks A2A: where its card is, and the headers that say who calls."""

    url: str
    headers: dict[str, str] = Field(default_factory=dict)
    """Headers whose values are secrets: header → name of the secret."""

    _secrets = field_validator("headers")(_check_secrets)
    _url = field_validator("url")(_check_url)


class A2aSettings(_Group):
    """Which agents work is delegated to by name, and how their answers are waited for."""

    agents: dict[str, A2aAgent] = Field(
        default_factory=dict,
        description='name → {"url": where the agent\'s card is found, "headers": {header: secret}}',
    )
    allow_urls: bool = Field(True, description="whether tasks may name agents by URL; private addresses stay closed")
    request_timeout_seconds: Seconds = Field(30.0, description="for one request to an agent")
    poll_seconds: Seconds = Field(2.0, description="the first pause before an agent is asked again; the pauses grow")
    max_poll_seconds: Seconds = Field(60.0, description="the longest of these pauses")
    timeout_seconds: Seconds = Field(86400.0, description="for a whole delegation, where the call names no time")
    max_answer_bytes: int = Field(1024 * 1024, ge=1024, description="a larger answer of an agent is a failure")

    _names = field_validator("agents")(_named)
