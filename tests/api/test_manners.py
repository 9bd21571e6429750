"""The manners table of the contract, row by row."""

import asyncio
import base64
from datetime import UTC, datetime, timedelta

import httpx
import pytest
from sqlalchemy import text

from app.api.problem_types import PROBLEM_TYPES
from tests.api.world import ADMIN_KEY, World, a_world, pointers, problem
from tests.support.eventually import eventually
from tests.support.postgres import PrivatePostgres
from tests.support.work import claimed, dead, finished, released, rows


# --- auth ---
@pytest.mark.parametrize(
    "header",
    [None, "", "Bearer", "Bearer ", "Bearer no", "Basic eDp5", ADMIN_KEY, f"Bearer {ADMIN_KEY}x", "Bearer é"],
)
async def test_no_or_a_wrong_key_is_401_with_a_challenge(world: World, header: str | None) -> None:
    headers = {} if header is None else {b"Authorization": header.encode()}
    async with httpx.AsyncClient(transport=httpx.ASGITransport(world.app), base_url="http://test") as stranger:
        for answer in (
            await stranger.get("/v1/tasks", headers=headers),
            await stranger.post("/v1/tasks", json={"type": "echo"}, headers=headers),
        ):
            problem(answer, 401, "unauthorized")
            assert answer.headers["www-authenticate"].startswith("Bearer")


async def test_the_scheme_is_read_in_any_case(world: World) -> None:
    answer = await world.client.get("/v1/tasks", headers={"Authorization": f"bEaReR {ADMIN_KEY}"})

    assert answer.status_code == 200


async def test_a_wrong_scope_is_403(world: World) -> None:
    await world.tenant("acme")
    reader = await world.key("acme", "reader")

    problem(await world.client.post("/v1/tasks", json={"type": "echo"}, headers=reader), 403, "forbidden")
    problem(await world.client.get("/v1/audit", headers=reader), 403, "forbidden")
    problem(await world.client.get("/v1/workers", headers=reader), 403, "forbidden")
    assert (await world.client.get("/v1/tasks", headers=reader)).status_code == 200


async def test_a_tenants_admin_is_no_platform_admin(world: World) -> None:
    await world.tenant("acme")
    boss = await world.key("acme", "admin")

    for answer in (
        await world.client.post("/v1/keys", json={"tenant_id": None, "role": "admin"}, headers=boss),
        await world.client.post("/v1/tenants", json={"tenant_id": "x", "name": "x"}, headers=boss),
        await world.client.get("/v1/audit", headers=boss),
    ):
        problem(answer, 403, "forbidden")


async def test_a_revoked_key_and_an_expired_one_stop_working(world: World) -> None:
    await world.tenant("acme")
    key = await world.key("acme")
    soon = (datetime.now(UTC) + timedelta(seconds=1)).isoformat()
    brief = await world.key("acme", expires_at=soon)
    assert (await world.client.get("/v1/tasks", headers=key)).status_code == 200
    listed = (await world.client.get("/v1/keys?tenant_id=acme")).json()["items"]
    assert "key" not in listed[0]

    revoked = await world.client.delete(f"/v1/keys/{listed[1]['key_id']}")

    assert revoked.status_code == 204 and revoked.content == b""
    problem(await world.client.get("/v1/tasks", headers=key), 401, "unauthorized")
    assert (await world.client.delete(f"/v1/keys/{listed[1]['key_id']}")).status_code == 204

    async def is_refused() -> bool:
        return (await world.client.get("/v1/tasks", headers=brief)).status_code == 401

    await eventually(is_refused, within_seconds=5)


async def test_keys_are_stored_hashed_and_never_listed(world: World) -> None:
    await world.tenant("acme")
    made = await world.client.post("/v1/keys", json={"tenant_id": "acme", "scopes": ["tasks:read"], "subject": "ci"})

    secret = made.json()["key"]
    assert made.json()["subject"] == "ci" and made.json()["scopes"] == ["tasks:read"]
    stored = await rows(world.runtime, "SELECT api_keys::text AS row FROM api_keys")
    audited = await rows(world.runtime, "SELECT audit::text AS row FROM audit")
    assert not [row for row in stored + audited if secret in row["row"]]


