"""Who asks: the three facts that every service function needs of a caller, whatever border it came in by."""

from dataclasses import dataclass
from typing import Protocol

from sqlalchemy.ext.asyncio import AsyncConnection

from app.ids import mint
from app.services.errors import NotFound
from app.store import audit


class Actor(Protocol):
    """Whoever asks. `tenant_id` is None for the platform, which acts over all tenants."""

    @property
    def subject(self) -> str:
        """The person or program behind the request."""
        ...

    @property
    def key_id(self) -> str | None:
        """The key it came with, if it came with one."""
        ...

    @property
    def tenant_id(self) -> str | None:
        """The tenant it acts for; None: all."""
        ...


@dataclass(frozen=True, slots=True)
class ServiceActor:
    """An actor that is no request: a sweep, the command line, a test."""

    subject: str
    key_id: str | None = None
    tenant_id: str | None = None


class Hidden(NotFound):
    """Something that exists and belongs to another tenant: to the caller the same as nothing, to the audit a fact."""

    def __init__(self, target: str, tenant_id: str | None) -> None:
        super().__init__()
        self.target = target
        self.tenant_id = tenant_id


def check_seen(actor: Actor, target: str, tenant_id: str | None) -> None:
    """Hold the owner of a found thing (None: it is of no tenant) against the actor. Raises Hidden."""
    if actor.tenant_id is not None and actor.tenant_id != tenant_id:
        raise Hidden(target, tenant_id)


class AuditEntry:
    """One audited action; its id is minted before the first try, so that a repeated transaction records it once."""

    def __init__(self, actor: Actor, action: str) -> None:
        self._audit_id = mint("audit")
        self._actor = actor
        self._action = action

    async def is_written(self, connection: AsyncConnection) -> bool:
        """Say whether an earlier try of this very action was committed and only its answer was lost."""
        return await audit.is_recorded(connection, self._audit_id)

    async def write(
        self,
        connection: AsyncConnection,
        *,
        target: str | None = None,
        tenant_id: str | None = None,
        reason: str | None = None,
        detail: str | None = None,
    ) -> None:
        """Write it in the transaction of what it tells of; `tenant_id` is whom it concerns (default: the actor's)."""
        await audit.record(
            connection,
            self._audit_id,
            key_id=self._actor.key_id,
            subject=self._actor.subject,
            tenant_id=tenant_id or self._actor.tenant_id,
            action=self._action,
            target=target,
            reason=reason,
            detail=detail,
        )
