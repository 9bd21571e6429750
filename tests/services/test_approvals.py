"""Approvals from question to decision: whoever comes first, the task goes on or ends, and never stays behind."""

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import pytest

from app.domain.approvals import Approval
from app.domain.errors import OwnershipLost, Rejected
from app.domain.lifecycle import Move
from app.domain.outcome import Settlement
from app.runtime import Runtime
from app.services import approvals, bulk, cancellation, history
from app.services.actors import ServiceActor
from app.services.errors import Conflict, Forbidden, NotFound
from app.services.queries import get_task
from app.store import approvals as store
from app.store import cancellations, dead_letters, open_tasks
from app.store.bulk_actions import BulkKind
from app.store.expiry import expire
from app.store.filters import TaskFilter
from app.store.flights import Claimed
from app.store.settlements import SETTLE, settle
from app.store.task_lists import list_tasks
from tests.support.approvals import ask, asked, over, suspended, suspension
from tests.support.eventually import eventually
from tests.support.work import claimed, rows, status_of, submitted
from workers.sweeps import approvals as sweep
from workers.sweeps import bulk as bulk_sweep
from workers.sweeps import figures as figures_sweep
from workers.sweeps import retention as retention_sweep

ANN = ServiceActor("ann")
SUBMITTER = ServiceActor("tester")


async def approve(runtime: Runtime, approval_id: str, comment: str | None = "fine") -> Mapping[str, Any]:
    """Have somebody say yes."""
    return (await approvals.decide(runtime, ANN, approval_id, approve=True, comment=comment))._mapping


async def deny(runtime: Runtime, approval_id: str, comment: str | None = "too dear") -> Mapping[str, Any]:
    """Have somebody say no."""
    return (await approvals.decide(runtime, ANN, approval_id, approve=False, comment=comment))._mapping


async def bulk_cancel(runtime: Runtime, task_ids: list[str]) -> None:
    """Cancel many in one statement."""
    async with runtime.database.transaction() as connection:
        await cancellations.cancel(connection, task_ids, actor="ann", reason=None)


async def places_of(runtime: Runtime, task_id: str) -> list[str]:
    """Name the places that a task has."""
    found = []
    for place in ("ready", "delayed", "suspended", "flights"):
        found += [place] * len(await rows(runtime, f"SELECT 1 FROM {place} WHERE task_id = :id", id=task_id))
    return found


async def test_a_waiting_task_holds_no_worker_and_comes_back_with_the_yes(runtime: Runtime) -> None:
    task_id, approval_id = await suspended(runtime)
    waiting = await get_task(runtime.database, task_id)
    at_rest = await places_of(runtime, task_id)

    decided = await approve(runtime, approval_id)
    (mine,) = await claimed(runtime, [task_id])
    given = await ask(runtime, mine)

    assert waiting is not None
    assert (waiting.status, waiting.attempts, at_rest) == ("awaiting_approval", 0, ["suspended"])
    assert (decided["state"], decided["decided_by"], decided["comment"]) == ("approved", "ann", "fine")
    assert given == Approval(approval_id, "ann", "fine", decided["decided_at"])
    assert (mine.attempt, mine.dispatch) == (1, 2)


async def test_a_no_rejects_the_task_with_its_reason(runtime: Runtime) -> None:
    ended: list[str] = []
    runtime.ended.append(ended.extend)
    task_id, approval_id = await suspended(runtime)

    await deny(runtime, approval_id)

    row = await get_task(runtime.database, task_id)
    assert row is not None
    assert (row.status, row.error_type, row.error_message) == ("rejected", "approval_denied", "too dear")
    assert row.finished_at is not None
    assert (ended, await places_of(runtime, task_id)) == ([task_id], [])


async def test_a_decision_that_comes_before_the_suspension_is_not_missed(runtime: Runtime) -> None:
    yes, no, late = await claimed(runtime, await submitted(runtime, 3))
    ids = [await asked(runtime, mine) for mine in (yes, no, late)]
    await approve(runtime, ids[0])
    await deny(runtime, ids[1])
    await over(runtime, ids[2])
    await sweep.run_once(runtime)

    settled = await settle(
        runtime.database, [suspension(mine, one) for mine, one in zip((yes, no, late), ids, strict=True)]
    )

    assert len(settled) == 3
    for mine in (yes, no, late):
        assert await places_of(runtime, mine.task_id) == ["delayed"]
        assert await status_of(runtime, mine.task_id) == "queued"
    again = await claimed(runtime, [mine.task_id for mine in (yes, no, late)])
    assert (await ask(runtime, again[0])).decided_by == "ann"
    with pytest.raises(Rejected, match="approval_denied"):
        await ask(runtime, again[1])
    with pytest.raises(Rejected, match="approval_expired"):
        await ask(runtime, again[2])


