"""An effect is accepted at most once per key, or reported in doubt; counted by the outside system itself."""

import asyncio
import os
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest
import pytest_asyncio

from app.domain.effects import EffectState, idempotency_key_of
from app.services.actors import ServiceActor
from app.services.effects import resolve
from tests.support.eventually import eventually
from tests.support.outside import Outside, an_outside
from tests.support.postgres import PrivatePostgres
from tests.support.rabbitmq import RabbitNode
from tests.support.work import rows
from tests.support.world import ONE_CLASS, World, a_world

EVE = ServiceActor("eve")
GATED = f"""{ONE_CLASS}
[[effect]]
reason_code = "SANDBOXED"
tenants = ["sandbox"]
allow = false

[[effect]]
reason_code = "NO_REFUNDS_BY_AGENTS"
type = "refund"
when = 'task.type.startsWith("act")'
allow = false
"""


@pytest_asyncio.fixture
async def outside() -> AsyncIterator[Outside]:
    """An outside system that accepts."""
    async with an_outside() as opened:
        yield opened


async def _effects(world: World) -> list[Mapping[str, Any]]:
    return await rows(world.runtime, "SELECT * FROM effects ORDER BY effect_id")


async def _act(world: World, outside: Outside, task_type: str = "act", count: int = 1, **fields: object) -> list[str]:
    return await world.submit(task_type, count, url=outside.url, **fields)


@pytest.mark.parametrize("task_type", ["act", "act_thread", "act_process"])
async def test_an_effect_is_had_once_and_its_id_kept_wherever_the_handler_runs(
    world: World, outside: Outside, task_type: str
) -> None:
    (task_id,) = await _act(world, outside, task_type)

    (row,) = await world.ended([task_id])

    assert (row["status"], row["attempts"]) == ("done", 1), row["error_message"]
    key = idempotency_key_of("acme", f"act:{task_id}")
    assert outside.accepted == {key: 1}
    (effect,) = await _effects(world)
    assert (effect["state"], effect["external_id"], len(effect["tokens"])) == ("confirmed", f"out-{key[:8]}", 1)
    assert await rows(world.runtime, "SELECT * FROM effect_calls") == []


async def test_many_tasks_that_race_for_one_key_have_it_accepted_once(world: World, outside: Outside) -> None:
    outside.delay_seconds = 0.05
    types = ("act", "act_thread")
    ids = [one for n in range(6) for one in await _act(world, outside, types[n % 2], key="the one")]

    ended = await world.ended(ids, within_seconds=30)

    assert {row["status"] for row in ended} == {"done"}
    assert {row["result"] for row in ended} == {ended[0]["result"]}
    assert outside.total == 1


async def test_a_refused_connection_leaves_the_effect_free_and_it_is_had_later(world: World, outside: Outside) -> None:
    await outside.refuse()
    (task_id,) = await _act(world, outside)

    async def released() -> bool:
        return [one["state"] for one in await _effects(world)] == ["not_sent"]

    await eventually(released)
    await outside.listen()
    (row,) = await world.ended([task_id])

    assert row["status"] == "done" and row["attempts"] >= 2
    assert outside.total == 1


@pytest.mark.parametrize("task_type", ["act", "act_thread", "act_process"])
async def test_a_call_that_was_accepted_and_not_answered_is_asked_about(
    world: World, outside: Outside, task_type: str
) -> None:
    outside.hangs = True
    (task_id,) = await _act(world, outside, task_type, call_timeout_seconds=0.4, reconciles=True)
    await eventually(lambda: outside.total == 1)

    (row,) = await world.ended([task_id])

    assert row["status"] == "done", row["error_message"]
    assert outside.total == 1 and outside.asked.total() == 1
    (effect,) = await _effects(world)
    assert effect["state"] == "confirmed" and effect["external_id"].startswith("out-")


async def test_a_doubt_waits_for_a_person_and_then_the_task_goes_on(world: World, outside: Outside) -> None:
    outside.hangs = True
    happened, not_sent = await _act(world, outside, count=2, call_timeout_seconds=0.3)

    for row in await world.ended([happened, not_sent]):
        assert (row["status"], row["error_type"]) == ("dead_lettered", "effect_in_doubt")
        assert "effect_" in row["error_message"]
    assert outside.total == 2
    outside.answer_all()
    by_task = {one["task_id"]: one for one in await _effects(world)}
    assert {one["state"] for one in by_task.values()} == {"in_doubt"}
    # What the person says counts, also where the truth is another one.
    runtime = world.runtime
    await resolve(runtime, EVE, by_task[happened]["effect_id"], EffectState.CONFIRMED, "T-1", "seen there")
    await resolve(runtime, EVE, by_task[not_sent]["effect_id"], EffectState.NOT_SENT, None, "not there")

    async def done() -> bool:
        return {row["status"] for row in await world.tasks([happened, not_sent])} == {"done"}

    await eventually(done)
    assert (await world.task(happened))["result"] == '{"id":"T-1"}'
    assert outside.arrived.total() == 3 and outside.arrived[idempotency_key_of("acme", f"act:{not_sent}")] == 2


async def test_a_key_that_is_honoured_is_called_again_and_accepted_once(world: World, outside: Outside) -> None:
    outside.hangs = True
    (task_id,) = await _act(world, outside, call_timeout_seconds=0.3, honours_key_for_seconds=60)
    await eventually(lambda: outside.total == 1)
    outside.hangs = False

    (row,) = await world.ended([task_id])

    assert row["status"] == "done"
    assert (outside.total, outside.arrived.total()) == (1, 2)


