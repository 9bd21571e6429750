"""Reading the audit trail, and adding refused attempts to reach another tenant's things to it."""

import asyncio
import logging
from collections.abc import Sequence
from typing import Any

from sqlalchemy import Row
from sqlalchemy.ext.asyncio import AsyncConnection

from app.services.actors import AuditEntry
from app.services.callers import Caller
from app.store import audit as store
from app.store.audit import AuditFilter
from app.store.database import Database

log = logging.getLogger(__name__)
_MOST_PENDING = 1000


class RefusalTrail:
    """Audits refused attempts after their answer, so that its time says nothing of what exists."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._pending: set[asyncio.Task[None]] = set()

    def note(self, caller: Caller, target: str, tenant_id: str | None) -> None:
        """Have it recorded that `caller` named `target`, which belongs to another tenant."""
        if len(self._pending) >= _MOST_PENDING:
            log.warning("audit.refusal_dropped", extra={"key_id": caller.key_id})
            return
        task = asyncio.create_task(self._store(caller, target, tenant_id))
        self._pending.add(task)
        task.add_done_callback(self._pending.discard)

    async def _store(self, caller: Caller, target: str, tenant_id: str | None) -> None:
        entry = AuditEntry(caller, "tenant.crossing_refused")

        async def work(connection: AsyncConnection) -> None:
            await entry.write(connection, target=target, tenant_id=tenant_id)

        try:
            await self._database.run(work)
        except Exception as error:
            log.error("audit.refusal_not_stored", extra={"key_id": caller.key_id, "error": type(error).__name__})

    async def flush(self) -> None:
        """Wait until everything noted so far is stored."""
        while self._pending:
            await asyncio.gather(*self._pending)


async def list_entries(database: Database, which: AuditFilter, *, before: str | None, limit: int) -> Sequence[Row[Any]]:
    """Read entries, newest first."""
    return await database.run(lambda connection: store.list_entries(connection, which, before=before, limit=limit))