@pytest.mark.parametrize("yes", [True, False])
async def test_a_suspension_that_meets_a_decision_in_progress_waits_for_it(runtime: Runtime, yes: bool) -> None:
    (mine,) = await claimed(runtime, await submitted(runtime))
    approval_id = await asked(runtime, mine)

    async with runtime.database.transaction() as connection:
        await store.hold(connection, approval_id)
        await store.decide(
            connection, approval_id, state="approved" if yes else "denied", decided_by="ann", comment=None
        )
        assert not await store.resume(connection, approval_id, mine.task_id)
        settling = asyncio.create_task(settle(runtime.database, [suspension(mine, approval_id)]))
        await eventually(lambda: _somebody_waits_for_a_lock(runtime))

    assert await settling == {mine.task_id}
    assert await places_of(runtime, mine.task_id) == ["delayed"]


async def test_a_decision_that_meets_a_suspension_in_progress_sees_its_place(runtime: Runtime) -> None:
    (mine,) = await claimed(runtime, await submitted(runtime))
    approval_id = await asked(runtime, mine)
    one = suspension(mine, approval_id)
    values: dict[str, Any] = {
        "ids": [one.task_id], "fences": [one.fence], "outcomes": [one.outcome], "spents": [False], "results": [],
        "error_types": [], "error_messages": [], "retryables": [], "afters": [], "dead_letter_ids": [],
        "crasheds": [0], "cleareds": [False], "approval_ids": [approval_id],
    }  # fmt: skip

    async with runtime.database.transaction() as connection:
        await connection.execute(SETTLE[Move.SUSPEND], values)
        deciding = asyncio.create_task(approve(runtime, approval_id))
        await eventually(lambda: _somebody_waits_for_a_lock(runtime))

    assert (await deciding)["state"] == "approved"
    assert await places_of(runtime, mine.task_id) == ["delayed"]
    assert await status_of(runtime, mine.task_id) == "queued"


async def _somebody_waits_for_a_lock(runtime: Runtime) -> bool:
    blocked = "cardinality(pg_blocking_pids(pid)) > 0 AND datname = current_database()"
    return bool(await rows(runtime, f"SELECT 1 FROM pg_stat_activity WHERE {blocked}"))


async def test_many_races_of_decision_and_suspension_leave_no_task_behind(runtime: Runtime) -> None:
    mine = await claimed(runtime, await submitted(runtime, 30))
    ids = [await asked(runtime, one) for one in mine]

    await asyncio.gather(
        *(approve(runtime, one) for one in ids),
        *(settle(runtime.database, [suspension(one, id_)]) for one, id_ in zip(mine, ids, strict=True)),
    )

    assert [await places_of(runtime, one.task_id) for one in mine] == [["delayed"]] * 30


async def test_suspending_deciding_cancelling_and_expiring_race_without_a_deadlock_or_a_lost_task(
    runtime: Runtime,
) -> None:
    mine = await claimed(runtime, await submitted(runtime, 60))
    ids = [await asked(runtime, one) for one in mine]
    pairs = list(zip(mine, ids, strict=True))
    settling = [settle(runtime.database, [suspension(one, id_) for one, id_ in pairs[n::6]]) for n in range(6)]
    for approval_id in ids[50:]:
        await over(runtime, approval_id)

    answers = await asyncio.gather(
        *settling,
        *(approve(runtime, one) for one in reversed(ids[:20])),
        *(deny(runtime, one) for one in ids[20:40]),
        *(cancellation.cancel_task(runtime, ANN, one.task_id) for one in mine[10:50:2]),
        *(sweep.run_once(runtime) for _ in range(3)),
        bulk_cancel(runtime, [one.task_id for one in reversed(mine)][:15]),
        return_exceptions=True,
    )

    assert [one for one in answers if isinstance(one, BaseException) and not isinstance(one, Conflict)] == []
    for one in mine:
        status, places = await status_of(runtime, one.task_id), await places_of(runtime, one.task_id)
        at_rest = {"awaiting_approval": ["suspended"], "queued": ["delayed"]}
        assert places == at_rest.get(status, []), (status, places)
    (seen,) = await rows(runtime, "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()")
    assert seen["deadlocks"] == 0


