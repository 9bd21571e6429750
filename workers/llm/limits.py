"""The seam to the limits of dependencies: who lets a call through, and hears what it took."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Protocol


class Passage(Protocol):
    """One call that was let through."""

    def used(self, tokens: int) -> None:
        """Say how many tokens it really took, in place of the estimate."""

    def failed(self, error_type: str, retry_after_seconds: float | None) -> None:
        """Say that it failed, by which kind of failure, and when the provider wants to hear from us again."""


class Dependencies(Protocol):
    """Limits and circuit breakers by the name of a dependency."""

    def call(self, name: str, *, priority_class: str, estimated_tokens: int) -> AbstractAsyncContextManager[Passage]:
        """Wait to be let through. Raises Snoozed when the dependency is closed or its limits are used up for long."""


class _Free:
    def used(self, tokens: int) -> None:
        """Have nobody to tell."""

    def failed(self, error_type: str, retry_after_seconds: float | None) -> None:
        """Have nobody to tell."""


@asynccontextmanager
async def passage(
    dependencies: Dependencies | None, name: str | None, *, priority_class: str, estimated_tokens: int
) -> AsyncIterator[Passage]:
    """Pass through the limits of a dependency, where there are any."""
    if dependencies is None or name is None:
        yield _Free()
        return
    async with dependencies.call(name, priority_class=priority_class, estimated_tokens=estimated_tokens) as let:
        yield let
