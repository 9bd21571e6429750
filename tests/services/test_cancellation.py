"""What cancel answers is what stays, whatever it races with."""

import asyncio

import pytest

from app.domain.lifecycle import Move
from app.domain.outcome import Settlement
from app.runtime import Runtime
from app.services.actors import ServiceActor
from app.services.cancellation import cancel_task, retry_now
from app.services.errors import Conflict, NotFound
from app.store.flights import hold
from app.store.settlements import settle
from tests.support.work import claimed, finished, released, rows, status_of, submitted

ACME = ServiceActor("ana", "key_1", "acme")


async def test_a_waiting_task_is_cancelled_at_once(runtime: Runtime) -> None:
    (task_id,) = await submitted(runtime)

    answer = await cancel_task(runtime, ACME, task_id, "not needed")

    assert not answer.requested
    assert answer.task.status == "cancelled"
    assert await rows(runtime, "SELECT * FROM ready") == []
    (event,) = await rows(runtime, "SELECT kind, reason, actor FROM events")
    assert event == {"kind": "cancelled", "reason": "not needed", "actor": "ana"}
    (entry,) = await rows(runtime, "SELECT action, target, subject, key_id FROM audit")
    assert entry == {"action": "task.cancel", "target": task_id, "subject": "ana", "key_id": "key_1"}


async def test_a_released_task_is_cancelled_and_its_message_claims_nothing(runtime: Runtime) -> None:
    (task_id,) = await submitted(runtime)
    await released(runtime, [task_id])

    answer = await cancel_task(runtime, ACME, task_id)

    assert answer.task.status == "cancelled"
    assert await rows(runtime, "SELECT * FROM flights") == []
    tallies = await rows(runtime, "SELECT sum(departed) AS departed FROM tallies")
    assert tallies[0]["departed"] == 1


async def test_a_running_task_is_asked_to_stop(runtime: Runtime) -> None:
    (task_id,) = await submitted(runtime)
    (mine,) = await claimed(runtime, [task_id])

    first = await cancel_task(runtime, ACME, task_id)
    again = await cancel_task(runtime, ACME, task_id)

    assert (first.requested, first.task.status) == (True, "running")
    assert again.task.cancel_requested_at == first.task.cancel_requested_at
    held = await hold(runtime.database, [(task_id, mine.fence)], renew_seconds=None)
    assert held.cancel == {(task_id, mine.fence)}


async def test_a_cancelled_task_stays_cancelled_and_a_finished_one_refuses(runtime: Runtime) -> None:
    one, other = await submitted(runtime, 2)
    await cancel_task(runtime, ACME, one)
    await finished(runtime, [other])

    again = await cancel_task(runtime, ACME, one)

    assert (again.requested, again.task.status) == (False, "cancelled")
    with pytest.raises(Conflict) as refused:
        await cancel_task(runtime, ACME, other)
    assert refused.value.code == "task_final"


async def test_another_tenants_task_does_not_exist(runtime: Runtime) -> None:
    (task_id,) = await submitted(runtime)
    stranger = ServiceActor("eve", "key_2", "globex")

    for act in (cancel_task, retry_now):
        with pytest.raises(NotFound) as hidden:
            await act(runtime, stranger, task_id)
        with pytest.raises(NotFound) as missing:
            await act(runtime, stranger, "task_01JZ8W4W9GZK4K2GZ7Q2ABCD12")
        assert (hidden.value.code, hidden.value.detail) == (missing.value.code, missing.value.detail)
    assert await status_of(runtime, task_id) == "queued"


async def test_cancel_racing_with_release_claim_and_finish_answers_what_stays(runtime: Runtime) -> None:
    """The status that cancel returned as final is the final status, 200 runs; `running` may end either way."""
    task_ids = await submitted(runtime, 200)

    async def work(batch: list[str]) -> None:
        await finished(runtime, batch)

    async def cancel(task_id: str) -> tuple[str, str]:
        try:
            answer = await cancel_task(runtime, ACME, task_id)
        except Conflict:
            return task_id, "done"
        return task_id, str(answer.task.status)

    work_loops = [work(task_ids[i : i + 10]) for i in range(0, 200, 10)]
    cancels = [cancel(task_id) for task_id in task_ids]
    answers = dict((await asyncio.gather(*cancels, *work_loops))[:200])  # type: ignore[arg-type]

    ended = {row["task_id"]: row["status"] for row in await rows(runtime, "SELECT task_id, status FROM tasks")}
    wrong = {
        task_id: (said, ended[task_id]) for task_id, said in answers.items() if said not in ("running", ended[task_id])
    }
    assert wrong == {}
    assert set(answers.values()) >= {"cancelled"}
    left = await rows(
        runtime,
        "SELECT task_id FROM ready UNION ALL SELECT task_id FROM delayed UNION ALL SELECT task_id FROM flights",
    )
    assert left == []


@pytest.mark.parametrize("move", [Move.FAIL, Move.RETURN, Move.SNOOZE])
async def test_a_task_that_was_to_be_cancelled_never_comes_back(runtime: Runtime, move: Move) -> None:
    to_cancel, neighbour = await submitted(runtime, 2)
    mine = await claimed(runtime, [to_cancel, neighbour])
    await cancel_task(runtime, ACME, to_cancel)

    owned = await settle(
        runtime.database, [Settlement(one.task_id, one.fence, move, "failed", after_seconds=0.0) for one in mine]
    )

    assert owned == {to_cancel, neighbour}
    assert await status_of(runtime, to_cancel) == "cancelled"
    assert await rows(runtime, "SELECT task_id FROM delayed") == [{"task_id": neighbour}]
    assert len(await rows(runtime, "SELECT 1 FROM attempts")) == 2


async def test_retry_now_makes_a_failed_task_due_at_once(runtime: Runtime) -> None:
    (task_id,) = await submitted(runtime)
    (mine,) = await claimed(runtime, [task_id])
    failure = Settlement(
        task_id, mine.fence, Move.FAIL, "failed", error_type="timeout", error_message="slow", after_seconds=3600
    )
    await settle(runtime.database, [failure])
    assert await released(runtime, [task_id]) == {}

    row = await retry_now(runtime, ACME, task_id)

    assert row.status == "failed_retryable"
    assert row.next_attempt_at <= row.updated_at
    assert task_id in await released(runtime, [task_id])


async def test_retry_now_refuses_what_waits_for_no_time(runtime: Runtime) -> None:
    queued, running, done = await submitted(runtime, 3)
    await finished(runtime, [done])
    await claimed(runtime, [running])

    for task_id, code in ((queued, "task_not_delayed"), (running, "task_running"), (done, "task_final")):
        with pytest.raises(Conflict) as refused:
            await retry_now(runtime, ACME, task_id)
        assert refused.value.code == code
