"""Tasks moved by hand through the store's own statements: submitted, released, claimed, settled."""

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import text

from app.domain.lifecycle import Move
from app.domain.outcome import Settlement
from app.ids import mint
from app.runtime import Runtime
from app.services.submission import Submission, Submitter, TenantFacts, prepare
from app.store import flights, leaders
from app.store.delayed import come_due
from app.store.flights import Claimed
from app.store.settlements import settle


async def rows(runtime: Runtime, statement: str, **values: object) -> list[Mapping[str, Any]]:
    """Run one statement of the test's own and return its rows."""
    async with runtime.database.transaction() as connection:
        result = await connection.execute(text(statement), values)
        return [dict(row) for row in result.mappings()] if result.returns_rows else []


async def status_of(runtime: Runtime, task_id: str) -> str:
    """Read a task's status."""
    return str((await rows(runtime, "SELECT status FROM tasks WHERE task_id = :id", id=task_id))[0]["status"])


async def a_tenant(runtime: Runtime, tenant_id: str = "acme") -> TenantFacts:
    """Have a tenant."""
    await rows(
        runtime,
        "INSERT INTO tenants (tenant_id, name, created_at) VALUES (:id, :id, clock_timestamp()) ON CONFLICT DO NOTHING",
        id=tenant_id,
    )
    return TenantFacts(tenant_id, "standard", 1.0, None)


async def submitted(runtime: Runtime, n: int = 1, *, tenant_id: str = "acme", **properties: object) -> list[str]:
    """Submit `n` tasks of the type `echo`; returns their ids in order."""
    tenant = await a_tenant(runtime, tenant_id)
    asked = Submission(**({"type": "echo", "input": "{}"} | properties))  # type: ignore[arg-type]
    tasks = [prepare(runtime, tenant, "tester", False, asked) for _ in range(n)]
    await Submitter(runtime).submit_many(tasks)
    return [task.task_id for task in tasks]


async def released(runtime: Runtime, task_ids: Sequence[str]) -> dict[str, int]:
    """Bring due what is due and release these tasks; returns the dispatch of each one that was released."""
    epoch = await leaders.stand(runtime.database, role="dispatcher", holder="test", lease_seconds=60)
    assert epoch is not None, "somebody else leads"
    await come_due(runtime.database, holder="test", epoch=epoch, limit=10_000)
    gone = await runtime.database.execute_hot(
        flights.RELEASE,
        {
            "holder": "test",
            "epoch": epoch,
            "ids": sorted(task_ids),
            "policy_version": "test",
            "figures": "{}",
            "turn_classes": [],
            "turn_tenants": [],
            "turn_times": [],
            "clock_classes": [],
            "clock_times": [],
        },
    )
    return {row.task_id: row.dispatch for row in gone}


async def claimed(
    runtime: Runtime, task_ids: Sequence[str], *, worker_id: str = "worker_1", lease_seconds: float = 60
) -> list[Claimed]:
    """Release and claim these tasks, in the order of their ids."""
    dispatches = await released(runtime, task_ids)
    found = await rows(
        runtime,
        "SELECT task_id, dispatch, task_type, tenant_id FROM flights WHERE task_id = ANY(CAST(:ids AS text[]))",
        ids=list(dispatches),
    )
    wants = [(row["task_id"], row["dispatch"], row["task_type"], row["tenant_id"]) for row in found]
    mine = await flights.claim(
        runtime.database, wants, worker_id=worker_id, lease_seconds=lease_seconds, retry_for_seconds=5
    )
    return sorted(mine, key=lambda one: one.task_id)


async def dead(runtime: Runtime, task_ids: Sequence[str], *, error_type: str = "timeout") -> dict[str, str]:
    """Run these tasks into the dead letters; returns their dead-letter ids."""
    mine = await claimed(runtime, task_ids)
    letters = {one.task_id: mint("dead") for one in mine}
    await settle(
        runtime.database,
        [
            Settlement(
                one.task_id,
                one.fence,
                Move.DEAD_LETTER,
                "dead_lettered",
                error_type=error_type,
                error_message="it did not work",
                error_retryable=False,
                dead_letter_id=letters[one.task_id],
            )
            for one in mine
        ],
    )
    return letters


async def returned(runtime: Runtime, attempt: Claimed) -> None:
    """Give a claimed task back to the waiting, unspent."""
    await settle(runtime.database, [Settlement(attempt.task_id, attempt.fence, Move.RETURN, "returned", spent=False)])


async def finished(runtime: Runtime, task_ids: Sequence[str], *, result: str = "null") -> None:
    """Run these tasks to their end, with this JSON as the result of each."""
    mine = await claimed(runtime, task_ids)
    if mine:
        await settle(
            runtime.database, [Settlement(one.task_id, one.fence, Move.FINISH, "done", result=result) for one in mine]
        )
