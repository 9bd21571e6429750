"""A handler that waits for a person holds nothing meanwhile, and goes on from there when somebody has decided."""

import asyncio
import json

import pytest

from app.services import approvals
from app.services.actors import ServiceActor
from tests.support.eventually import eventually
from tests.support.work import rows
from tests.support.world import World

ANN = ServiceActor("ann")
TYPES = ("asks", "asks_thread", "asks_process")


async def asked(world: World, task_id: str) -> list[str]:
    """Wait until a task waits for a person; returns the ids of its open approvals."""

    async def waits() -> list[str] | None:
        row = await world.task(task_id)
        open_ = await rows(
            world.runtime,
            "SELECT approval_id FROM approvals WHERE task_id = :id AND state = 'pending' ORDER BY approval_id",
            id=task_id,
        )
        assert row["status"] == "awaiting_approval", (row["status"], row["error_type"], row["error_message"])
        return [one["approval_id"] for one in open_] or None

    found = await eventually(waits, within_seconds=20, every_seconds=0.05)
    assert found is not None
    return found


async def decide(world: World, approval_id: str, *, approve: bool = True, comment: str | None = "go") -> None:
    """Have somebody decide."""
    await approvals.decide(world.runtime, ANN, approval_id, approve=approve, comment=comment)


async def test_what_was_done_before_the_gate_is_done_once_and_what_comes_after_it_too(world: World) -> None:
    ids = [(await world.submit(name, first=n))[0] for n, name in enumerate(TYPES)]
    open_ = [(await asked(world, task_id))[0] for task_id in ids]
    await world.at_rest()
    assert [world.marks("second", task_id) for task_id in ids] == [[], [], []]
    assert await world.ended(await world.submit("quick", 8, first=10))

    await asyncio.gather(*(decide(world, one) for one in open_))
    ended = await world.ended(ids)

    for task_id, row in zip(ids, ended, strict=True):
        assert (row["status"], row["attempts"]) == ("done", 1), row["error_message"]
        assert json.loads(row["result"]) | {"at": None} == {"by": "ann", "comment": "go", "at": None}
        assert (len(world.marks("first", task_id)), len(world.marks("second", task_id))) == (1, 1)
        assert len(world.marks("starts", task_id)) == 2
        outcomes = [(one["outcome"], one["spent"]) for one in await world.attempts(task_id)]
        assert outcomes == [("suspended", False), ("done", True)]
    await world.at_rest()


async def test_a_no_an_expiry_and_a_question_that_cannot_be_asked_end_the_task(world: World) -> None:
    denied = [(await world.submit(name, first=n))[0] for n, name in enumerate(TYPES)]
    broken = [(await world.submit(name, first=10 + n, kind="nul"))[0] for n, name in enumerate(TYPES)]
    (late,) = await world.submit("asks", first=20, kind="brief")

    for task_id in denied:
        await decide(world, (await asked(world, task_id))[0], approve=False, comment="too dear")

    for row in await world.ended(denied):
        assert (row["status"], row["error_type"], row["error_message"]) == ("rejected", "approval_denied", "too dear")
        assert world.marks("second", row["task_id"]) == []
    for row in await world.ended(broken):
        assert (row["status"], row["error_type"], row["attempts"]) == ("dead_lettered", "invalid_approval", 1)
        assert "holds NUL" in row["error_message"]
    (row,) = await world.ended([late])
    assert (row["status"], row["error_type"]) == ("rejected", "approval_expired")
    await world.at_rest()


@pytest.mark.parametrize(("kind", "result"), [("loop", ["0", "1", "2"]), ("together", None), ("swallows", "0")])
async def test_a_handler_may_ask_in_a_loop_in_parallel_and_behind_its_own_except(
    world: World, kind: str, result: object
) -> None:
    (task_id,) = await world.submit("asks", kind=kind)
    decided: list[str] = []

    async def done() -> bool:
        """Decide what is open; how many of those that are asked together are open at once is chance."""
        row = await world.task(task_id)
        if row["status"] == "awaiting_approval":
            for approval_id in await asked(world, task_id):
                await decide(world, approval_id, comment=str(len(decided)))
                decided.append(approval_id)
        return bool(row["finished_at"])

    await eventually(done, within_seconds=20, every_seconds=0.05)

    row = await world.task(task_id)
    assert (row["status"], row["attempts"]) == ("done", 1), row["error_message"]
    found = json.loads(row["result"])
    assert found == result if result is not None else sorted(found) == ["0", "1"]


async def test_a_destructive_effect_needs_a_yes_to_itself_and_happens_once_as_does_the_one_before_the_gate(
    world: World,
) -> None:
    kinds = ("", "other", "unasked")
    asked_for, other, unasked = [(await world.submit("destroys", first=n, kind=k))[0] for n, k in enumerate(kinds)]
    for task_id in (asked_for, other):
        await decide(world, (await asked(world, task_id))[0])

    done, *refused = await world.ended([asked_for, other, unasked])

    assert (done["status"], done["attempts"]) == ("done", 1), done["error_message"]
    assert json.loads(done["result"]) == ["created", "deleted"]
    assert (len(world.marks("created", asked_for)), len(world.marks("deleted", asked_for))) == (1, 1)
    for row in refused:
        assert (row["status"], row["error_type"]) == ("dead_lettered", "approval_required")
        assert (len(world.marks("created", row["task_id"])), world.marks("deleted", row["task_id"])) == (1, [])
