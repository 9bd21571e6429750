"""Batches: one poison item never fails its neighbours, and an answer that got lost doubles nothing."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy.engine import Row
from sqlalchemy.sql.elements import TextClause

from app.broker.base import TaskMessage
from app.runtime import Runtime
from app.store.database import DatabaseUnavailable
from app.store.flights import CLAIM
from app.store.settlements import SETTLE
from tests.support.eventually import eventually
from tests.support.rabbitmq import RabbitNode
from tests.support.work import rows
from tests.support.world import World, a_world


class LosesAnswers:
    """Executes statements of a kind, and loses the first few answers: the commit happened, nobody heard of it."""

    def __init__(self, runtime: Runtime, statements: Sequence[TextClause], times: int = 2) -> None:
        self._execute = runtime.database.execute_hot
        self._statements = statements
        self.left = times
        runtime.database.execute_hot = self  # type: ignore[method-assign, assignment]

    async def __call__(
        self, statement: TextClause, values: Mapping[str, Any], *, retry_for_seconds: float | None = None
    ) -> Sequence[Row[Any]]:
        answer = await self._execute(statement, values, retry_for_seconds=retry_for_seconds)
        if statement in self._statements and self.left > 0:
            self.left -= 1
            raise DatabaseUnavailable("the answer was lost")
        return answer


async def test_a_claim_whose_answer_was_lost_is_found_again_and_run_once(world: World) -> None:
    lossy = LosesAnswers(world.runtime, [CLAIM])

    ids = await world.submit("quick", 20)
    ended = await world.ended(ids)

    assert lossy.left == 0
    assert {(row["status"], row["attempts"]) for row in ended} == {("done", 1)}
    assert len(world.marks("starts")) == 20
    await world.at_rest()


async def test_a_settlement_whose_answer_was_lost_is_written_once(world: World) -> None:
    lossy = LosesAnswers(world.runtime, list(SETTLE.values()), times=4)

    ids = [*await world.submit("quick", 10), *await world.submit("flaky", 3), *await world.submit("hopeless", 3)]
    ended = await world.ended(ids)

    assert lossy.left == 0
    assert [row["status"] for row in ended] == ["done"] * 13 + ["dead_lettered"] * 3
    assert [row["attempts"] for row in ended] == [1] * 10 + [3] * 6
    assert len(await rows(world.runtime, "SELECT * FROM attempts WHERE outcome = 'done'")) == 13
    await world.at_rest()


async def test_a_message_that_comes_again_while_its_task_runs_starts_nothing_even_when_answers_are_lost(
    world: World,
) -> None:
    (task_id,) = await world.submit("hold")
    await world.running([task_id])
    (flight,) = await rows(world.runtime, "SELECT dispatch FROM flights")
    lossy = LosesAnswers(world.runtime, [CLAIM], times=1)

    again = TaskMessage(task_id, "hold", "acme", 1, flight["dispatch"], "2026-11-30T00:00:00Z")
    await world.runtime.broker.publish([("common", again)] * 3)
    await eventually(lambda: lossy.left == 0)
    (after,) = await world.ended(await world.submit("quick"))
    world.go()
    (row,) = await world.ended([task_id])

    assert after["status"] == "done"
    assert (row["status"], row["attempts"], len(world.marks("starts", task_id))) == ("done", 1, 1)
    assert len(world.marks("effects", task_id)) == 1


async def test_a_message_that_no_row_can_match_is_passed_over_and_those_behind_it_run(world: World) -> None:
    impossible = TaskMessage("task_x", "quick", "acme", 1, 2**40, "2026-11-30T00:00:00Z")
    await world.runtime.broker.publish([("common", impossible)])

    ended = await world.ended(await world.submit("quick", 5), within_seconds=5)

    assert {row["status"] for row in ended} == {"done"}

    async def drained() -> bool:
        return (await world.runtime.broker.depths(["common"]))["common"].ready == 0

    await eventually(drained)


async def test_stale_messages_claim_nothing(world: World) -> None:
    (task_id,) = await world.submit("hold")
    await world.running([task_id])
    (flight,) = await rows(world.runtime, "SELECT dispatch FROM flights")
    wrong = [
        TaskMessage(task_id, "hold", "acme", 1, flight["dispatch"] + 1, "2026-11-30T00:00:00Z"),
        TaskMessage(task_id, "hold", "beta", 1, flight["dispatch"], "2026-11-30T00:00:00Z"),
        TaskMessage(task_id, "quick", "acme", 1, flight["dispatch"], "2026-11-30T00:00:00Z"),
        TaskMessage("task_nobody", "quick", "acme", 1, 1, "2026-11-30T00:00:00Z"),
    ]

    await world.runtime.broker.publish([("common", message) for message in wrong])
    await world.ended(await world.submit("quick"))
    world.go()
    await world.ended([task_id])

    assert len(world.marks("starts", task_id)) == 1


async def test_what_a_full_worker_hands_back_runs_on_an_idle_one(database_url: str, rabbit: RabbitNode) -> None:
    async with a_world(database_url, rabbit.url, slots=None) as world:
        # A worker that says it has more room than it has, as one does whose slots have just filled up.
        full, _, _ = await world.work(slots=8)
        full.consumer.slots = 1
        ids = await world.submit("hold")
        await world.running(ids)
        more = await world.submit("quick", 6)
        idle, _, _ = await world.work(slots=8)

        ended = await world.ended(more, within_seconds=10)

        assert {(row["status"], row["attempts"]) for row in ended} == {("done", 1)}
        workers = {one["worker_id"] for task_id in more for one in await world.attempts(task_id)}
        assert workers == {idle.identity.worker_id}


async def test_a_drained_worker_finishes_what_runs_and_gives_back_the_rest(
    database_url: str, rabbit: RabbitNode
) -> None:
    async with a_world(database_url, rabbit.url, slots=None, worker={"drain_grace_seconds": 20.0}) as world:
        _, stop, ending = await world.work(slots=2)
        running = await world.submit("hold", 2)
        await world.running(running)
        waiting = await world.submit("quick", 5)

        stop.set()
        await asyncio.sleep(0)
        world.go()
        await ending

        ended = await world.tasks(running)
        assert {(row["status"], row["attempts"]) for row in ended} == {("done", 1)}
        assert len(world.marks("effects")) == 2
        assert {row["status"] for row in await world.tasks(waiting)} == {"queued"}
        assert len(world.marks("starts")) == 2
        await world.work(slots=2)
        assert {row["attempts"] for row in await world.ended(waiting)} == {1}


async def test_a_drain_that_takes_too_long_returns_the_rest_unspent(database_url: str, rabbit: RabbitNode) -> None:
    async with a_world(database_url, rabbit.url, slots=None, worker={"drain_grace_seconds": 0.3}) as world:
        _, stop, ending = await world.work(slots=4)
        ids = [*await world.submit("hold"), *await world.submit("hold_thread"), *await world.submit("hold_process")]
        await world.running(ids)

        stop.set()
        await ending

        returned = await world.tasks(ids)
        assert {(row["status"], row["attempts"]) for row in returned} == {("queued", 0)}
        world.go()
        await world.work(slots=4)
        again = await world.ended(ids)
        assert {(row["status"], row["attempts"]) for row in again} == {("done", 1)}
