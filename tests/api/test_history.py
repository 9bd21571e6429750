"""Batches, attempts, the composed history and task types."""

from tests.api.world import World, pointers, problem
from tests.support.work import claimed, dead, finished, released


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