@pytest.mark.parametrize(
    "body",
    [
        {"tenant_id": "acme"},
        {"tenant_id": "nobody", "role": "reader"},
        {"role": "reader"},
        {"tenant_id": "acme", "role": "king"},
        {"tenant_id": "acme", "scopes": ["tasks:everything"]},
        {"tenant_id": "acme", "role": "reader", "more": 1},
        {"tenant_id": "acme", "role": "reader", "expires_at": "2020-01-01T00:00:00Z"},
    ],
)
async def test_a_key_that_makes_no_sense_is_refused(world: World, body: dict[str, object]) -> None:
    await world.tenant("acme")

    problem(await world.client.post("/v1/keys", json=body), 422, "invalid_payload")


# --- errors ---
async def test_unknown_paths_and_methods_are_problems_too(world: World) -> None:
    for path in ("/", "/nope", "/v1", "/v1/tasks/", "/v1/tasks/task_x/nope", "/docs"):
        problem(await world.client.get(path), 404, "not_found")
    wrong = await world.client.put("/v1/tasks", json={})
    problem(wrong, 405, "method_not_allowed")
    assert wrong.headers["allow"] == "GET, HEAD, POST"


async def test_head_answers_like_get_without_the_body(world: World) -> None:
    task = await world.submitted()
    for path in ("/healthz", "/readyz", "/v1/tasks", task["links"]["self"]):
        answer = await world.client.head(path)
        assert (answer.status_code, answer.content) == (200, b""), path
    problem_of_head = await world.client.head("/v1/tasks/task_01JZ8W4W9GZK4K2GZ7Q2ABCD12")
    assert problem_of_head.status_code == 404
    refused = await world.client.head("/v1/tasks/batch/x")
    assert refused.status_code == 404
    wrong = await world.client.put("/healthz")
    assert wrong.headers["allow"] == "GET, HEAD"


async def test_every_problem_has_a_page(world: World) -> None:
    for code in PROBLEM_TYPES:
        page = await world.client.get(f"/problems/{code}", headers={"Authorization": ""})
        assert page.status_code == 200 and page.headers["content-type"].startswith("text/html")
        assert code in page.text
    problem(await world.client.get("/problems/nope"), 404, "not_found")


async def test_an_error_nobody_foresaw_is_a_problem_without_a_stack_trace(world: World) -> None:
    async def broken(*_: object) -> None:
        raise RuntimeError("sk-CANARY-1")

    world.app.state.front.intake.take = broken
    answer = await world.client.post("/v1/tasks", json={"type": "echo"})

    problem(answer, 500, "internal_error")
    assert "CANARY" not in answer.text and "Traceback" not in answer.text


# --- accepting work ---
async def test_202_means_that_the_row_is_committed(world: World) -> None:
    answer = await world.client.post("/v1/tasks", json={"type": "echo", "group": "finance", "source": {"ref": "a:1"}})

    assert answer.status_code == 202
    task = answer.json()
    assert answer.headers["location"] == f"/v1/tasks/{task['task_id']}" == task["links"]["self"]
    assert len(await rows(world.runtime, "SELECT 1 FROM ready WHERE task_id = :id", id=task["task_id"])) == 1
    read = (await world.client.get(task["links"]["self"])).json()
    assert read == task


async def test_a_platform_key_submits_for_the_default_tenant_or_the_one_it_names(world: World) -> None:
    await world.tenant("acme")
    key = await world.key("acme")

    assert (await world.submitted())["tenant_id"] == "default"
    named = await world.client.post("/v1/tasks?tenant_id=acme", json={"type": "echo"})
    assert named.json()["tenant_id"] == "acme"
    found = problem(
        await world.client.post("/v1/tasks?tenant_id=nobody", json={"type": "echo"}), 422, "invalid_parameter"
    )
    assert pointers(found) == ["tenant_id"]
    other = await world.client.post("/v1/tasks?tenant_id=default", json={"type": "echo"}, headers=key)
    problem(other, 403, "forbidden")
    assert (await world.submitted(key))["tenant_id"] == "acme"


async def test_claims_are_kept_as_names_and_the_request_is_only_a_signal(world: World) -> None:
    task = await world.submitted(claims={"urgent": True}, requested_class="critical")

    assert task["requested_class"] == "critical"
    assert task["priority_class"] == "common"


# --- idempotency ---
async def test_thirty_racing_duplicates_make_one_task(world: World) -> None:
    headers = {"Idempotency-Key": "order-1"}
    body = {"type": "echo", "input": {"a": 1}}
    answers = await asyncio.gather(*(world.client.post("/v1/tasks", json=body, headers=headers) for _ in range(30)))

    assert {answer.status_code for answer in answers} <= {202, 409}
    accepted = [answer for answer in answers if answer.status_code == 202]
    assert len({answer.json()["task_id"] for answer in accepted}) == 1
    assert sum("idempotency-replayed" not in answer.headers for answer in accepted) == 1
    assert len(await rows(world.runtime, "SELECT 1 FROM tasks")) == 1


