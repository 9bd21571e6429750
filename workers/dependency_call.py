"""One call of a dependency as a context manager: how its block ends is what is known of the dependency."""

import asyncio
from datetime import UTC, datetime
from types import TracebackType
from typing import Protocol

from app.domain.errors import Snoozed, Yielded
from app.domain.failure import Failure, classify
from workers.bridge import Bridge
from workers.dependency_gate import Permit

# What a failure must be called to say something of the dependency, and not of what was asked of it.
_SPEAKS = frozenset({"timeout", "connection", "rate_limit", "unavailable"})


def speaks(failure: Failure) -> bool:
    """Say whether a failure speaks of the dependency: a timeout, a connection, a 429 or a 5xx."""
    return failure.error_type in _SPEAKS or failure.error_type.startswith("http_5")


class Doors(Protocol):
    """What a call needs of `Dependencies`."""

    async def enter(self, name: str, priority_class: str, estimated_tokens: float) -> Permit:
        """Wait for a permit. Raises Snoozed."""

    def leave(
        self, name: str, permit: Permit, *, failed: bool | None, retry_after_seconds: float, used_tokens: float | None
    ) -> None:
        """End a call."""

    def snooze_for(self, name: str, failure: Failure) -> Snoozed | None:
        """Tell how long a task stays away whose call failed while the dependency was known to be down."""


class DependencyCall:
    """One call: a context manager that takes a permit, and records how its block ends."""

    def __init__(
        self,
        owner: Doors,
        name: str,
        priority_class: str,
        estimated_tokens: float,
        attempt_timeout_seconds: float | None,
    ) -> None:
        self._owner = owner
        self._name = name
        self._class = priority_class
        self._estimated_tokens = float(estimated_tokens)
        self._timeout_seconds = attempt_timeout_seconds
        self._permit: Permit | None = None
        self._began_at = 0.0
        self._used_tokens: float | None = None
        self._failed = False
        self._retry_after_seconds = 0.0

    def used(self, tokens: float) -> None:
        """Say how many tokens the call really used."""
        self._used_tokens = float(tokens)

    def failed(self, retry_after_seconds: float | None = None) -> None:
        """Say that the dependency failed, although the block may end well; with what it said of when to come back."""
        self._failed = True
        self._retry_after_seconds = max(self._retry_after_seconds, retry_after_seconds or 0.0)

    async def __aenter__(self) -> "DependencyCall":
        """Take a permit. Raises Snoozed."""
        self._permit = await self._owner.enter(self._name, self._class, self._estimated_tokens)
        self._began_at = asyncio.get_running_loop().time()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Record the end. Raises Snoozed in place of a failure that tells nothing new."""
        permit, self._permit = self._permit, None
        if permit is None:
            return
        failure = classify(error, datetime.now(UTC)) if isinstance(error, Exception) else None
        failed = self._judged(error, failure)
        told = max(self._retry_after_seconds, (failure.retry_after_seconds or 0.0) if failure and failed else 0.0)
        snoozed = self._owner.snooze_for(self._name, failure) if failed and failure is not None else None
        self._owner.leave(self._name, permit, failed=failed, retry_after_seconds=told, used_tokens=self._used_tokens)
        if snoozed is not None:
            raise snoozed from error

    def _judged(self, error: BaseException | None, failure: Failure | None) -> bool | None:
        """Say whether the dependency failed; None where nobody can tell."""
        if self._failed:
            return True
        match error:
            case None:
                return False
            case Yielded():
                return None
            case asyncio.CancelledError():
                # A handler is cancelled at its timeout: then a call that took most of it is what hung.
                took = asyncio.get_running_loop().time() - self._began_at
                return True if self._timeout_seconds and took >= self._timeout_seconds / 2 else None
            case _:
                return speaks(failure) if failure is not None else None


class BlockingDependencyCall:
    """The same for plain handlers: it waits in the handler's thread, and acts on the worker's loop."""

    def __init__(self, call: DependencyCall, bridge: Bridge) -> None:
        self._call = call
        self._bridge = bridge

    def used(self, tokens: float) -> None:
        """Say how many tokens the call really used."""
        self._call.used(tokens)

    def failed(self, retry_after_seconds: float | None = None) -> None:
        """Say that the dependency failed; see DependencyCall."""
        self._call.failed(retry_after_seconds)

    def __enter__(self) -> "BlockingDependencyCall":
        """Take a permit. Raises Snoozed."""
        self._bridge.run(lambda _: self._call.__aenter__())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Record the end. Raises Snoozed in place of a failure that tells nothing new."""
        self._bridge.run(lambda _: self._call.__aexit__(kind, error, trace))
