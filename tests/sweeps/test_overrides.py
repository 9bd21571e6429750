"""Classes given by hand: the place moves with the class wherever the task is, and the derived class comes back."""

import asyncio
from datetime import datetime, timedelta
from typing import Any

import pytest

from app.domain.lifecycle import Move
from app.domain.outcome import Settlement
from app.runtime import Runtime
from app.services.actors import ServiceActor
from app.services.errors import Conflict, Invalid
from app.services.overrides import OverrideOrder, reclassify
from app.store import flights
from app.store.settlements import settle
from tests.support.approvals import suspended
from tests.support.work import claimed, dead, finished, released, rows, status_of, submitted
from workers.sweeps.overrides import route_once, run_once

ANN = ServiceActor("ann")


async def database_now(runtime: Runtime) -> datetime:
    """Read the database's clock."""
    found: datetime = (await rows(runtime, "SELECT clock_timestamp() AS now"))[0]["now"]
    return found


async def given(runtime: Runtime, task_id: str, priority_class: str = "critical", minutes: float = 10) -> None:
    """Give a task a class."""
    order = OverrideOrder(priority_class, "the boss waits", await database_now(runtime) + timedelta(minutes=minutes))
    await reclassify(runtime, ANN, task_id, order)


async def over(runtime: Runtime) -> None:
    """Let the time of every override be over, and have the sweep look."""
    await rows(runtime, "UPDATE overrides SET expires_at = clock_timestamp() - interval '1 second'")
    await run_once(runtime)


async def placed(runtime: Runtime, task_id: str) -> tuple[str, str]:
    """Find where a task is, and in which class."""
    for place in ("ready", "delayed", "suspended", "flights"):
        for row in await rows(runtime, f"SELECT priority_class FROM {place} WHERE task_id = :id", id=task_id):
            return place, row["priority_class"]
    return "nowhere", ""


async def classed(runtime: Runtime, task_id: str) -> tuple[str, str]:
    """Read the class of a task and its reason code."""
    (row,) = await rows(runtime, "SELECT priority_class, reason_code FROM tasks WHERE task_id = :id", id=task_id)
    return row["priority_class"], row["reason_code"]


async def lane_of(runtime: Runtime, task_id: str) -> list[Any]:
    """Read the class of the lane that a waiting task lies in, and how long after its submission its turn is."""
    found = await rows(
        runtime,
        "SELECT l.priority_class, EXTRACT(EPOCH FROM r.order_at - r.submitted_at)::int AS seconds "
        "FROM ready r JOIN lanes l ON l.lane_id = r.lane_id WHERE r.task_id = :id",
        id=task_id,
    )
    return [(row["priority_class"], row["seconds"]) for row in found]


async def test_a_waiting_task_moves_to_the_other_lane_and_back_when_the_time_is_over(runtime: Runtime) -> None:
    (task_id,) = await submitted(runtime)

    await given(runtime, task_id)

    assert await lane_of(runtime, task_id) == [("critical", 5)]
    assert await classed(runtime, task_id) == ("critical", "OVERRIDE")
    assert await run_once(runtime) == 0
    await over(runtime)
    assert await lane_of(runtime, task_id) == [("common", 900)]
    assert await classed(runtime, task_id) == ("common", "DEFAULT")
    told = await rows(runtime, "SELECT kind, reason, actor FROM events ORDER BY event_id")
    assert [tuple(one.values()) for one in told] == [
        ("reclassified", "the boss waits", "ann"), ("class_restored", "override_expired", None)
    ]  # fmt: skip
    assert (await rows(runtime, "SELECT ended_why FROM overrides"))[0]["ended_why"] == "expired"


async def test_what_has_a_time_of_its_own_keeps_its_turn(runtime: Runtime) -> None:
    due_at = await database_now(runtime) + timedelta(hours=5)
    (task_id,) = await submitted(runtime, due_at=due_at)

    await given(runtime, task_id)

    (row,) = await rows(runtime, "SELECT order_at FROM ready")
    assert row["order_at"] == due_at


async def test_a_delayed_and_a_suspended_task_move_where_they_wait(runtime: Runtime) -> None:
    (later,) = await submitted(runtime, not_before=await database_now(runtime) + timedelta(hours=1))
    asleep, approval_id = await suspended(runtime)

    await given(runtime, later)
    await given(runtime, asleep)

    assert await placed(runtime, later) == ("delayed", "critical")
    assert await placed(runtime, asleep) == ("suspended", "critical")
    (asked,) = await rows(runtime, "SELECT priority_class FROM approvals WHERE approval_id = :id", id=approval_id)
    assert asked["priority_class"] == "critical"