async def test_the_same_key_with_another_body_is_refused_and_changes_nothing(world: World) -> None:
    headers = {"Idempotency-Key": "order-1"}
    first = await world.client.post("/v1/tasks", json={"type": "echo", "input": 1}, headers=headers)

    other = await world.client.post("/v1/tasks", json={"type": "echo", "input": 2}, headers=headers)

    problem(other, 422, "idempotency_key_reused")
    assert (await world.client.get(first.headers["location"])).json() == first.json()


async def test_a_repetition_answers_with_the_task_as_it_is_now(world: World) -> None:
    headers = {"Idempotency-Key": "order-1"}
    first = await world.raw(b'{"type":"echo","input":{"a":1.0,"b":2},"group":"g"}', headers)
    await finished(world.runtime, [first.json()["task_id"]])

    again = await world.raw(b'{"group":"g", "input":{"b":2,"a":1},"type":"echo"}', {"Idempotency-Key": '"order-1"'})

    assert again.status_code == 202 and again.headers["idempotency-replayed"] == "true"
    assert again.json()["task_id"] == first.json()["task_id"] and again.json()["status"] == "done"
    assert again.headers["location"] == first.headers["location"]


async def test_keys_are_per_tenant_and_endpoint(world: World) -> None:
    await world.tenant("acme")
    key = await world.key("acme")
    same = {"Idempotency-Key": "k"}
    mine = await world.client.post("/v1/tasks", json={"type": "echo"}, headers=same)
    theirs = await world.client.post("/v1/tasks", json={"type": "echo"}, headers=same | key)
    item = {"type": "echo", "idempotency_key": "k"}
    batch = await world.client.post("/v1/tasks/batch", json={"tasks": [item, item]})

    assert len({mine.json()["task_id"], theirs.json()["task_id"]}) == 2
    first, second = batch.json()["items"]
    assert first["task"]["task_id"] == second["task"]["task_id"] != mine.json()["task_id"]
    assert [first["idempotency_replayed"], second["idempotency_replayed"]].count(True) == 1


async def test_a_refused_submission_does_not_use_its_key_up(world: World) -> None:
    headers = {"Idempotency-Key": "order-1"}
    problem(await world.client.post("/v1/tasks", json={"type": "nope"}, headers=headers), 422, "unknown_task_type")

    assert (await world.client.post("/v1/tasks", json={"type": "echo"}, headers=headers)).status_code == 202


@pytest.mark.parametrize("key", ["", " ", "a b", "x" * 256, '""', "é".encode().decode("latin-1")])
async def test_a_key_that_is_none_is_refused(world: World, key: str) -> None:
    headers = {b"Idempotency-Key": key.encode("latin-1")}
    answer = await world.client.post("/v1/tasks", json={"type": "echo"}, headers=headers)

    assert pointers(problem(answer, 422, "invalid_parameter")) == ["Idempotency-Key"]


async def test_a_key_in_flight_is_409_with_retry_after(world: World) -> None:
    async with world.runtime.database.transaction() as holder:
        statement = (
            "INSERT INTO idempotency_keys VALUES ('default', 'POST /v1/tasks', 'held', '\\x00', 'task_x', now())"
        )
        await holder.execute(text("SET LOCAL idle_in_transaction_session_timeout = '60s'"))
        await holder.execute(text(statement))
        answer = await world.client.post("/v1/tasks", json={"type": "echo"}, headers={"Idempotency-Key": "held"})

    found = problem(answer, 409, "idempotency_in_flight")
    assert found["retryable"] and int(answer.headers["retry-after"]) >= 1


# --- waiting ---
async def test_a_long_poll_answers_as_soon_as_the_task_has_ended(world: World) -> None:
    task_id = (await world.submitted())["task_id"]
    waiting = asyncio.create_task(world.client.get(f"/v1/tasks/{task_id}?wait=30"))
    waiters = world.app.state.front.waiters
    await eventually(lambda: task_id in waiters._waiting)

    await finished(world.runtime, [task_id])
    answer = await asyncio.wait_for(waiting, 5)

    assert answer.json()["status"] == "done" and "retry-after" not in answer.headers
    assert not waiters._waiting


