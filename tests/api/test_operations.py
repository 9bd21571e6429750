"""Cancel, dead letters, bulk actions, inputs, schedules and pauses as an outside client meets them."""

import pytest

from tests.api.world import World, pointers, problem
from tests.support.work import a_tenant, claimed, dead, finished, rows, status_of, submitted
from workers.sweeps import bulk as bulk_sweep

NOBODY = "01JZ8W4W9GZK4K2GZ7Q2ABCD12"


async def test_cancel_answers_200_202_409_and_404(world: World) -> None:
    waiting, running, done = await submitted(world.runtime, 3)
    await finished(world.runtime, [done])
    await claimed(world.runtime, [running])

    first = await world.client.post(f"/v1/tasks/{waiting}/cancel", json={"reason": "not needed"})
    again = await world.client.post(f"/v1/tasks/{waiting}/cancel")
    asked = await world.client.post(f"/v1/tasks/{running}/cancel")
    final = await world.client.post(f"/v1/tasks/{done}/cancel")
    missing = await world.client.post(f"/v1/tasks/task_{NOBODY}/cancel")

    assert (first.status_code, again.status_code, asked.status_code) == (200, 200, 202)
    assert first.json()["status"] == again.json()["status"] == "cancelled"
    assert asked.json()["status"] == "running"
    assert asked.json()["cancel_requested_at"] is not None
    assert problem(final, 409, "task_final")["task_id"] == done
    problem(missing, 404, "not_found")
    problem(await world.client.post(f"/v1/tasks/{running}/cancel", content=b"{bad"), 400, "malformed_json")


async def test_every_operation_hides_another_tenants_things_and_audits_the_attempt(world: World) -> None:
    task_id, letter = await submitted(world.runtime, 2)
    await dead(world.runtime, [letter])
    await a_tenant(world.runtime, "globex")
    stranger = await world.key("globex", "admin")
    acme = await world.key("acme", "admin")
    stored = (await world.client.post("/v1/inputs", content=b"x", headers=acme)).json()["input_ref"]
    action = (
        await world.client.post("/v1/dead-letters/purge", json={"all": True, "reason": "r"}, headers=acme)
    ).json()["bulk_action_id"]
    schedule = (
        await world.client.post(
            "/v1/schedules",
            json={"name": "n", "cron": "0 0 1 1 *", "task": {"type": "echo", "input": {}}},
            headers=acme,
        )
    ).json()["schedule_id"]
    pause = (await world.client.post("/v1/pauses", json={"on": "tenant:acme", "reason": "r"}, headers=acme)).json()[
        "pause_id"
    ]
    reason = {"reason": "mine"}
    reaches = [
        ("POST", "/v1/tasks/{}/cancel", task_id, "task", None),
        ("POST", "/v1/tasks/{}/retry-now", task_id, "task", None),
        ("GET", "/v1/dead-letters/{}", letter, "task", None),
        ("POST", "/v1/dead-letters/{}/reprocess", letter, "task", reason),
        ("GET", "/v1/bulk-actions/{}", action, "bulk", None),
        ("POST", "/v1/bulk-actions/{}/abort", action, "bulk", None),
        ("GET", "/v1/inputs/{}", stored, "input", None),
        ("GET", "/v1/schedules/{}", schedule, "schedule", None),
        ("DELETE", "/v1/schedules/{}", schedule, "schedule", None),
        ("DELETE", "/v1/pauses/{}", pause, "pause", None),
    ]
    for method, path, thing, noun, body in reaches:
        hidden = await world.client.request(method, path.format(thing), json=body, headers=stranger)
        missing = await world.client.request(method, path.format(f"{noun}_{NOBODY}"), json=body, headers=stranger)
        problem(hidden, 404, "not_found")
        assert hidden.content == missing.content, path
    for path in ("/v1/dead-letters", "/v1/schedules", "/v1/pauses", "/v1/dead-letters/sample"):
        assert (await world.client.get(path, headers=stranger)).json()["items"] == [], path

    await world.app.state.front.refusals.flush()
    audited = await rows(world.runtime, "SELECT target FROM audit WHERE action = 'tenant.crossing_refused'")
    assert sorted(row["target"] for row in audited) == sorted(thing for _, _, thing, _, _ in reaches)
    assert await status_of(world.runtime, task_id) == "queued"
    assert await status_of(world.runtime, letter) == "dead_lettered"


