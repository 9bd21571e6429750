"""`despacho mcp`: Despacho as an MCP server over stdin and stdout."""

import asyncio

import typer

from app.cli.client import in_words
from app.cli.command import Key, Profile, Url
from app.cli.ending import CommandFailed


def add_to(program: typer.Typer) -> None:
    """Add the command to the program."""
    program.command("mcp")(mcp)


def mcp(url: Url = None, key: Key = None, profile: Profile = None) -> None:
    """Be an MCP server over stdin and stdout, so that an agent can submit tasks and look after them.

    An agent starts this itself; what it may do is what the key may. The API serves the same over HTTP at /mcp.
    """
    from app.client.target import choose_target
    from app.mcp_server.stdio import serve

    with in_words():
        target = choose_target(url, key, profile)
    try:
        asyncio.run(serve(target))
    except ModuleNotFoundError:
        raise CommandFailed("MCP needs more packages: pip install despacho[agents]") from None