async def test_a_worker_of_this_process_tells_without_the_database(world: World) -> None:
    task_id = (await world.submitted())["task_id"]
    waiting = asyncio.create_task(world.app.state.front.waiters.wait(task_id, 30))
    await eventually(lambda: task_id in world.app.state.front.waiters._waiting)

    world.runtime.tell_ended([task_id])

    assert await asyncio.wait_for(waiting, 1)


async def test_the_end_of_the_wait_answers_with_the_current_state(world: World) -> None:
    task_id = (await world.submitted())["task_id"]

    answer = await world.client.get(f"/v1/tasks/{task_id}?wait=0.05", headers={"Prefer": "wait=50"})

    assert answer.json()["status"] == "queued"
    assert int(answer.headers["retry-after"]) >= 1
    assert "preference-applied" not in answer.headers


async def test_prefer_waits_too_and_a_bad_preference_is_ignored(world: World) -> None:
    task_id = (await world.submitted())["task_id"]
    await finished(world.runtime, [task_id])

    applied = await world.client.get(f"/v1/tasks/{task_id}", headers={"Prefer": "respond-async, wait=9999"})
    ignored = await world.client.get(f"/v1/tasks/{task_id}", headers={"Prefer": "wait=soon"})

    assert applied.headers["preference-applied"] == "wait=55"
    assert ignored.status_code == 200 and "preference-applied" not in ignored.headers


async def test_a_post_that_waits_answers_202_when_the_time_is_over(world: World) -> None:
    answer = await world.client.post("/v1/tasks?wait=0.05", json={"type": "echo"})

    assert answer.status_code == 202 and answer.json()["status"] == "queued"


@pytest.mark.parametrize("wait", ["-1", "soon", "", "nan", "1e3", "1&wait=2"])
async def test_a_wait_that_is_no_time_is_refused(world: World, wait: str) -> None:
    task_id = (await world.submitted())["task_id"]

    for answer in (
        await world.client.get(f"/v1/tasks/{task_id}?wait={wait}"),
        await world.client.post(f"/v1/tasks?wait={wait}", json={"type": "echo"}),
    ):
        problem(answer, 422, "invalid_parameter")


async def test_those_who_wait_hold_no_connection(world: World) -> None:
    task_ids = [(await world.submitted())["task_id"] for _ in range(40)]
    waiting = [asyncio.create_task(world.client.get(f"/v1/tasks/{one}?wait=20")) for one in task_ids]
    await eventually(lambda: len(world.app.state.front.waiters._waiting) == 40)

    idle = await rows(
        world.runtime,
        "SELECT count(*) AS n FROM pg_stat_activity "
        "WHERE datname = current_database() AND state = 'idle in transaction'",
    )
    quick = await asyncio.wait_for(world.client.get("/v1/tasks"), 2)
    await finished(world.runtime, task_ids)
    answers = await asyncio.wait_for(asyncio.gather(*waiting), 10)

    assert idle[0]["n"] == 0 and quick.status_code == 200
    assert {answer.json()["status"] for answer in answers} == {"done"}


# --- lists ---
async def test_pages_are_newest_first_and_stable_under_inserts(world: World) -> None:
    old = [(await world.submitted())["task_id"] for _ in range(7)]
    first = (await world.client.get("/v1/tasks?page_size=3")).json()
    await world.submitted()
    second = (await world.client.get(f"/v1/tasks?page_size=3&page_token={first['next_page_token']}")).json()
    third = (await world.client.get(f"/v1/tasks?page_size=3&page_token={second['next_page_token']}")).json()

    seen = [one["task_id"] for page in (first, second, third) for one in page["items"]]
    assert seen == sorted(old, reverse=True)
    assert third["next_page_token"] is None
    assert "input" not in first["items"][0] and "result" not in first["items"][0]


async def test_filters_repeat_for_or(world: World) -> None:
    a = (await world.submitted(group="a"))["task_id"]
    b = (await world.submitted(group="b", source={"ref": "crm:1"}))["task_id"]
    later = (await world.submitted(group="c", not_before="2099-01-01T00:00:00Z"))["task_id"]

    async def found(query: str) -> set[str]:
        answer = await world.client.get(f"/v1/tasks?{query}")
        assert answer.status_code == 200, answer.text
        return {one["task_id"] for one in answer.json()["items"]}

    assert await found("group=a&group=b") == {a, b}
    assert await found("status=scheduled") == {later}
    assert await found("status=queued&status=scheduled") == {a, b, later}
    assert await found("source_ref=crm:1") == {b}
    assert await found("submitted_after=2020-01-01T00:00:00Z&type=echo") == {a, b, later}
    assert await found("submitted_before=2020-01-01T00:00:00Z") == set()
    assert await found("status=running") == set()
    assert await found("tenant_id=default&tenant_id=nobody") == {a, b, later}


