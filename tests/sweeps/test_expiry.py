"""What is over before it started expires, wherever it waits; what runs does not."""

from app.runtime import Runtime
from tests.support.work import claimed, released, rows, status_of, submitted
from workers.sweeps.expiry import run_once

OVER = "UPDATE {place} SET valid_until = clock_timestamp() - interval '1 second'"


async def test_tasks_expire_in_every_place_where_they_wait(runtime: Runtime) -> None:
    ready, flying, running, delayed, kept = await submitted(runtime, 5)
    await released(runtime, [flying])
    await claimed(runtime, [running])
    await rows(
        runtime,
        "WITH gone AS (DELETE FROM ready WHERE task_id = :id RETURNING *) INSERT INTO delayed "
        "SELECT task_id, priority_class, tenant_id, task_type, task_group, order_at, queued_at, valid_until, cost, "
        "timeout_seconds, preemptible, attempt, dispatch, submitted_at, traceparent, tracestate, "
        "clock_timestamp() + interval '1 hour', 'test' FROM gone",
        id=delayed,
    )
    for place in ("ready", "delayed", "flights"):
        await rows(runtime, f"{OVER.format(place=place)} WHERE task_id <> :kept", kept=kept)
    ended: list[str] = []
    runtime.ended.append(ended.extend)

    expired = await run_once(runtime)

    assert expired == 3
    assert set(ended) == {ready, flying, delayed}
    assert {await status_of(runtime, task_id) for task_id in (ready, flying, delayed)} == {"expired"}
    assert (await status_of(runtime, running), await status_of(runtime, kept)) == ("running", "queued")
    events = await rows(runtime, "SELECT kind, reason FROM events")
    assert events == [{"kind": "expired", "reason": "valid_until"}] * 3
    assert await run_once(runtime) == 0
