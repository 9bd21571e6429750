"""Tasks that ask a person, moved by hand: questions of claimed attempts, and suspended tasks."""

from typing import Any

import pytest

from app.domain.approvals import Approval, question
from app.domain.errors import Suspended
from app.domain.lifecycle import Move
from app.domain.outcome import Settlement
from app.runtime import Runtime
from app.services import approvals
from app.store.flights import Claimed
from app.store.settlements import settle
from tests.support.work import claimed, rows, submitted


async def ask(
    runtime: Runtime, mine: Claimed, action: str = "refund", detail: object = None, *, expires_seconds: float = 600
) -> Approval:
    """Ask on behalf of a claimed attempt."""
    asked = question(action, detail, expires_seconds=expires_seconds, most_detail_bytes=1000)
    return await approvals.ask(
        runtime, asked, task_id=mine.task_id, fence=mine.fence, priority_class=mine.priority_class
    )


async def asked(runtime: Runtime, mine: Claimed, action: str = "refund", **more: Any) -> str:
    """Ask and be told to wait; returns the approval's id."""
    with pytest.raises(Suspended) as suspended:
        await ask(runtime, mine, action, **more)
    return suspended.value.approval_id


def suspension(mine: Claimed, approval_id: str) -> Settlement:
    """Spell what the worker writes for a handler that waits."""
    return Settlement(mine.task_id, mine.fence, Move.SUSPEND, "suspended", spent=False, approval_id=approval_id)


async def suspended(
    runtime: Runtime, action: str = "refund", *, detail: object = None, expires_seconds: float = 600, **properties: Any
) -> tuple[str, str]:
    """Have a task that waits for an approval; returns the ids of both."""
    (task_id,) = await submitted(runtime, **properties)
    (mine,) = await claimed(runtime, [task_id])
    approval_id = await asked(runtime, mine, action, detail=detail, expires_seconds=expires_seconds)
    await settle(runtime.database, [suspension(mine, approval_id)])
    return task_id, approval_id


async def over(runtime: Runtime, approval_id: str) -> None:
    """Let the time of an approval be over."""
    await rows(
        runtime,
        "UPDATE approvals SET expires_at = clock_timestamp() - interval '1 second' WHERE approval_id = :id",
        id=approval_id,
    )