async def test_of_twenty_racing_decisions_exactly_one_counts(runtime: Runtime) -> None:
    task_id, approval_id = await suspended(runtime)
    people = [ServiceActor(f"person-{n}") for n in range(20)]

    answers = await asyncio.gather(
        *(
            approvals.decide(runtime, one, approval_id, approve=n % 2 == 0, comment=None)
            for n, one in enumerate(people)
        ),
        return_exceptions=True,
    )

    refused = [one for one in answers if isinstance(one, Conflict)]
    (decided,) = [one for one in answers if not isinstance(one, BaseException)]
    assert {one.code for one in refused} == {"approval_decided"} and len(refused) == 19
    assert (await status_of(runtime, task_id)) == ("queued" if decided.state == "approved" else "rejected")
    audited = await rows(runtime, "SELECT subject, action FROM audit WHERE target = :id", id=approval_id)
    assert [one["subject"] for one in audited] == [decided.decided_by]
    told = await rows(runtime, "SELECT kind, actor FROM events WHERE task_id = :id ORDER BY event_id", id=task_id)
    assert [(one["kind"], one["actor"]) for one in told] == [
        ("approval_asked", "handler"),
        (f"approval_{decided.state}", decided.decided_by),
    ]


async def test_who_submitted_cannot_decide_and_only_who_has_exactly_that_name(runtime: Runtime) -> None:
    task_id, approval_id = await suspended(runtime)

    for yes in (True, False):
        with pytest.raises(Forbidden) as refused:
            await approvals.decide(runtime, SUBMITTER, approval_id, approve=yes, comment=None)
        assert refused.value.code == "own_task"
    with pytest.raises(NotFound):
        await approvals.decide(runtime, ServiceActor("x", tenant_id="other"), approval_id, approve=True, comment=None)
    assert await status_of(runtime, task_id) == "awaiting_approval"

    other = ServiceActor("Tester")
    assert (await approvals.decide(runtime, other, approval_id, approve=True, comment=None)).decided_by == "Tester"


async def test_an_action_with_other_details_and_a_second_action_are_questions_of_their_own(runtime: Runtime) -> None:
    (task_id,) = await submitted(runtime)
    seen: list[str] = []
    for action, detail in (("refund", {"n": 1}), ("refund", {"n": 2}), ("mail", {"n": 1}), ("mail", None)):
        (mine,) = await claimed(runtime, [task_id])
        for before in (("refund", {"n": 1}), ("refund", {"n": 2}), ("mail", {"n": 1}))[: len(seen)]:
            assert (await ask(runtime, mine, before[0], before[1])).decided_by == "ann"
        seen.append(await asked(runtime, mine, action, detail=detail))
        assert await asked(runtime, mine, action, detail=detail) == seen[-1]
        await settle(runtime.database, [suspension(mine, seen[-1])])
        await approve(runtime, seen[-1])

    (mine,) = await claimed(runtime, [task_id])
    assert mine.attempt == 1
    assert len(set(seen)) == 4


async def test_a_yes_to_another_question_leaves_the_task_waiting(runtime: Runtime) -> None:
    (mine,) = await claimed(runtime, await submitted(runtime))
    first = await asked(runtime, mine, "one")
    second = await asked(runtime, mine, "two")
    await settle(runtime.database, [suspension(mine, first)])

    await approve(runtime, second)
    assert await places_of(runtime, mine.task_id) == ["suspended"]

    await approve(runtime, first)
    assert await places_of(runtime, mine.task_id) == ["delayed"]


async def test_a_late_attempt_asks_nothing_and_suspends_nothing(runtime: Runtime) -> None:
    (task_id,) = await submitted(runtime)
    (old,) = await claimed(runtime, [task_id])
    await settle(runtime.database, [Settlement(task_id, old.fence, Move.RETURN, "returned", spent=False)])
    (new,) = await claimed(runtime, [task_id])

    with pytest.raises(OwnershipLost):
        await ask(runtime, old)
    approval_id = await asked(runtime, new)

    assert await settle(runtime.database, [suspension(old, approval_id)]) == set()
    assert await status_of(runtime, task_id) == "running"


async def test_an_approval_that_nobody_decides_expires_and_rejects_its_task(runtime: Runtime) -> None:
    task_id, approval_id = await suspended(runtime)
    kept, _ = await suspended(runtime)
    await over(runtime, approval_id)

    with pytest.raises(Conflict) as refused:
        await approve(runtime, approval_id)
    expired = await sweep.run_once(runtime)

    assert refused.value.code == "approval_expired"
    assert (expired, await sweep.run_once(runtime)) == (1, 0)
    row = await get_task(runtime.database, task_id)
    assert row is not None
    assert (row.status, row.error_type) == ("rejected", "approval_expired")
    assert await status_of(runtime, kept) == "awaiting_approval"


