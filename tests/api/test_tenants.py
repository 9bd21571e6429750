"""Another tenant's things look exactly like things that do not exist, on every route, and the attempt is audited."""

import re

from app.api.routers import ROUTERS
from app.ids import mint
from tests.api.world import World, problem
from tests.support.work import dead, rows

_NOUNS = {"input_ref": "input", "approval_id": "appr", "webhook_secret_id": "whsecret"}
# Named by what everybody may know, not by what somebody owns.
_OPEN = {"task_type", "code"}


def _routes_with_an_id() -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    for router in ROUTERS:
        for route in router.routes:
            path = getattr(route, "path", "")
            names = re.findall(r"{([a-z_]+)", path)
            if names and not _OPEN.intersection(names):
                found += [(method, path) for method in sorted(getattr(route, "methods", ()))]
    return found


async def test_every_route_hides_what_another_tenant_has(world: World) -> None:
    await world.tenant("acme")
    await world.tenant("rival")
    owner = await world.key("acme", "admin")
    rival = await world.key("rival", "admin")
    task = await world.submitted(owner)
    fallen = await world.submitted(owner)
    await dead(world.runtime, [fallen["task_id"]])
    before = await rows(world.runtime, "SELECT * FROM tasks ORDER BY task_id")
    routes = _routes_with_an_id()
    assert ("GET", "/v1/tasks/{task_id}/events") in routes

    for method, path in routes:
        name = re.findall(r"{([a-z_]+)", path)[0]
        noun = _NOUNS.get(name, name.removesuffix("_id"))
        for theirs in (task["task_id"], fallen["task_id"]):
            hidden = await world.client.request(
                method, re.sub(r"{[a-z_:]+}", theirs, path), headers=rival, json={"reason": "x"}
            )
            absent = await world.client.request(
                method, re.sub(r"{[a-z_:]+}", mint(noun), path), headers=rival, json={"reason": "x"}
            )

            assert hidden.content == absent.content, (method, path)
            assert hidden.status_code == absent.status_code in (403, 404, 422), (method, path, hidden.text)
            for answer in (hidden, absent):
                del answer.headers["x-request-id"]
            assert hidden.headers == absent.headers

    assert await rows(world.runtime, "SELECT * FROM tasks ORDER BY task_id") == before


async def test_a_refused_crossing_is_audited(world: World) -> None:
    await world.tenant("acme")
    await world.tenant("rival")
    task = await world.submitted(await world.key("acme"))
    rival = await world.key("rival", subject="mallory")

    problem(await world.client.get(task["links"]["self"], headers=rival), 404, "not_found")
    problem(await world.client.get("/v1/tasks/task_01M8PG4HPGRDN6JZN5ZSRA6C31", headers=rival), 404, "not_found")
    await world.app.state.front.refusals.flush()

    found = (await world.client.get("/v1/audit?action=tenant.crossing_refused")).json()["items"]
    assert [(one["subject"], one["target"], one["tenant_id"]) for one in found] == [
        ("mallory", task["task_id"], "acme")
    ]


async def test_lists_and_classes_show_a_tenant_its_own(world: World) -> None:
    await world.tenant("acme")
    await world.tenant("rival")
    acme, rival = await world.key("acme"), await world.key("rival")
    mine = await world.submitted(acme)
    await world.submitted(rival)
    await world.submitted(rival)

    listed = (await world.client.get("/v1/tasks", headers=acme)).json()["items"]
    assert [one["task_id"] for one in listed] == [mine["task_id"]]
    problem(await world.client.get("/v1/tasks?tenant_id=rival", headers=acme), 403, "forbidden")
    assert len((await world.client.get("/v1/tasks?tenant_id=rival")).json()["items"]) == 2
    assert len((await world.client.get("/v1/tasks")).json()["items"]) == 3

    def common(answer: dict[str, list[dict[str, object]]]) -> dict[str, object]:
        return next(one for one in answer["items"] if one["name"] == "common")

    own = common((await world.client.get("/v1/classes", headers=acme)).json())
    all_of_them = common((await world.client.get("/v1/classes")).json())
    assert own["waiting"] == 1 and own["consumers"] is None and own["released"] is None
    assert all_of_them["waiting"] == 3 and all_of_them["consumers"] == 0


async def test_what_admins_do_is_audited(world: World) -> None:
    await world.tenant("acme")
    await world.key("acme")
    key_id = (await world.client.get("/v1/keys?tenant_id=acme")).json()["items"][0]["key_id"]
    await world.client.delete(f"/v1/keys/{key_id}")

    trail = (await world.client.get("/v1/audit?tenant_id=acme")).json()["items"]

    assert [(one["action"], one["target"], one["subject"]) for one in trail] == [
        ("key.revoked", key_id, "bootstrap"),
        ("key.created", key_id, "bootstrap"),
        ("tenant.created", "acme", "bootstrap"),
    ]
    assert [one["action"] for one in (await world.client.get("/v1/audit?action=key.revoked")).json()["items"]] == [
        "key.revoked"
    ]


async def test_a_tenant_id_is_a_slug_and_is_taken_once(world: World) -> None:
    await world.tenant("acme")

    problem(await world.client.post("/v1/tenants", json={"tenant_id": "acme", "name": "x"}), 409, "tenant_exists")
    for bad in ("", "A", "a b", "-a", "x" * 64, "é", "a/b", "a\x00"):
        answer = await world.client.post("/v1/tenants", json={"tenant_id": bad, "name": "x"})
        problem(answer, 422, "invalid_payload")
    listed = (await world.client.get("/v1/tenants?page_size=1")).json()
    assert listed["items"][0]["tenant_id"] == "acme"
    rest = (await world.client.get(f"/v1/tenants?page_token={listed['next_page_token']}")).json()
    assert [one["tenant_id"] for one in rest["items"]] == ["default"]