async def test_every_status_filter_finds_its_tasks_and_no_others(world: World) -> None:
    later = (await world.submitted(not_before="2099-01-01T00:00:00Z"))["task_id"]
    done, fallen, claimed_, queued = [(await world.submitted())["task_id"] for _ in range(4)]
    await finished(world.runtime, [done])
    await dead(world.runtime, [fallen])
    await claimed(world.runtime, [claimed_])

    async def found(query: str) -> list[str]:
        listed = (await world.client.get(f"/v1/tasks?{query}")).json()["items"]
        return [one["task_id"] for one in listed]

    assert await found("status=scheduled") == [later]
    assert await found("status=done") == [done]
    assert await found("status=dead_lettered") == [fallen]
    assert await found("status=running") == [claimed_]
    assert await found("status=queued") == [queued]
    assert await found("status=queued&status=dead_lettered&status=scheduled&status=running") == [
        queued, claimed_, fallen, later,
    ]  # fmt: skip
    assert await found("status=done&status=queued") == [queued, done]
    await released(world.runtime, [queued])
    assert await found("status=queued") == [queued]


@pytest.mark.parametrize(
    "query",
    [
        "page_size=0", "page_size=-1", "page_size=x", "page_size=", "nope=1", "status=nope", "page_token=x",
        "page_token=" + base64.urlsafe_b64encode(b"1:\xff").decode(), "submitted_after=2020-01-01",
        "group=%00", "group=", "include=input", "page_token=%00", "page_size=1&page_size=2",
    ],
)  # fmt: skip
async def test_parameters_that_do_not_validate_are_422(world: World, query: str) -> None:
    problem(await world.client.get(f"/v1/tasks?{query}"), 422, "invalid_parameter")


async def test_a_large_page_size_means_the_largest(world: World) -> None:
    assert (await world.client.get("/v1/tasks?page_size=99999999999999999999")).status_code == 200


async def test_unknown_parameters_are_refused_everywhere(world: World) -> None:
    task = await world.submitted()
    for path in ("/v1/task-types", "/v1/classes", "/v1/workers", "/v1/audit", "/v1/keys", task["links"]["events"]):
        problem(await world.client.get(f"{path}?nope=1"), 422, "invalid_parameter")
    problem(await world.client.post("/v1/tasks?nope=1", json={"type": "echo"}), 422, "invalid_parameter")


async def test_payloads_are_for_those_who_may_read_them(world: World) -> None:
    await world.tenant("acme")
    task = await world.submitted(await world.key("acme"))
    await finished(world.runtime, [task["task_id"]])
    reader = await world.key("acme", "reader")

    seen = await world.client.get(task["links"]["self"], headers=reader)
    full = await world.client.get(task["links"]["self"])

    assert seen.json()["result"] is None and seen.json()["withheld"] == ["result"]
    assert "withheld" not in full.json()
    problem(await world.client.get(f"{task['links']['self']}?include=input", headers=reader), 403, "forbidden")
    problem(await world.client.get("/v1/tasks?include=result", headers=reader), 403, "forbidden")
    assert "result" in (await world.client.get("/v1/tasks?include=result")).json()["items"][0]


# --- overload ---
async def test_a_tenant_over_its_rate_gets_429_and_hears_how_it_stands(world: World) -> None:
    await world.tenant("acme", submit_rate_per_second=0.5, submit_burst=2)
    key = await world.key("acme")

    answers = [await world.client.post("/v1/tasks", json={"type": "echo"}, headers=key) for _ in range(3)]

    assert [answer.status_code for answer in answers] == [202, 202, 429]
    assert answers[0].headers["ratelimit-policy"] == '"submit";q=2;w=4'
    assert answers[0].headers["ratelimit"].startswith('"submit";r=1;t=')
    problem(answers[2], 429, "submit_rate_exceeded")
    assert answers[2].headers["ratelimit"].startswith('"submit";r=0;t=')
    assert int(answers[2].headers["retry-after"]) >= 1
    batch = await world.client.post("/v1/tasks/batch", json={"tasks": [{"type": "echo"}]}, headers=key)
    problem(batch, 429, "submit_rate_exceeded")