async def test_dead_letters_are_listed_page_by_page_and_filtered(world: World) -> None:
    task_ids = await submitted(world.runtime, 5)
    await dead(world.runtime, task_ids[:4], error_type="timeout")
    await dead(world.runtime, task_ids[4:], error_type="invalid_payload")

    seen, token = [], None
    while True:
        page = (
            await world.client.get(
                "/v1/dead-letters",
                params={"error_type": "timeout", "page_size": 3, **({"page_token": token} if token else {})},
            )
        ).json()
        seen += [item["task_id"] for item in page["items"]]
        token = page["next_page_token"]
        if token is None:
            break
    summary = (await world.client.get("/v1/dead-letters/summary")).json()
    sample = (await world.client.get("/v1/dead-letters/sample", params={"error_type": "timeout", "n": 2})).json()
    story = (await world.client.get(f"/v1/dead-letters/{task_ids[4]}")).json()

    assert sorted(seen) == sorted(task_ids[:4])
    assert (summary["total"], summary["items"][0]["error_type"], summary["items"][0]["count"]) == (5, "timeout", 4)
    assert len(sample["items"]) == 2
    assert story["item"]["error_type"] == "invalid_payload"
    assert [attempt["outcome"] for attempt in story["attempts"]] == ["dead_lettered"]
    assert story["history"][0]["kind"] == "submitted"
    assert story["effects"] == []
    problem(await world.client.get("/v1/dead-letters", params={"eror_type": "x"}), 422, "invalid_parameter")


async def test_one_dead_letter_is_reprocessed_once(world: World) -> None:
    (task_id,) = await submitted(world.runtime)
    await dead(world.runtime, [task_id])
    path = f"/v1/dead-letters/{task_id}/reprocess"

    unsaid = await world.client.post(path, json={})
    first = await world.client.post(path, json={"reason": "provider back"})
    second = await world.client.post(path, json={"reason": "provider back"})

    assert pointers(problem(unsaid, 422, "invalid_payload")) == ["#/reason"]
    assert (first.status_code, first.json()["status"], first.json()["attempts"]) == (202, "queued", 0)
    assert first.headers["location"] == f"/v1/tasks/{task_id}"
    problem(second, 409, "not_dead_lettered")


async def test_bulk_actions_are_watched_and_aborted(world: World) -> None:
    task_ids = await submitted(world.runtime, 6)
    await dead(world.runtime, task_ids)
    found = {"filter": {"error_type": "timeout"}, "reason": "r"}

    dry = await world.client.post("/v1/dead-letters/reprocess", json=found | {"dry_run": True, "limit": 4})
    begun = await world.client.post("/v1/dead-letters/reprocess", json=found | {"rate_per_second": 2})
    await bulk_sweep.run_once(world.runtime)
    watched = await world.client.get(begun.headers["location"])
    aborted = await world.client.post(begun.headers["location"] + "/abort")

    assert (dry.status_code, dry.json()) == (200, {"matched": 4})
    assert (begun.status_code, begun.json()["matched"], begun.json()["state"]) == (202, 6, "running")
    assert (watched.json()["done"], watched.json()["errors"]) == (2, [])
    assert watched.json()["filter"] == {"error_type": ["timeout"]}
    assert aborted.json()["state"] == "aborted"
    reader = await world.key("acme", "reader")
    problem(await world.client.get(begun.headers["location"], headers=reader), 404, "not_found")
    reader = await world.key(None, "reader")
    problem(await world.client.get(begun.headers["location"], headers=reader), 403, "forbidden")


@pytest.mark.parametrize("path", ["/v1/tasks/cancel", "/v1/dead-letters/purge", "/v1/dead-letters/reprocess"])
async def test_filters_of_bulk_actions_are_held_against_what_is_known(world: World, path: str) -> None:
    problem(await world.client.post(path, json={"reason": "r"}), 422, "filter_required")
    problem(await world.client.post(path, json={"filter": {}, "reason": "r"}), 422, "filter_required")
    unknown = await world.client.post(path, json={"filter": {"tpye": "echo"}, "reason": "r"})
    assert pointers(problem(unknown, 422, "invalid_payload")) == ["#/filter"]
    both = await world.client.post(path, json={"filter": {"type": "echo"}, "all": True, "reason": "r"})
    problem(both, 422, "invalid_payload")
    everything = await world.client.post(path, json={"all": True, "reason": "r"})
    assert (everything.status_code, everything.json()["state"]) == (202, "done")


