"""Bulk actions end, are paced, survive crashes, and touch only what they matched."""

import pytest

from app.runtime import Runtime
from app.services import bulk
from app.services.actors import ServiceActor
from app.services.errors import Conflict, Invalid, NotFound
from app.store.bulk_actions import BulkKind
from app.store.database import DatabaseUnavailable
from app.store.filters import DeadLetterFilter, TaskFilter
from tests.support.work import claimed, dead, finished, rows, status_of, submitted
from workers.sweeps.bulk import run_once

ACME = ServiceActor("ana", "key_1", "acme")
PLATFORM = ServiceActor("root")
ALL = DeadLetterFilter()


async def until_done(runtime: Runtime, action_id: str) -> dict[str, object]:
    """Make turns, pauses passed over, until the action has ended; returns its row."""
    for _ in range(100):
        await run_once(runtime)
        await rows(runtime, "UPDATE bulk_actions SET next_step_at = clock_timestamp()")
        row = await bulk.get(runtime, PLATFORM, action_id)
        if row.state != "running":
            return dict(row._mapping)
    raise AssertionError("the bulk action does not end")


async def test_cancel_by_filter_touches_what_it_matched_and_no_other_tenant(runtime: Runtime) -> None:
    waiting = await submitted(runtime, 3, group="old")
    (running,) = await submitted(runtime, group="old")
    (kept,) = await submitted(runtime, group="new")
    (foreign,) = await submitted(runtime, tenant_id="globex", group="old")
    await claimed(runtime, [running])

    action = await bulk.create(runtime, ACME, BulkKind.CANCEL, TaskFilter(group=("old",)), "clean up")
    (later,) = await submitted(runtime, group="old")
    row = await until_done(runtime, action.bulk_action_id)

    assert (row["state"], row["matched"], row["done"], row["failed"]) == ("done", 4, 4, 0)
    assert {await status_of(runtime, task_id) for task_id in waiting} == {"cancelled"}
    assert {await status_of(runtime, task_id) for task_id in (kept, foreign, later)} == {"queued"}
    assert (await rows(runtime, "SELECT cancel_requested_at IS NOT NULL AS asked FROM flights")) == [{"asked": True}]


async def test_an_empty_filter_has_to_be_meant(runtime: Runtime) -> None:
    for kind, found in ((BulkKind.PURGE, ALL), (BulkKind.CANCEL, TaskFilter()), (BulkKind.REPROCESS, ALL)):
        with pytest.raises(Invalid) as refused:
            await bulk.create(runtime, ACME, kind, found, "all of it")
        assert refused.value.code == "filter_required"
    with pytest.raises(Invalid):
        await bulk.create(runtime, ACME, BulkKind.CANCEL, TaskFilter(tenant_id=("globex",)), "theirs")


async def test_a_replay_is_paced_and_limited(runtime: Runtime) -> None:
    task_ids = await submitted(runtime, 10)
    await dead(runtime, task_ids)
    timeouts = DeadLetterFilter(error_type=("timeout",))
    assert await bulk.matched(runtime, ACME, BulkKind.REPROCESS, timeouts) == 10

    action = await bulk.create(runtime, ACME, BulkKind.REPROCESS, timeouts, "provider back", limit=7, rate_per_second=3)
    first = await run_once(runtime)
    at_once = await run_once(runtime)
    row = await until_done(runtime, action.bulk_action_id)

    assert (first, at_once) == (3, 0)
    assert (row["matched"], row["done"]) == (7, 7)
    assert len(await rows(runtime, "SELECT 1 FROM dead_letters")) == 3
    assert len(await rows(runtime, "SELECT 1 FROM delayed")) == 7