async def test_a_tenant_over_its_open_tasks_gets_429(world: World) -> None:
    await world.tenant("acme", max_open_tasks=2)
    key = await world.key("acme")
    batch = {"tasks": [{"type": "echo"}] * 3}

    answer = await world.client.post("/v1/tasks/batch", json=batch, headers=key)
    single = await world.client.post("/v1/tasks", json={"type": "echo"}, headers=key)

    assert answer.status_code == 207
    assert [item["status"] for item in answer.json()["items"]] == [202, 202, 429]
    assert answer.json()["items"][2]["problem"]["code"] == "open_tasks_quota"
    problem(single, 429, "open_tasks_quota")
    assert int(single.headers["retry-after"]) >= 1


async def test_a_repetition_is_answered_even_when_the_tenant_is_full(world: World) -> None:
    await world.tenant("acme", max_open_tasks=1)
    key = await world.key("acme") | {"Idempotency-Key": "k"}
    first = await world.client.post("/v1/tasks", json={"type": "echo"}, headers=key)

    again = await world.client.post("/v1/tasks", json={"type": "echo"}, headers=key)

    assert again.status_code == 202 and again.json()["task_id"] == first.json()["task_id"]


# --- dependencies down ---
async def test_without_a_broker_work_is_accepted_and_readiness_is_degraded(world: World) -> None:
    assert (await world.client.post("/v1/tasks", json={"type": "echo"})).status_code == 202

    ready = await world.client.get("/readyz", headers={"Authorization": ""})
    assert ready.status_code == 200 and ready.json()["status"] == "degraded"
    assert ready.json()["checks"]["broker"] == "unavailable"


async def test_without_the_database_every_answer_is_503_in_time(postgres: PrivatePostgres, database_url: str) -> None:
    async with a_world(database_url) as world:
        task = await world.submitted()
        await postgres.stop("fast")
        calls = [
            ("POST", "/v1/tasks"), ("POST", "/v1/tasks/batch"), ("GET", "/v1/tasks"), ("GET", task["links"]["self"]),
            ("GET", "/v1/classes"), ("GET", "/v1/keys"),
        ]  # fmt: skip
        bodies = {"/v1/tasks": {"type": "echo"}, "/v1/tasks/batch": {"tasks": [{"type": "echo"}]}}
        async with asyncio.timeout(20):
            answers = await asyncio.gather(
                *(
                    world.client.request(verb, path, json=bodies.get(path) if verb == "POST" else None)
                    for verb, path in calls
                )
            )
            ready = await world.client.get("/readyz")
            alive = await world.client.get("/healthz")

        for answer in answers:
            problem(answer, 503, "database_unavailable")
            assert int(answer.headers["retry-after"]) >= 1
        assert ready.status_code == 503 and ready.json()["status"] == "unavailable"
        assert alive.status_code == 200

        await postgres.start()

        async def is_back() -> bool:
            return (await world.client.post("/v1/tasks", json={"type": "echo"})).status_code == 202

        await eventually(is_back, within_seconds=10)


# --- tracing ---
async def test_the_callers_trace_is_stored_and_a_bad_one_is_replaced(world: World) -> None:
    trace = "0af7651916cd43dd8448eb211c80319c"
    given = {"traceparent": f"00-{trace}-b7ad6b7169203331-01", "tracestate": "vendor=1"}
    good = (await world.client.post("/v1/tasks", json={"type": "echo"}, headers=given)).json()
    bad = (await world.client.post("/v1/tasks", json={"type": "echo"}, headers={"traceparent": "nope"})).json()

    stored = {
        row["task_id"]: row for row in await rows(world.runtime, "SELECT task_id, traceparent, tracestate FROM tasks")
    }
    assert trace in stored[good["task_id"]]["traceparent"] and stored[good["task_id"]]["tracestate"] == "vendor=1"
    assert "nope" not in stored[bad["task_id"]]["traceparent"]


@pytest.mark.parametrize("given", ["abc-1", None, "bad id", "x" * 200])
async def test_a_request_id_is_echoed_or_made(world: World, given: str | None) -> None:
    answer = await world.client.get("/healthz", headers={} if given is None else {"X-Request-ID": given})

    echoed = answer.headers["x-request-id"]
    assert echoed == given if given == "abc-1" else echoed.startswith("req_")


# --- metrics ---
async def test_metrics_count_by_route_and_hold_no_ids(world: World) -> None:
    task = await world.submitted()
    await world.client.get(task["links"]["self"])

    page = await world.client.get("/metrics", headers={"Authorization": ""})

    assert page.status_code == 200
    assert 'route="/v1/tasks/{task_id}"' in page.text
    assert task["task_id"] not in page.text
