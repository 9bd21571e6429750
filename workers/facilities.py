"""What handlers reach through `ctx`, made once per process: the worker's own, or a child's.

Every facility has a file of its noun in this package and takes the `Attempt` first; nothing here knows a handler.
"""

from dataclasses import dataclass

from app.runtime import Runtime
from workers.approvals import Approvals, WorkerApprovals
from workers.context import ReadInput
from workers.effect_desk import EffectDesk
from workers.effects import Effects
from workers.journal import Journal
from workers.llm.ledger import DatabaseLedger
from workers.llm.llm import Llm


@dataclass(slots=True)
class Facilities:
    """The facilities of one process, by noun."""

    read_input: ReadInput
    journal: Journal | None = None
    approvals: Approvals | None = None
    effects: Effects | None = None
    llm: Llm | None = None

    async def close(self) -> None:
        """Give up what the facilities hold open."""
        if self.effects is not None:
            await self.effects.close()
        if self.llm is not None:
            await self.llm.close()


def open_facilities(runtime: Runtime, *, read_input: ReadInput) -> Facilities:
    """Make the facilities of one process; nothing is connected before it is needed."""
    approvals = WorkerApprovals(runtime)
    return Facilities(
        read_input=read_input,
        journal=Journal(runtime),
        approvals=approvals,
        effects=Effects(EffectDesk(runtime, approvals), close_seconds=runtime.settings.worker.cancel_grace_seconds),
        llm=Llm(runtime.settings.llm, DatabaseLedger(runtime.database, runtime.metrics)),
    )