async def test_a_purge_removes_the_tasks_and_keeps_the_audit(runtime: Runtime) -> None:
    task_ids = await submitted(runtime, 3)
    (kept,) = await submitted(runtime)
    await dead(runtime, task_ids)
    await finished(runtime, [kept])

    action = await bulk.create(runtime, ACME, BulkKind.PURGE, ALL, "personal data", everything=True)
    row = await until_done(runtime, action.bulk_action_id)

    assert (row["done"], row["failed"]) == (3, 0)
    left = await rows(runtime, "SELECT task_id FROM tasks")
    assert left == [{"task_id": kept}]
    assert await rows(runtime, "SELECT DISTINCT task_id FROM attempts") == left
    audited = await rows(runtime, "SELECT action, target, reason FROM audit")
    assert audited == [{"action": "bulk.purge", "target": action.bulk_action_id, "reason": "personal data"}]


async def test_an_aborted_action_stops_and_stays_stopped(runtime: Runtime) -> None:
    task_ids = await submitted(runtime, 6)
    await dead(runtime, task_ids)
    action = await bulk.create(runtime, ACME, BulkKind.REPROCESS, ALL, "r", everything=True, rate_per_second=2)
    await run_once(runtime)

    aborted = await bulk.abort(runtime, ACME, action.bulk_action_id)
    await rows(runtime, "UPDATE bulk_actions SET next_step_at = clock_timestamp()")
    await run_once(runtime)

    assert (aborted.state, aborted.done) == ("aborted", 2)
    assert len(await rows(runtime, "SELECT 1 FROM dead_letters")) == 4
    with pytest.raises(NotFound):
        await bulk.abort(runtime, ServiceActor("eve", "key_2", "globex"), action.bulk_action_id)
    empty = await bulk.create(runtime, ACME, BulkKind.PURGE, DeadLetterFilter(type=("none",)), "r")
    assert empty.state == "done"
    with pytest.raises(Conflict):
        await bulk.abort(runtime, ACME, empty.bulk_action_id)


async def test_a_crash_in_the_middle_of_a_step_repeats_and_skips_nothing(runtime: Runtime) -> None:
    task_ids = await submitted(runtime, 9)
    await dead(runtime, task_ids)
    action = await bulk.create(runtime, ACME, BulkKind.REPROCESS, ALL, "r", everything=True, rate_per_second=4)
    await run_once(runtime)
    await rows(
        runtime,
        "CREATE FUNCTION stop() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
        "RAISE EXCEPTION 'out of order' USING ERRCODE = '57P01'; END $$",
    )
    await rows(
        runtime, "CREATE TRIGGER stop BEFORE UPDATE OF cursor ON bulk_actions FOR EACH ROW EXECUTE FUNCTION stop()"
    )
    await rows(runtime, "ALTER TABLE bulk_actions DISABLE TRIGGER stop")
    await rows(runtime, "UPDATE bulk_actions SET next_step_at = clock_timestamp()")
    await rows(runtime, "ALTER TABLE bulk_actions ENABLE TRIGGER stop")

    with pytest.raises(DatabaseUnavailable):
        await run_once(runtime)
    assert len(await rows(runtime, "SELECT 1 FROM dead_letters")) == 5
    await rows(runtime, "DROP TRIGGER stop ON bulk_actions")
    row = await until_done(runtime, action.bulk_action_id)

    assert (row["done"], row["failed"]) == (9, 0)
    dispatches = await rows(runtime, "SELECT DISTINCT dispatch FROM delayed")
    assert dispatches == [{"dispatch": 2}]


async def test_one_item_that_cannot_be_touched_is_passed_over_and_named(runtime: Runtime) -> None:
    task_ids = await submitted(runtime, 5)
    letters = await dead(runtime, task_ids)
    # A row that is already there makes this one task's return impossible.
    await rows(
        runtime,
        "INSERT INTO delayed SELECT task_id, priority_class, tenant_id, type, '', submitted_at, submitted_at, NULL, 1, "
        "1, false, 1, 1, submitted_at, NULL, NULL, clock_timestamp(), 'in the way' FROM tasks WHERE task_id = :id",
        id=task_ids[2],
    )

    action = await bulk.create(runtime, ACME, BulkKind.REPROCESS, ALL, "r", everything=True)
    row = await until_done(runtime, action.bulk_action_id)

    assert (row["state"], row["done"], row["failed"]) == ("done", 4, 1)
    assert letters[task_ids[2]] in str(row["errors"])