async def test_a_released_and_a_running_task_keep_their_seat_and_come_back_in_the_other_class(runtime: Runtime) -> None:
    flying, running = await submitted(runtime, 2)
    dispatch = (await released(runtime, [flying]))[flying]
    (mine,) = await claimed(runtime, [running])

    await given(runtime, flying)
    await given(runtime, running)

    assert await placed(runtime, flying) == ("flights", "common")
    assert await classed(runtime, flying) == ("critical", "OVERRIDE")
    await flights.hand_back(runtime.database, [(flying, dispatch)], worker_id="w", why="test")
    failed = Settlement(running, mine.fence, Move.FAIL, "failed", error_type="timeout", error_retryable=True)
    await settle(runtime.database, [failed])
    assert await placed(runtime, flying) == ("delayed", "critical")
    assert await placed(runtime, running) == ("delayed", "critical")


async def test_an_override_that_ends_in_flight_leaves_nothing_for_the_return(runtime: Runtime) -> None:
    (task_id,) = await submitted(runtime)
    (mine,) = await claimed(runtime, [task_id])
    await given(runtime, task_id)

    await over(runtime)
    await settle(runtime.database, [Settlement(task_id, mine.fence, Move.RETURN, "returned", spent=False)])

    assert await placed(runtime, task_id) == ("delayed", "common")
    assert await classed(runtime, task_id) == ("common", "DEFAULT")


async def test_a_second_override_takes_the_place_of_the_first_and_the_rules_class_returns(runtime: Runtime) -> None:
    (task_id,) = await submitted(runtime)
    await given(runtime, task_id)

    await given(runtime, task_id, "deferrable")

    assert await lane_of(runtime, task_id) == [("deferrable", 86400)]
    found = await rows(runtime, "SELECT from_class, derived_class, ended_why FROM overrides ORDER BY override_id")
    assert [tuple(one.values()) for one in found] == [
        ("common", "common", "replaced"), ("critical", "common", None)
    ]  # fmt: skip
    await over(runtime)
    assert await lane_of(runtime, task_id) == [("common", 900)]


async def test_a_dead_letter_gets_its_class_back_and_an_ended_task_keeps_the_one_it_ran_in(runtime: Runtime) -> None:
    lost, done = await submitted(runtime, 2)
    await given(runtime, lost)
    await given(runtime, done)
    await dead(runtime, [lost])
    await finished(runtime, [done])

    await over(runtime)

    assert await classed(runtime, lost) == ("common", "DEFAULT")
    assert await classed(runtime, done) == ("critical", "OVERRIDE")
    with pytest.raises(Conflict, match="task_final"):
        await given(runtime, done)


@pytest.mark.parametrize("minutes", [-1, 24 * 60 + 1])
async def test_an_end_in_the_past_or_beyond_the_policys_maximum_is_refused(runtime: Runtime, minutes: float) -> None:
    (task_id,) = await submitted(runtime)

    with pytest.raises(Invalid):
        await given(runtime, task_id, minutes=minutes)

    assert await classed(runtime, task_id) == ("common", "DEFAULT")


async def test_a_release_and_an_override_at_once_leave_the_task_in_one_place(runtime: Runtime) -> None:
    ids = await submitted(runtime, 40)

    gone, *_ = await asyncio.gather(released(runtime, ids), *(given(runtime, task_id) for task_id in ids))

    assert set(gone) == set(ids)
    counted = await rows(
        runtime, "SELECT (SELECT count(*) FROM ready) AS ready, (SELECT count(*) FROM flights) AS flights"
    )
    assert counted == [{"ready": 0, "flights": 40}]
    odd = await rows(runtime, "SELECT task_id FROM flights WHERE COALESCE(next_class, priority_class) <> 'critical'")
    assert odd == []
    assert {await status_of(runtime, task_id) for task_id in ids} == {"queued"}


async def test_work_in_a_class_that_left_the_policy_goes_to_the_default_class(runtime: Runtime) -> None:
    here, later = await submitted(runtime, 2)
    await rows(runtime, "UPDATE lanes SET priority_class = 'gone'")
    for place in ("ready", "tasks"):
        await rows(runtime, f"UPDATE {place} SET priority_class = 'gone'")

    moved = await route_once(runtime)

    assert moved == 2
    assert await lane_of(runtime, here) != []
    assert (await placed(runtime, later)) == ("ready", "common")
    assert await classed(runtime, later) == ("common", "CLASS_GONE")
    assert await route_once(runtime) == 0
