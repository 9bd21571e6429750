"""The REST client as commands have it: plain answers, its patience, and errors as texts for a person.

It waits out what the service says is temporary (429, 503 with Retry-After) and nothing else: whoever sits at a terminal
wants to know at once that nothing answers.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from app.cli.ending import CommandFailed, WrongUsage
from app.client.clients import PlainClient as Client
from app.client.errors import ApiError, DespachoError, Unreachable, Unsendable, WrongConfiguration
from app.client.request import Json, part
from app.client.retrying import Retries
from app.client.shells import Setup
from app.client.target import Target, choose_target

__all__ = ["Client", "Json", "connect", "in_words", "part", "text_of"]

_PATIENCE_SECONDS = 30.0


@contextmanager
def connect(
    url: str | None,
    key: str | None,
    profile: str | None,
    *,
    patience_seconds: float = _PATIENCE_SECONDS,
    transport: Any = None,
) -> Iterator[Client]:
    """Have a client of what the flags and the environment name. Raises CommandFailed, also for what it meets."""
    with in_words():
        target = choose_target(url, key, profile)
    with connected(target, patience_seconds=patience_seconds, transport=transport) as client:
        yield client


@contextmanager
def connected(
    target: Target, *, patience_seconds: float = _PATIENCE_SECONDS, transport: Any = None
) -> Iterator[Client]:
    """Have a client of a target. Raises CommandFailed for what it meets."""
    retries = Retries(for_seconds=patience_seconds, lost_connections=False, only_when_told=True)
    client = Client(Setup(target, retries=retries, typed=False, transport=transport, agent="despacho-cli"))
    try:
        with in_words(has_key=target.key is not None):
            yield client
    finally:
        client.close()


@contextmanager
def in_words(*, has_key: bool = True) -> Iterator[None]:
    """Turn the client's errors into ends of a command. Raises CommandFailed or WrongUsage."""
    try:
        yield
    except (WrongConfiguration, Unsendable) as error:
        raise WrongUsage(text_of(error)) from None
    except DespachoError as error:
        raise CommandFailed(text_of(error, has_key=has_key)) from None


def text_of(error: DespachoError, *, has_key: bool = True) -> str:
    """Tell a person at a terminal what went wrong, and which flag would help."""
    if isinstance(error, WrongConfiguration):
        return str(error).replace("(DESPACHO_URL)", "(--url, DESPACHO_URL)")
    if isinstance(error, Unreachable) and error.why == "refused":
        return (
            f"nothing answers at {error.url}: start the service with `despacho up`, or name the right address with "
            "--url (DESPACHO_URL)"
        )
    lines = [str(error)]
    if isinstance(error, ApiError):
        if error.status == 401 and not has_key:
            lines.append("give a key with DESPACHO_KEY, --key or --profile")
        if error.retryable and error.retry_after_seconds is not None:
            lines.append(f"it may work again in {error.retry_after_seconds:g} s")
    return "\n".join(lines)