async def test_cancel_and_expiry_take_a_waiting_task_and_withdraw_its_question(runtime: Runtime) -> None:
    first, asked_first = await suspended(runtime)
    second, asked_second = await suspended(runtime)
    await rows(
        runtime,
        "UPDATE suspended SET valid_until = clock_timestamp() - interval '1 second' WHERE task_id = :id",
        id=second,
    )

    answer = await cancellation.cancel_task(runtime, ANN, first)
    await expire(runtime.database, 10)

    assert (answer.task.status, answer.requested) == ("cancelled", False)
    assert await status_of(runtime, second) == "expired"
    for _ in range(2):
        for approval_id in (asked_first, asked_second):
            with pytest.raises(Conflict) as refused:
                await approve(runtime, approval_id)
            assert refused.value.code == "approval_withdrawn"
        assert (await approvals.get(runtime, ANN, asked_first)).state == "withdrawn"
        await retention_sweep.run_once(runtime)
    stored = await rows(runtime, "SELECT DISTINCT state FROM approvals")
    assert stored == [{"state": "withdrawn"}]


async def test_a_cancel_that_was_asked_for_while_it_ran_wins_over_the_suspension(runtime: Runtime) -> None:
    (task_id,) = await submitted(runtime)
    (mine,) = await claimed(runtime, [task_id])
    approval_id = await asked(runtime, mine)
    assert (await cancellation.cancel_task(runtime, ANN, task_id)).requested

    await settle(runtime.database, [suspension(mine, approval_id)])

    assert await status_of(runtime, task_id) == "cancelled"
    assert await places_of(runtime, task_id) == []


async def test_a_waiting_task_is_counted_listed_explained_and_not_hurried(runtime: Runtime) -> None:
    task_id, approval_id = await suspended(runtime)
    await submitted(runtime)

    async with runtime.database.transaction() as connection:
        count = await open_tasks.count(connection, "acme", at_most=10)
        listed = await list_tasks(
            connection, TaskFilter(status=("awaiting_approval",)), before=None, limit=10, with_result=False
        )
    task = await get_task(runtime.database, task_id)
    assert task is not None
    last = history.compose(task, await history.read_story(runtime, task))[-1]
    with pytest.raises(Conflict) as refused:
        await cancellation.retry_now(runtime, ANN, task_id)

    assert count == 2
    assert [row.task_id for row in listed] == [task_id]
    assert (last.kind, last.reason) == ("waiting", "approval")
    assert json.loads(last.detail or "")["approval_id"] == approval_id
    assert (refused.value.code, "approval" in refused.value.detail) == ("task_not_delayed", True)


async def test_a_bulk_cancel_takes_what_waits_for_a_person_too(runtime: Runtime) -> None:
    task_id, _ = await suspended(runtime)
    (other,) = await submitted(runtime)

    found = TaskFilter(status=("awaiting_approval",))
    action = await bulk.create(runtime, ANN, BulkKind.CANCEL, found, "cleaning up")
    await bulk_sweep.run_once(runtime)

    assert (action.matched, await status_of(runtime, task_id)) == (1, "cancelled")
    assert await status_of(runtime, other) == "queued"


async def test_a_class_with_a_target_is_due_by_it_and_one_without_when_it_expires(runtime: Runtime) -> None:
    common, brief = await claimed(runtime, await submitted(runtime, 2))
    first = await asked(runtime, common, expires_seconds=7 * 86400)
    second = await asked(runtime, brief, expires_seconds=60)
    within = runtime.policy.current.by_name["common"].approve_within_seconds

    by_target, by_expiry = [await approvals.get(runtime, ANN, one) for one in (first, second)]

    assert (by_target.due_at - by_target.asked_at).total_seconds() == within
    assert by_expiry.due_at == by_expiry.expires_at


async def test_class_validity_and_place_in_the_order_outlast_the_wait(runtime: Runtime) -> None:
    (task_id,) = await submitted(runtime)
    select = "SELECT priority_class, order_at, valid_until, submitted_at, cost, traceparent FROM "
    before = await rows(runtime, select + "ready")
    (mine,) = await claimed(runtime, [task_id])
    approval_id = await asked(runtime, mine)
    await settle(runtime.database, [suspension(mine, approval_id)])
    await approve(runtime, approval_id)

    assert await rows(runtime, select + "delayed") == before