async def test_a_provider_that_forgets_keys_is_not_called_beyond_the_time_it_declared(
    world: World, outside: Outside
) -> None:
    outside.hangs = outside.forgets = True
    (task_id,) = await _act(world, outside, call_timeout_seconds=0.3, honours_key_for_seconds=0.5)

    (row,) = await world.ended([task_id])

    assert row["error_type"] == "effect_in_doubt"
    assert outside.total == 1


async def test_any_other_failure_of_the_call_is_a_doubt_too(world: World, outside: Outside) -> None:
    outside.fails = True
    (task_id,) = await _act(world, outside, call_timeout_seconds=0.3)

    (row,) = await world.ended([task_id])

    assert row["error_type"] == "effect_in_doubt"
    assert outside.arrived.total() == 1


async def test_a_key_with_other_arguments_is_an_error_that_says_so(world: World, outside: Outside) -> None:
    await world.ended(await _act(world, outside, key="k"))

    (row,) = await world.ended(await _act(world, outside, key="k", body="secret-other"))

    assert (row["status"], row["error_type"], row["attempts"]) == ("dead_lettered", "effect_key_reused", 1)
    assert "secret" not in row["error_message"]
    assert outside.total == 1


async def test_a_cancel_in_mid_call_forgets_nothing(world: World, outside: Outside) -> None:
    outside.hangs = True
    ids = [*await _act(world, outside, "act"), *await _act(world, outside, "act_thread")]
    await eventually(lambda: outside.total == 2)
    await rows(world.runtime, "UPDATE flights SET cancel_requested_at = clock_timestamp()")

    async def cancelled() -> bool:
        return (await world.task(ids[0]))["status"] == "cancelled"

    await eventually(cancelled)
    outside.answer_all()

    async def known() -> bool:
        return {one["state"] for one in await _effects(world)} == {"confirmed"}

    await eventually(known)
    # A thread cannot be stopped: its handler may come to its end before anybody sees the cancel.
    assert {row["status"] for row in await world.ended(ids)} <= {"cancelled", "done"}
    assert outside.total == 2


async def test_what_nobody_comes_back_to_becomes_a_doubt(world: World, outside: Outside) -> None:
    outside.hangs = True
    (task_id,) = await _act(world, outside, "act_carelessly", call_timeout_seconds=0.2)
    (row,) = await world.ended([task_id])
    assert row["result"] == '{"swallowed":"CallTimedOut"}'
    await rows(world.runtime, "UPDATE effect_calls SET call_until = call_until - interval '1 minute'")

    async def doubted() -> bool:
        return [one["state"] for one in await _effects(world)] == ["in_doubt"]

    await eventually(doubted)


async def test_a_drained_worker_records_what_is_answered_in_its_last_moments(world: World, outside: Outside) -> None:
    outside.hangs = True
    await _act(world, outside, reconciles=True)
    await eventually(lambda: outside.total == 1)
    (pool,) = world.pools
    effects = pool.facilities.effects
    assert effects is not None

    closing = asyncio.create_task(effects.close())
    outside.answer_all()
    await closing

    assert [one["state"] for one in await _effects(world)] == ["confirmed"]


async def test_a_database_that_restarts_while_a_call_is_confirmed_hears_of_it(
    world: World, outside: Outside, postgres: PrivatePostgres
) -> None:
    outside.hangs = True
    ids = await _act(world, outside, count=3, call_timeout_seconds=20)
    await eventually(lambda: outside.total == 3)

    await postgres.stop("immediate")
    outside.answer_all()
    await asyncio.sleep(0.2)
    await postgres.start()
    ended = await world.ended(ids, within_seconds=30)

    assert {(row["status"], row["attempts"]) for row in ended} == {("done", 1)}
    assert outside.total == 3


async def test_the_policy_and_the_type_are_asked_before_a_reservation(
    database_url: str, rabbit: RabbitNode, outside: Outside
) -> None:
    async with a_world(database_url, rabbit.url, policy=GATED) as world:
        cases = {
            "effect_forbidden": await _act(world, outside, tenant_id="sandbox"),
            "effect_forbidden ": await _act(world, outside, effect_type="refund"),
            "effect_not_declared": await _act(world, outside, "act_declared", effect_type="mail"),
            "approval_required": await _act(world, outside, "act_declared", effect_type="wipe"),
        }
        good = await _act(world, outside, "act_declared")

        ended = await world.ended([one for (one,) in cases.values()])
        (fine,) = await world.ended(good)

        for expected, row in zip(cases, ended, strict=True):
            assert (row["status"], row["error_type"], row["attempts"]) == ("dead_lettered", expected.strip(), 1)
        assert "SANDBOXED" in ended[0]["error_message"] and "NO_REFUNDS_BY_AGENTS" in ended[1]["error_message"]
        assert fine["status"] == "done" and outside.total == 1
        told = await rows(world.runtime, "SELECT reason, detail FROM events WHERE kind = 'effect' ORDER BY event_id")
        assert {row["reason"] for row in told} == {"forbidden", "approval_required"}
        assert any("NO_REFUNDS_BY_AGENTS" in row["detail"] for row in told)


async def test_no_name_of_ours_leaves(world: World, outside: Outside) -> None:
    await world.ended(await _act(world, outside, key="customer:secret"))

    (key,) = outside.accepted
    assert "secret" not in key and "acme" not in key and str(os.getpid()) not in key.split("-")
