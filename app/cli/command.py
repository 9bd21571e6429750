"""Making client commands: each is a function of a connected `Client`, and gets --url, --key and --profile here."""

import functools
import inspect
import json
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any, Concatenate, ParamSpec

import typer

from app.cli.client import Client, Json, connect
from app.cli.ending import WrongUsage
from app.cli.output import Format

P = ParamSpec("P")

# The environment is read by the client: a profile named by a flag outranks an address of the environment.
Url = Annotated[
    str | None, typer.Option("--url", help="The API. [default: http://127.0.0.1:8000] [env var: DESPACHO_URL]")
]
Key = Annotated[
    str | None,
    typer.Option("--key", help="The key. Other users of this machine can see flags. [env var: DESPACHO_KEY]"),
]
Profile = Annotated[
    str | None, typer.Option("--profile", help="Take both from this profile. [env var: DESPACHO_PROFILE]")
]
Output = Annotated[Format, typer.Option("-o", "--output", help="How to show it.")]
Limit = Annotated[int | None, typer.Option("--limit", min=1, help="At most so many. [default: 50 in a table]")]
Reason = Annotated[str, typer.Option("--reason", help="Why; kept in the audit trail.")]
Types = Annotated[list[str] | None, typer.Option("--type", help="Task type; may be repeated.")]
Classes = Annotated[list[str] | None, typer.Option("--class", help="Priority class; may be repeated.")]
Groups = Annotated[list[str] | None, typer.Option("--group", help="Group; may be repeated.")]
Tenants = Annotated[list[str] | None, typer.Option("--tenant", help="Tenant, for platform keys; may be repeated.")]

_CONNECTION = (("url", Url), ("key", Key), ("profile", Profile))


def noun(name: str, help_text: str) -> typer.Typer:
    """Make the group of a noun's verbs."""
    return typer.Typer(name=name, help=help_text, no_args_is_help=True, rich_markup_mode=None)


def command(
    group: typer.Typer, name: str
) -> Callable[[Callable[Concatenate[Client, P], None]], Callable[Concatenate[Client, P], None]]:
    """Register a function of a Client as a command; the function itself stays as it is."""

    def register(function: Callable[Concatenate[Client, P], None]) -> Callable[Concatenate[Client, P], None]:
        @functools.wraps(function)
        def run(*_: object, **given: Any) -> None:
            with connect(given.pop("url"), given.pop("key"), given.pop("profile")) as client:
                function(client, **given)  # type: ignore[call-arg]

        own = list(inspect.signature(function).parameters.values())[1:]
        added = [
            inspect.Parameter(option, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)
            for option, annotation in _CONNECTION
        ]
        run.__signature__ = inspect.Signature([*own, *added])  # type: ignore[attr-defined]
        run.__annotations__ = {parameter.name: parameter.annotation for parameter in (*own, *added)}
        group.command(name)(run)
        return function

    return register


def ids_from(arguments: Iterable[str]) -> Iterator[str]:
    """Return the ids that were given; `-` stands for those on stdin, one a line."""
    for argument in arguments:
        if argument == "-":
            for line in sys.stdin:
                if line.strip():
                    yield line.strip()
        else:
            yield argument


def json_from(argument: str, option: str) -> Json:
    """Read JSON from the argument itself, from @file, or from stdin (-). Raises WrongUsage."""
    text = text_from(argument, option)
    try:
        return json.loads(text)
    except ValueError as error:
        where = f" (line {error.lineno}, column {error.colno})" if isinstance(error, json.JSONDecodeError) else ""
        raise WrongUsage(f"{option}: not JSON{where}; give JSON, @file or - for stdin") from None


def text_from(argument: str, option: str) -> str:
    """Read text from the argument itself, from @file, or from stdin (-). Raises WrongUsage."""
    try:
        if argument == "-":
            return sys.stdin.read()
        if argument.startswith("@"):
            return Path(argument[1:]).read_text(encoding="utf-8")
    except OSError as error:
        raise WrongUsage(f"{option}: {argument[1:]}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise WrongUsage(f"{option}: {argument[1:] or 'stdin'}: not text in UTF-8") from None
    return argument


def filter_of(**fields: list[str] | str | None) -> dict[str, Json]:
    """Return a filter of the API without the fields that are open."""
    return {name: value for name, value in fields.items() if value}
