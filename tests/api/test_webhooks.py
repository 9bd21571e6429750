"""Callbacks of tasks over REST: what may be named, what is shown to whom, the events, and what signs them."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from app.ids import mint
from tests.api.world import World, a_world, pointers, problem
from tests.support.http_server import Server, serving
from tests.support.work import finished, rows

URL = "https://hooks.example.com/despacho?token=canary-7"

FORBIDDEN = [
    "http://[::ffff:7f00:1]/", "http://169.254.169.254/", "http://localhost./", "file:///etc/passwd", "http://127.1/",
    "http://2130706433/", "http://0x7f.1/", "http://[::1]/", "http://10.0.0.1/", "http://100.64.0.1/", "http://0/",
    "http://user:word@hooks.example.com/", "http://user@hooks.example.com/", "ftp://hooks.example.com/", "//x.org/",
    "https://", "hooks.example.com", "http://hooks.example.com:0/", "http://hooks.example.com:99999/", "http://a b/",
    "http://metadata.google.internal/", "http://[64:ff9b::7f00:1]/", "http://hooks.example.com\\@127.0.0.1/",
    "javascript:alert(1)", "http://hooks.example.com/\n", "http://héllo.example/", "https://x.org/" + "a" * 2000,
    "", 7, True, ["https://x.org/"], {"url": "https://x.org/"},
]  # fmt: skip


@pytest_asyncio.fixture
async def inside() -> AsyncIterator[Server]:
    """Something that listens on this machine and must not be called."""
    async with serving() as listening:
        yield listening


async def test_a_callback_that_leads_inside_is_refused_on_every_way_in_and_never_echoed(
    world: World, inside: Server
) -> None:
    for url in (*FORBIDDEN, inside.url(), inside.url(host="localhost")):
        asked = {"type": "echo", "callback_url": url}

        single = problem(await world.client.post("/v1/tasks", json=asked), 422, "invalid_payload")
        batch = (await world.client.post("/v1/tasks/batch", json={"tasks": [asked, {"type": "echo"}]})).json()
        schedule = await world.client.post("/v1/schedules", json={"name": "x", "cron": "* * * * *", "task": asked})

        assert pointers(single) == ["#/callback_url"], url
        assert [one["status"] for one in batch["items"]] == [422, 202], url
        assert batch["items"][0]["problem"]["errors"][0]["pointer"] == "#/callback_url"
        assert pointers(problem(schedule, 422, "invalid_payload")) == ["#/task/callback_url"], url
        if isinstance(url, str) and len(url) > 12:
            assert url not in str(single) and url not in str(batch) and url not in schedule.text
    assert inside.connections == 0
    assert not await rows(world.runtime, "SELECT 1 FROM tasks WHERE callback_url IS NOT NULL")


async def test_the_url_is_shown_to_who_may_read_payloads_and_to_others_the_host(world: World) -> None:
    await world.tenant("acme")
    await world.client.post("/v1/schedules", json={"name": "s", "cron": "* * * * *", "task": {"type": "echo"}})
    task = await world.submitted(await world.key("acme"), callback_url=URL)
    plain = await world.submitted(await world.key("acme"))
    reader = await world.key("acme", "reader")

    seen = (await world.client.get(task["links"]["self"])).json()
    withheld = (await world.client.get(task["links"]["self"], headers=reader)).json()
    listed = (await world.client.get("/v1/tasks", headers=reader)).json()["items"]

    shown = {"host": "hooks.example.com", "state": None, "url": URL}
    assert seen["callback"] == task["callback"] == shown
    assert withheld["callback"] == {"host": "hooks.example.com", "state": None}
    assert "callback" not in plain
    assert [one.get("callback") for one in listed] == [None, {"host": "hooks.example.com"}]
    assert "canary-7" not in str(withheld) + str(listed)


async def test_a_batch_and_a_schedule_take_a_callback_along(world: World) -> None:
    asked = {"type": "echo", "callback_url": URL}
    batch = (await world.client.post("/v1/tasks/batch", json={"tasks": [asked, {"type": "echo"}]})).json()
    made = (await world.client.post("/v1/schedules", json={"name": "x", "cron": "* * * * *", "task": asked})).json()

    assert [one["task"].get("callback", {}).get("url") for one in batch["items"]] == [URL, None]
    assert made["task"]["callback_url"] == URL
    stored = await rows(world.runtime, "SELECT callback_url FROM tasks ORDER BY callback_url NULLS LAST")
    assert [row["callback_url"] for row in stored] == [URL, None]


async def test_events_are_listed_read_and_sent_again_by_their_tenant_alone(world: World) -> None:
    await world.tenant("acme")
    await world.tenant("rival")
    acme, rival, reader = await world.key("acme"), await world.key("rival"), await world.key("acme", "reader")
    task = await world.submitted(acme, callback_url=URL)
    await finished(world.runtime, [task["task_id"]])
    await rows(
        world.runtime,
        "UPDATE webhooks SET state = 'failed', tries = 8, last_status_code = 500, last_error_type = 'http_500'",
    )
    await rows(
        world.runtime,
        "INSERT INTO webhook_tries SELECT webhook_id, 8, clock_timestamp(), 0.5, 500, 'http_500' FROM webhooks",
    )

    (event,) = (await world.client.get("/v1/webhooks?state=failed", headers=reader)).json()["items"]
    webhook_id = event["webhook_id"]
    read = (await world.client.get(f"/v1/webhooks/{webhook_id}", headers=reader)).json()
    told = (await world.client.get(task["links"]["self"], headers=acme)).json()["callback"]["state"]

    assert (event["event"], event["task_id"], event["tries"]) == ("task.done", task["task_id"], 8)
    assert read["history"][0]["status_code"] == 500 and read["history"][0]["seconds"] == 0.5
    assert "canary-7" not in str(read)
    assert told == "failed"
    for query in ("state=waiting", "task_id=task_x", "event=task.expired"):
        assert (await world.client.get(f"/v1/webhooks?{query}", headers=acme)).json()["items"] == []
    assert (await world.client.get(f"/v1/webhooks?task_id={task['task_id']}", headers=acme)).json()["items"]
    assert (await world.client.get("/v1/webhooks", headers=rival)).json()["items"] == []
    problem(await world.client.get("/v1/webhooks?state=lost", headers=acme), 422, "invalid_parameter")
    for wrong in (webhook_id, mint("webhook"), "webhook_x"):
        problem(await world.client.get(f"/v1/webhooks/{wrong}", headers=rival), 404, "not_found")
        problem(await world.client.post(f"/v1/webhooks/{wrong}/redeliver", headers=rival), 404, "not_found")
    problem(await world.client.post(f"/v1/webhooks/{webhook_id}/redeliver", headers=reader), 403, "forbidden")

    again = await world.client.post(f"/v1/webhooks/{webhook_id}/redeliver", headers=acme)
    assert (again.status_code, again.json()["state"]) == (202, "waiting")
    await rows(world.runtime, "UPDATE webhooks SET sending = true, next_try_at = clock_timestamp() + interval '9 s'")
    problem(await world.client.post(f"/v1/webhooks/{webhook_id}/redeliver", headers=acme), 409, "webhook_sending")
    kinds = [one["kind"] for one in (await world.client.get(task["links"]["events"], headers=acme)).json()["items"]]
    assert "webhook_redelivered" in kinds


async def test_a_signing_secret_is_shown_once_to_admins_alone(world: World) -> None:
    await world.tenant("acme")
    await world.tenant("rival")
    admin, rival = await world.key("acme", "admin"), await world.key("rival", "admin")
    problem(await world.client.post("/v1/webhook-secrets", json={}, headers=await world.key("acme")), 403, "forbidden")
    problem(await world.client.post("/v1/webhook-secrets", json={"tenant_id": "acme"}, headers=rival), 403, "forbidden")
    nobody = await world.client.post("/v1/webhook-secrets", json={"tenant_id": "nobody"})
    assert pointers(problem(nobody, 422, "invalid_payload")) == ["#/tenant_id"]

    made = await world.client.post("/v1/webhook-secrets", json={}, headers=admin)
    other = await world.client.post("/v1/webhook-secrets", json={"tenant_id": "acme", "overlap_seconds": 60})
    listed = (await world.client.get("/v1/webhook-secrets", headers=admin)).json()["items"]

    assert made.status_code == 201 and made.headers["cache-control"] == "no-store"
    assert made.json()["secret"].startswith("whsec_") and made.json()["tenant_id"] == "acme"
    assert [one["webhook_secret_id"] for one in listed] == [
        other.json()["webhook_secret_id"],
        made.json()["webhook_secret_id"],
    ]
    assert listed[0]["valid_until"] is None and listed[1]["valid_until"] is not None
    assert "whsec_" not in str(listed)
    path = f"/v1/webhook-secrets/{other.json()['webhook_secret_id']}"
    problem(await world.client.delete(path, headers=rival), 404, "not_found")
    assert (await world.client.delete(path, headers=admin)).status_code == 204
    assert (await world.client.get("/v1/webhook-secrets", headers=rival)).json()["items"] == []


@pytest.mark.parametrize("value", [-1, float("1e9"), "60", None])
async def test_an_overlap_has_bounds(world: World, value: object) -> None:
    answer = await world.client.post("/v1/webhook-secrets", json={"tenant_id": "default", "overlap_seconds": value})

    assert pointers(problem(answer, 422, "invalid_payload")) == ["#/overlap_seconds"]


async def test_a_network_that_the_operator_opened_may_be_named(database_url: str, inside: Server) -> None:
    from app.settings import OutboundSettings

    async with a_world(database_url) as world:
        opened = world.runtime.settings.model_copy(
            update={"outbound": OutboundSettings(allowed_networks=["127.0.0.0/8"])}
        )
        world.runtime.settings = opened

        assert (await world.submitted(callback_url=inside.url()))["callback"]["host"] == f"127.0.0.1:{inside.port}"
