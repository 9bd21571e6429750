"""The seams to limits and budgets: who lets a call through, and hears what it took."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from decimal import Decimal
from typing import Protocol

from workers.attempt import Attempt


class Passage(Protocol):
    """One call that was let through."""

    def used(self, tokens: float) -> None:
        """Say how many tokens it really took, in place of the estimate."""

    def failed(self, retry_after_seconds: float | None = None) -> None:
        """Say that the dependency failed, and when it wants to hear from us again, where it said so."""


class Dependencies(Protocol):
    """Limits and circuit breakers by the name of a dependency."""

    def call(
        self,
        name: str,
        *,
        priority_class: str,
        estimated_tokens: float = 0,
        attempt_timeout_seconds: float | None = None,
    ) -> AbstractAsyncContextManager[Passage]:
        """Wait to be let through. Entering raises Snoozed when the dependency is closed or its limits are used up.

        Leaving may raise Snoozed in place of a failure that tells nothing new of a dependency that is down.
        """


class Budgets(Protocol):
    """What a tenant and a type may still spend."""

    async def admit(self, owner: Attempt, *, cost_usd: Decimal = Decimal(0), tokens: int = 0) -> None:
        """Let a call through. Raises Snoozed when a budget would be passed."""


class _Free:
    def used(self, tokens: float) -> None:
        """Have nobody to tell."""

    def failed(self, retry_after_seconds: float | None = None) -> None:
        """Have nobody to tell."""


SPEAK_OF_THE_DEPENDENCY = frozenset(
    {"rate_limit", "overloaded", "unavailable", "timeout", "connection", "bad_response", "quota_exhausted"}
)
"""The kinds of failures that say something of the provider, and not of what was asked of it."""


@asynccontextmanager
async def passage(
    dependencies: Dependencies | None, name: str | None, owner: Attempt, estimated_tokens: int
) -> AsyncIterator[Passage]:
    """Pass through the limits of a dependency, where there are any."""
    if dependencies is None or name is None:
        yield _Free()
        return
    async with dependencies.call(
        name,
        priority_class=owner.priority_class,
        estimated_tokens=estimated_tokens,
        attempt_timeout_seconds=owner.timeout_seconds,
    ) as let:
        yield let
