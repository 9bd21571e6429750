"""What handlers reach through `ctx`, made once per process: the worker's own, or a child's.

Every facility has a file of its noun in this package and takes the `Attempt` first; nothing here knows a handler.
"""

from dataclasses import dataclass

from app.runtime import Runtime
from workers.budgets import Budgets
from workers.context import ReadInput
from workers.dependencies import Dependencies


@dataclass(slots=True)
class Facilities:
    """The facilities of one process, by noun."""

    read_input: ReadInput
    dependencies: Dependencies | None = None
    budgets: Budgets | None = None

    async def close(self) -> None:
        """Give up what the facilities hold open."""
        if self.dependencies is not None:
            await self.dependencies.close()


def open_facilities(runtime: Runtime, *, read_input: ReadInput) -> Facilities:
    """Make the facilities of one process; nothing is connected before it is needed."""
    return Facilities(read_input=read_input, dependencies=Dependencies(runtime), budgets=Budgets(runtime))
