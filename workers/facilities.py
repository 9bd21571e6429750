"""What handlers reach through `ctx`, made once per process: the worker's own, or a child's.

Every facility has a file of its noun in this package and takes the `Attempt` first; nothing here knows a handler.
"""

from dataclasses import dataclass

from app.outbound.client import OutboundClient
from app.runtime import Runtime
from app.secret_providers import SecretProviders
from workers.a2a.agents import Agents
from workers.a2a.delegation import Delegations
from workers.approvals import Approvals, WorkerApprovals
from workers.budgets import Budgets
from workers.callbacks import Callbacks
from workers.context import ReadInput
from workers.declared_secrets import DeclaredSecrets
from workers.dependencies import Dependencies
from workers.effect_desk import EffectDesk
from workers.effects import Effects
from workers.journal import Journal
from workers.llm.ledger import DatabaseLedger
from workers.llm.llm import Llm
from workers.mcp.tools import McpServers


@dataclass(slots=True)
class Facilities:
    """The facilities of one process, by noun."""

    read_input: ReadInput
    journal: Journal | None = None
    approvals: Approvals | None = None
    effects: Effects | None = None
    llm: Llm | None = None
    http: OutboundClient | None = None
    secrets: DeclaredSecrets | None = None
    callbacks: Callbacks | None = None
    dependencies: Dependencies | None = None
    budgets: Budgets | None = None
    mcp: McpServers | None = None
    delegations: Delegations | None = None

    async def close(self) -> None:
        """Give up what the facilities hold open."""
        if self.effects is not None:
            await self.effects.close()
        if self.llm is not None:
            await self.llm.close()
        if self.mcp is not None:
            await self.mcp.close()
        if self.delegations is not None:
            await self.delegations.close()
        if self.http is not None:
            await self.http.close()
        if self.dependencies is not None:
            await self.dependencies.close()


def open_facilities(runtime: Runtime, *, read_input: ReadInput) -> Facilities:
    """Make the facilities of one process; nothing is connected before it is needed."""
    settings = runtime.settings
    secrets = SecretProviders(settings.secrets)
    approvals = WorkerApprovals(runtime)
    dependencies, budgets = Dependencies(runtime), Budgets(runtime)
    return Facilities(
        read_input=read_input,
        journal=Journal(runtime),
        approvals=approvals,
        effects=Effects(EffectDesk(runtime, approvals), close_seconds=settings.worker.cancel_grace_seconds),
        llm=Llm(
            settings.llm,
            DatabaseLedger(runtime.database, runtime.metrics),
            dependencies=dependencies,
            budgets=budgets,
        ),
        http=OutboundClient(settings.outbound),
        secrets=DeclaredSecrets(secrets, signing=settings.outbound.signing_secrets),
        callbacks=Callbacks(runtime),
        dependencies=dependencies,
        budgets=budgets,
        mcp=McpServers(settings.mcp, secrets),
        delegations=Delegations(runtime, Agents(settings, secrets)),
    )
