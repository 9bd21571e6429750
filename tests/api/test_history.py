"""Batches, attempts, the composed history and task types."""

from collections.abc import Awaitable
from typing import Any

import httpx

from app.domain.capacity import Capacity, Pool
from app.domain.fairness import Head, TenantHeads
from app.domain.lifecycle import Move
from app.domain.outcome import Settlement
from app.domain.release import Demand, plan_release
from app.ids import mint
from app.services.actors import ServiceActor
from app.services.pauses import create
from app.services.releases import figures_of
from app.store.settlements import settle
from app.store.workers import Identity, beat
from tests.api.world import World, pointers, problem
from tests.domain.policies import NOW
from tests.support.work import claimed, dead, finished, released, rows
from workers.sweeps.figures import run_once


async def test_a_batch_answers_for_each_item_in_order(world: World) -> None:
    items = [
        {"type": "echo", "input": 1},
        {"type": "nope"},
        {"type": "order", "input": {"item": "x"}},
        {"type": "echo", "unknown": 1},
        {"type": "echo", "input_ref": "input_x"},
        {"type": "order", "input": {"item": "x", "amount": 1}, "metadata": {"n": 1}},
    ]
    answer = await world.client.post("/v1/tasks/batch", json={"tasks": items})

    body = answer.json()
    assert answer.status_code == 207 and (body["accepted"], body["refused"]) == (2, 4)
    assert [item["status"] for item in body["items"]] == [202, 422, 422, 422, 422, 202]
    codes = [item["problem"]["code"] for item in body["items"] if "problem" in item]
    assert codes == ["unknown_task_type", "invalid_payload", "invalid_payload", "unknown_input_ref"]
    assert pointers(body["items"][2]["problem"]) == ["#/input/amount"]
    read = await world.client.get(body["items"][5]["task"]["links"]["self"])
    assert read.json() == body["items"][5]["task"]


async def test_a_batch_that_is_all_good_is_202_and_one_bad_text_harms_no_neighbour(world: World) -> None:
    good = await world.client.post("/v1/tasks/batch", json={"tasks": [{"type": "echo"}] * 500})
    mixed = await world.client.post(
        "/v1/tasks/batch",
        content=b'{"tasks":[{"type":"echo","input":"\\u0000"},{"type":"echo","input":"\\u00e9"},{"type":"echo","input":1e999}]}',
    )

    assert good.status_code == 202 and good.json()["accepted"] == 500
    assert [item["status"] for item in mixed.json()["items"]] == [422, 202, 422]


async def test_half_a_surrogate_pair_in_one_item_harms_no_neighbour(world: World) -> None:
    def sent(items: bytes) -> Awaitable[httpx.Response]:
        return world.client.post("/v1/tasks/batch", content=b'{"tasks":[' + items + b"]}")

    mixed = await sent(
        rb'{"type":"echo","input":"\ud800"}, {"type":"echo","input":["\\ud800",1e22,"\ud83d\ude00"]},"tasks"'
    )
    malformed = await sent(rb'{"type":"echo","input":"\ud800"},NaN')

    items = mixed.json()["items"]
    assert [item["status"] for item in items] == [422, 202, 422]
    assert pointers(items[0]["problem"]) == ["#/input"]
    read = await world.client.get(items[1]["task"]["links"]["self"] + "?include=input")
    assert rb'"input":["\\ud800",1e22,"\ud83d\ude00"]' in read.content
    problem(malformed, 400, "malformed_json")


async def test_a_batch_of_the_wrong_shape_is_refused_as_a_whole(world: World) -> None:
    async def sent(body: object) -> list[str]:
        return pointers(problem(await world.client.post("/v1/tasks/batch", json=body), 422, "invalid_payload"))

    assert await sent({"tasks": []}) == ["#/tasks"]
    assert await sent({"tasks": [{"type": "echo"}] * 1001}) == ["#/tasks"]
    assert await sent({}) == ["#/tasks"]
    assert await sent([]) == ["#/tasks"]
    assert await sent({"tasks": [], "more": 1}) == ["#"]
    keyed = await world.client.post("/v1/tasks/batch", json={"tasks": []}, headers={"Idempotency-Key": "x"})
    assert pointers(problem(keyed, 422, "invalid_parameter")) == ["Idempotency-Key"]


async def test_the_history_tells_the_whole_story_in_order(world: World) -> None:
    task = await world.submitted(requested_class="critical")
    await finished(world.runtime, [task["task_id"]])

    items = (await world.client.get(task["links"]["events"])).json()["items"]

    assert [one["kind"] for one in items] == ["submitted", "released", "started", "ended"]
    assert [one["at"] for one in items] == sorted(one["at"] for one in items)
    assert items[0]["reason"] == "DEFAULT" and items[0]["detail"]["requested_class"] == "critical"
    assert items[0]["detail"]["policy_version"] == task["policy_version"] and "facts" in items[0]["detail"]
    assert "put_off" in items[1]["detail"]
    assert items[2]["actor"] == "worker_1"
    assert items[3]["reason"] == "done"