async def test_a_reprocessed_task_asks_again_what_nobody_had_decided_and_keeps_a_yes(runtime: Runtime) -> None:
    (task_id,) = await submitted(runtime)
    (mine,) = await claimed(runtime, [task_id])
    yes, open_ = await asked(runtime, mine, "yes"), await asked(runtime, mine, "open")
    await approve(runtime, yes)
    dead = Settlement(
        task_id, mine.fence, Move.DEAD_LETTER, "failed", error_type="x", error_message="x",
        dead_letter_id="dead_01JZ8W4W9GZK4K2GZ7Q2ABCD12",
    )  # fmt: skip
    await settle(runtime.database, [dead])
    await retention_sweep.run_once(runtime)
    async with runtime.database.transaction() as connection:
        await dead_letters.reprocess(
            connection, [str(dead.dead_letter_id)], terms=dead_letters.Terms({}, {}), actor="ann", reason="again"
        )

    (again,) = await claimed(runtime, [task_id])

    assert (await ask(runtime, again, "yes")).approval_id == yes
    assert await asked(runtime, again, "open") == open_
    assert (await approvals.get(runtime, ANN, open_)).state == "pending"


async def test_retention_keeps_what_waits_and_takes_the_approvals_of_what_goes(runtime: Runtime) -> None:
    waiting, _ = await suspended(runtime)
    ended, denied = await suspended(runtime)
    await deny(runtime, denied)
    # Ids are ordered by time: what is as old as these has an id of that time.
    for task_id in (waiting, ended):
        old = f"task_00{task_id[7:]}"
        for table in ("tasks", "suspended", "approvals", "events", "attempts"):
            await rows(runtime, f"UPDATE {table} SET task_id = :old WHERE task_id = :id", old=old, id=task_id)
    await rows(runtime, "UPDATE tasks SET finished_at = finished_at - interval '99 days', submitted_at = '2020-01-01Z'")

    await retention_sweep.run_once(runtime)

    assert [row["status"] for row in await rows(runtime, "SELECT status FROM tasks")] == ["awaiting_approval"]
    assert [row["state"] for row in await rows(runtime, "SELECT state FROM approvals")] == ["pending"]


async def test_the_metrics_tell_who_waits_for_a_person_and_what_was_decided(runtime: Runtime) -> None:
    _, first = await suspended(runtime)
    _, second = await suspended(runtime)
    _, third = await suspended(runtime)
    await approve(runtime, first)
    await rows(runtime, "UPDATE approvals SET due_at = asked_at WHERE approval_id = :id", id=second)

    await figures_sweep.run_once(runtime)

    page = runtime.metrics.render().decode()
    assert 'despacho_approvals_waiting{priority_class="common"} 2.0' in page
    assert 'despacho_approvals_waiting{priority_class="critical"} 0.0' in page
    assert 'despacho_approvals_overdue{priority_class="common"} 1.0' in page
    assert 'despacho_approvals_asked_total{priority_class="common"} 3.0' in page
    assert 'despacho_approvals_decided_total{outcome="approved",priority_class="common"} 1.0' in page
    assert third not in page


async def test_a_yes_allows_its_effect_and_only_in_its_task(runtime: Runtime) -> None:
    mine, other = await claimed(runtime, await submitted(runtime, 2))
    one = await asked(runtime, mine, "delete", detail={"key": "k1", "what": "branch"})
    unasked = await asked(runtime, mine, "mail")

    async def allowed(task: Claimed, effect_type: str, key: str) -> bool:
        return await approvals.approved(runtime, task_id=task.task_id, effect_type=effect_type, key=key)

    assert not await allowed(mine, "delete", "k1")
    await approve(runtime, one)
    await deny(runtime, unasked)

    assert await allowed(mine, "delete", "k1")
    assert not await allowed(mine, "delete", "k2")
    assert not await allowed(mine, "mail", "k1")
    assert not await allowed(other, "delete", "k1")


async def test_a_released_task_that_asks_in_two_threads_at_once_makes_one_approval(runtime: Runtime) -> None:
    (mine,) = await claimed(runtime, await submitted(runtime))

    ids = await asyncio.gather(*(asked(runtime, mine, detail={"n": 1}) for _ in range(10)))

    assert len(set(ids)) == 1
    assert len(await rows(runtime, "SELECT 1 FROM events WHERE kind = 'approval_asked'")) == 1