async def test_a_document_comes_back_byte_for_byte_and_harmless(world: World) -> None:
    page = b"<script>alert(1)</script>\x00\xff"
    await world.tenant("acme")
    acme = await world.key("acme")

    stored = await world.client.post("/v1/inputs", content=page, headers=acme | {"Content-Type": "text/html"})
    again = await world.client.post("/v1/inputs", content=page, headers=acme | {"Content-Type": "text/html"})
    back = await world.client.get(f"/v1/inputs/{stored.json()['input_ref']}", headers=acme)
    refers = {"type": "echo", "input_ref": stored.json()["input_ref"]}
    task = (await world.client.post("/v1/tasks", json=refers, headers=acme)).json()

    assert (stored.status_code, again.status_code) == (201, 200)
    assert stored.json() == again.json()
    assert stored.json()["size_bytes"] == len(page)
    assert back.content == page
    assert back.headers["content-type"] == "text/html"
    assert back.headers["x-content-type-options"] == "nosniff"
    assert back.headers["content-disposition"] == "attachment"
    assert "sandbox" in back.headers["content-security-policy"]
    assert task["input_ref"] == stored.json()["input_ref"]
    for ref in ("../../etc/passwd", f"input_{NOBODY}"):
        answer = await world.client.post("/v1/tasks", json={"type": "echo", "input_ref": ref}, headers=acme)
        assert pointers(problem(answer, 422, "unknown_input_ref")) == ["#/input_ref"]
    problem(
        await world.client.post("/v1/inputs", content=b"x", headers=acme | {"Content-Type": "no type"}),
        422,
        "invalid_payload",
    )


async def test_a_schedule_keeps_the_exact_text_of_its_task(world: World) -> None:
    await world.tenant("acme")
    acme = await world.key("acme")
    body = (
        b'{"name":"n","cron":"30 6 * * 1-5","timezone":"America/Sao_Paulo","task":{"type":"echo","input":{"n":1.10}}}'
    )

    made = await world.client.post("/v1/schedules", content=body, headers=acme)
    listed = await world.client.get("/v1/schedules", headers=acme)
    removed = await world.client.delete(made.headers["location"], headers=acme)

    assert made.status_code == 201, made.text
    assert b'"input":{"n":1.10}' in made.content
    assert listed.json()["items"] == [made.json()]
    assert removed.status_code == 204
    problem(await world.client.get(made.headers["location"], headers=acme), 404, "not_found")
    for change, pointer in (
        ({"cron": "x"}, "#/cron"),
        ({"timezone": "Mars"}, "#/timezone"),
        ({"misfire": "twice"}, "#/misfire"),
        ({"task": {"type": "order", "input": {"item": 3}}}, "#/task/input/item"),
        ({"task": {"type": "echo", "due_at": "2027-01-01T00:00:00Z"}}, "#/task/due_at"),
    ):
        good = {"name": "n", "cron": "0 0 1 1 *", "task": {"type": "echo", "input": {}}}
        refused = await world.client.post("/v1/schedules", json=good | change, headers=acme)
        assert pointer in pointers(problem(refused, 422, "invalid_payload")), refused.text


async def test_pauses_are_made_listed_and_removed(world: World) -> None:
    made = await world.client.post("/v1/pauses", json={"on": "class:common", "reason": "maintenance"})
    listed = await world.client.get("/v1/pauses")
    unknown = await world.client.post("/v1/pauses", json={"on": "class:nobody", "reason": "r"})

    assert (made.status_code, made.json()["on"]) == (201, "class:common")
    assert listed.json()["items"] == [made.json()]
    assert pointers(problem(unknown, 422, "invalid_payload")) == ["#/on"]
    assert (await world.client.delete(made.headers["location"])).status_code == 204
    problem(await world.client.delete(made.headers["location"]), 404, "not_found")


async def test_the_description_names_every_new_route(world: World) -> None:
    paths = (await world.client.get("/openapi.json")).json()["paths"]

    for path, methods in {
        "/v1/tasks/{task_id}/cancel": {"post"},
        "/v1/tasks/{task_id}/retry-now": {"post"},
        "/v1/tasks/cancel": {"post"},
        "/v1/dead-letters": {"get"},
        "/v1/dead-letters/{id}/reprocess": {"post"},
        "/v1/bulk-actions/{bulk_action_id}": {"get"},
        "/v1/inputs": {"post"},
        "/v1/schedules": {"get", "post"},
        "/v1/schedules/{schedule_id}": {"get", "delete"},
        "/v1/pauses": {"get", "post"},
    }.items():
        assert methods <= paths[path].keys(), path