async def test_the_last_entry_of_a_waiting_task_says_what_it_waits_for(world: World) -> None:
    queued = await world.submitted()
    later = await world.submitted(not_before="2099-01-01T00:00:00Z")

    async def last(task: dict[str, dict[str, str]]) -> dict[str, object]:
        found: dict[str, object] = (await world.client.get(task["links"]["events"])).json()["items"][-1]
        return found

    assert (await last(queued))["kind"] == "waiting" and (await last(queued))["reason"] == "no_consumers"
    assert (await last(later))["reason"] == "not_before"
    await released(world.runtime, [queued["task_id"]])
    assert (await last(queued))["reason"] == "released"


async def a_worker(world: World, slots: int) -> None:
    """Have a live worker for every class."""
    classes = tuple(world.runtime.policy.current.by_name)
    await beat(
        world.runtime.database,
        Identity("worker_1", "default", classes, ("echo",), slots, "host", 1, "test"),
        draining=False,
        alive_seconds=600,
    )


async def waits_for(world: World, task: dict[str, dict[str, str]]) -> dict[str, Any]:
    """Read the last entry of a task's history."""
    found: dict[str, Any] = (await world.client.get(task["links"]["events"])).json()["items"][-1]
    assert found["kind"] == "waiting", found
    return found


async def test_a_paused_task_tells_the_reason_of_the_pause(world: World) -> None:
    task = await world.submitted()
    await create(world.runtime, ServiceActor("ana", "key_1"), "type:echo", "the provider is down", None)

    found = await waits_for(world, task)

    assert found["reason"] == "paused" and "type:echo is paused: the provider is down" in found["detail"]["because"]


async def test_a_task_that_was_put_off_tells_the_seats_behind_it(world: World) -> None:
    await a_worker(world, slots=2)
    running = [await world.submitted() for _ in range(2)]
    await claimed(world.runtime, [one["task_id"] for one in running])
    task = await world.submitted()
    plan = plan_release(
        Capacity((Pool(frozenset({"common"}), 2),), {"common": 2}, {"common": 1.0}),
        Demand(
            {"common": [TenantHeads("default", 0.0, 1.0, [Head(task["task_id"], "echo", "", NOW, 1.0, 60, False)])]}
        ),
        world.runtime.policy.current,
    )
    await rows(
        world.runtime,
        "INSERT INTO release_rounds (at, epoch, policy_version, figures) "
        "VALUES (clock_timestamp(), 1, 'test', :figures)",
        figures=figures_of(plan, {"common": 2}),
    )

    found = await waits_for(world, task)

    assert found["reason"] == "no_seat"
    assert found["detail"]["put_off"] == {"no_seat": 1}
    assert found["detail"]["seats"] == {"reach": 2, "reserve": 1, "maximum": 2, "load": 2.0}


async def test_a_class_without_a_seat_is_told_by_what_the_leader_counted(world: World) -> None:
    await a_worker(world, slots=1)
    first = await world.submitted()
    await claimed(world.runtime, [first["task_id"]])
    task = await world.submitted()
    assert (await waits_for(world, task))["reason"] == "tenants_turn"

    await run_once(world.runtime)

    found = await waits_for(world, task)
    assert found["reason"] == "no_seat" and "keeps 1.0 of 1 seats busy" in found["detail"]["because"]


async def test_an_attempt_says_whether_its_error_was_worth_a_retry(world: World) -> None:
    task = await world.submitted()
    (mine,) = await claimed(world.runtime, [task["task_id"]])
    await settle(
        world.runtime.database,
        [
            Settlement(
                mine.task_id, mine.fence, Move.DEAD_LETTER, "failed", error_type="timeout", error_message="late",
                error_retryable=True, dead_letter_id=mint("dead"),
            )
        ],
    )  # fmt: skip

    attempts = (await world.client.get(task["links"]["attempts"])).json()["items"]

    assert attempts[0]["error"] == {"type": "timeout", "message": "late", "retryable": True}


async def test_attempts_hold_the_running_one_and_those_that_ended(world: World) -> None:
    task = await world.submitted()
    fallen = await world.submitted()
    await claimed(world.runtime, [task["task_id"]])
    await dead(world.runtime, [fallen["task_id"]], error_type="invalid_payload")

    running = (await world.client.get(task["links"]["attempts"])).json()["items"]
    ended = (await world.client.get(fallen["links"]["attempts"])).json()["items"]
    read = (await world.client.get(fallen["links"]["self"])).json()

    assert [(one["attempt"], one["outcome"], one["finished_at"]) for one in running] == [(1, None, None)]
    assert running[0]["worker_id"] == "worker_1" and running[0]["queue_seconds"] >= 0
    assert ended[0]["outcome"] == "dead_lettered" and ended[0]["error"]["type"] == "invalid_payload"
    assert ended[0]["duration_seconds"] >= 0
    assert read["status"] == "dead_lettered"
    assert read["error"] == {"type": "invalid_payload", "message": "it did not work", "retryable": False}


async def test_task_types_show_their_schemas(world: World) -> None:
    listed = (await world.client.get("/v1/task-types")).json()["items"]
    one = (await world.client.get("/v1/task-types/order")).json()

    assert [each["name"] for each in listed] == ["echo", "order"]
    assert one == listed[1]
    assert set(one["input_schema"]["properties"]) == {"item", "amount", "tags"}
    assert one["retry_policy"]["max_attempts"] == 3 and one["timeout_seconds"] == 60
    problem(await world.client.get("/v1/task-types/nope"), 404, "not_found")
