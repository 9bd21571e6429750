"""The policy over the API: versions, what they would change, classes explained, and classes given by hand."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from app.services.policies import follow
from tests.api.world import World, pointers, problem
from tests.support.runtimes import POLICY
from tests.support.work import claimed, rows

SHIPPED = POLICY.read_text()
NEXT = SHIPPED.replace('version       = "2026-11-30.1"', 'version = "2"')
TYPED = NEXT.replace("[[rule]] ", '[[rule]]\nreason_code = "ECHO"\nclass = "deferrable"\nwhen = \'task.type == "echo"\'\n\n[[rule]] ', 1)  # fmt: skip  # noqa: E501
EXTRA = NEXT.replace("# Conditions are", """[[class]]
name = "idle"
owner = "o"
start_within = "1d"
nominal = 0.0
reclaim_within = "1h"

# Conditions are""")  # fmt: skip
LESS = EXTRA.replace('version = "2"', 'version = "3"').replace('name = "idle"', 'name = "idler"')


async def seeded(world: World) -> None:
    """Have the shipped policy in the database, as a start does."""
    await put(world, SHIPPED)


async def put(world: World, document: str, status: int = 200, **more: Any) -> dict[str, Any]:
    """Put a version."""
    answer = await world.client.put("/v1/priority/policy", json={"document": document, **more})
    assert answer.status_code == status, answer.text
    body: dict[str, Any] = answer.json()
    return body


async def evaluated(world: World, headers: dict[str, str] | None = None, **body: Any) -> dict[str, Any]:
    """Ask for a class."""
    answer = await world.client.post("/v1/priority/evaluate", json=body, headers=headers)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def test_a_new_version_rules_at_once_and_is_found_in_the_history(world: World) -> None:
    await seeded(world)

    done = await put(world, TYPED)

    assert (done["version"], done["in_force"], done["author"]) == ("2", True, "bootstrap")
    task = await world.submitted()
    assert (task["priority_class"], task["priority_reason_code"], task["policy_version"]) == ("deferrable", "ECHO", "2")
    read = (await world.client.get("/v1/priority/policy")).json()
    assert (read["version"], read["in_force"], read["document"]) == ("2", True, TYPED)
    page = (await world.client.get("/v1/priority/policy", params={"history": True, "page_size": 1})).json()
    assert [one["version"] for one in page["items"]] == ["2"]
    rest = (
        await world.client.get("/v1/priority/policy", params={"history": True, "page_token": page["next_page_token"]})
    ).json()
    assert [(one["version"], one["in_force"]) for one in rest["items"]] == [("2026-11-30.1", False)]
    old = (await world.client.get("/v1/priority/policy", params={"version": "2026-11-30.1"})).json()
    assert (old["document"], old["in_force"]) == (SHIPPED, False)
    audited = (await world.client.get("/v1/audit", params={"target": "2"})).json()["items"]
    assert [one["action"] for one in audited] == ["policy.apply"]


async def test_plain_toml_is_a_body_too(world: World) -> None:
    headers = {"Content-Type": "text/plain; charset=utf-8"}

    shown = await world.client.put(
        "/v1/priority/policy", content=NEXT.encode(), headers=headers, params={"dry_run": True}
    )
    done = await world.client.put("/v1/priority/policy", content=NEXT.encode(), headers=headers)
    bad = await world.client.put("/v1/priority/policy", content=b"\xff", headers=headers)

    assert (shown.status_code, shown.json()["in_force"], shown.json()["dry_run"]) == (200, False, True)
    assert (done.status_code, done.json()["in_force"], done.json()["dry_run"]) == (200, True, False)
    problem(bad, 422, "invalid_policy")


async def test_a_version_never_changes_and_none_of_the_past_comes_back(world: World) -> None:
    await put(world, NEXT)

    again = await put(world, NEXT)
    other = await world.client.put("/v1/priority/policy", json={"document": NEXT + "\n# more"})
    await put(world, NEXT.replace('version = "2"', 'version = "3"'))
    past = await world.client.put("/v1/priority/policy", json={"document": NEXT})

    assert again["in_force"]
    problem(other, 409, "policy_version_exists")
    problem(past, 409, "policy_version_exists")
    assert (await rows(world.runtime, "SELECT count(*) AS n FROM policies"))[0]["n"] == 2


async def test_a_dry_run_counts_what_would_change_and_changes_nothing(world: World) -> None:
    await seeded(world)
    ids = {(await world.submitted())["task_id"] for _ in range(3)}
    by_hand = await reclassified(world, sorted(ids)[0], "critical")
    assert by_hand["priority_class"] == "critical"

    shown = await put(world, TYPED, dry_run=True)

    changes = shown["changes"]
    assert (changes["looked_at"], changes["changed"], changes["in_use"]) == (3, 3, {})
    (moved,) = changes["classes"]
    assert (moved["from"], moved["to"], moved["tasks"]) == ("common", "deferrable", 3)
    assert set(moved["examples"]) == ids
    (code,) = changes["reason_codes"]
    assert (code["from"], code["to"]) == ("DEFAULT", "ECHO")
    assert any("process.contract_sla_seconds" in one for one in shown["warnings"])
    assert world.runtime.policy.current.version == "2026-11-30.1"
    assert (await rows(world.runtime, "SELECT count(*) AS n FROM policies"))[0]["n"] == 1


async def test_every_problem_of_a_bad_version_has_its_line_and_nothing_changes(world: World) -> None:
    await seeded(world)
    bad = NEXT.replace('class = "critical"', 'class = "criticla"', 1).replace("nominal = 0.20", "nominal = nan", 1)

    answer = await world.client.put("/v1/priority/policy", json={"document": bad})

    body = problem(answer, 422, "invalid_policy")
    assert pointers(body) == ["#/document"] * 2
    assert all(one["detail"].startswith("line ") for one in body["errors"])
    assert any("unknown class 'criticla'; it must be one of" in one["detail"] for one in body["errors"])
    assert world.runtime.policy.current.version == "2026-11-30.1"


async def test_a_version_without_a_class_in_which_tasks_wait_is_refused_with_their_count(world: World) -> None:
    await put(world, EXTRA)
    task = await world.submitted()
    await reclassified(world, task["task_id"], "idle")

    answer = await world.client.put("/v1/priority/policy", json={"document": LESS})
    shown = await put(world, LESS, dry_run=True)
    await world.client.post(f"/v1/tasks/{task['task_id']}/cancel")

    assert "1 in idle" in problem(answer, 409, "policy_class_in_use")["detail"]
    assert shown["changes"]["in_use"] == {"idle": 1}
    assert (await put(world, LESS))["in_force"]


async def test_a_version_that_this_release_cannot_read_leaves_the_old_one_in_force_and_says_so(world: World) -> None:
    await seeded(world)
    await rows(
        world.runtime,
        "INSERT INTO policies (version, document, owner, author, created_at) "
        "VALUES ('9', 'version = \"9\"\nfuture = true', 'o', 'a', clock_timestamp())",
    )

    for _ in range(2):
        async with world.runtime.database.transaction() as connection:
            assert not await follow(world.runtime, connection)

    ready = (await world.client.get("/readyz")).json()
    assert (ready["status"], ready["checks"]["policy"]) == ("degraded", {"in_force": "2026-11-30.1", "refused": "9"})
    assert b"despacho_policy_version_refused 1.0" in world.runtime.metrics.render()
    assert (await world.client.get("/v1/priority/policy")).json()["refused_version"] == "9"
    await put(world, NEXT)
    assert (await world.client.get("/readyz")).json()["checks"]["policy"] == {"in_force": "2", "refused": None}


async def test_another_process_follows_the_version_that_was_put_here(world: World) -> None:
    await seeded(world)
    await put(world, NEXT)
    holder = world.runtime.policy
    await put(world, TYPED.replace('version = "2"', 'version = "3"'))
    elsewhere = type(holder)(holder.current)
    elsewhere.adopt(holder.current)

    async with world.runtime.database.transaction() as connection:
        changed = await elsewhere.refresh(connection)

    assert not changed
    assert elsewhere.current.version == "3"


async def test_a_class_is_explained_rule_by_rule_without_making_a_task(world: World) -> None:
    due_at = (datetime.now(UTC) + timedelta(minutes=5)).isoformat()

    found = await evaluated(world, type="echo", due_at=due_at, requested_class="critical", claims={"urgent": True})

    assert (found["priority_class"], found["reason_code"], found["requested_class"]) == (
        "short_deadline", "DUE_SOON", "critical"
    )  # fmt: skip
    told = {one["reason_code"]: (one["outcome"], one["why"]) for one in found["rules"]}
    assert told["CONTINUITY"] == ("not_asked", "process.continuity_obligation is not known")
    assert told["DUE_SOON"] == ("matched", None)
    assert told["TENANT_SERVICE"] == ("comes_later", None)
    assert set(found["facts_used"]) == {"now", "task"}
    assert (await world.client.get("/v1/tasks")).json()["items"] == []
    plain = await evaluated(world, type="echo")
    told = {one["reason_code"]: (one["outcome"], one["why"]) for one in plain["rules"]}
    assert told["TENANT_SERVICE"] == ("does_not_hold", "its condition is false for these facts")
    assert plain["reason_code"] == "DEFAULT"


async def test_a_stored_task_is_explained_by_its_own_facts_and_version(world: World) -> None:
    await seeded(world)
    due_at = (datetime.now(UTC) + timedelta(minutes=5)).isoformat()
    soon = await world.submitted(due_at=due_at)
    common = await world.submitted()
    await reclassified(world, common["task_id"], "critical")
    await put(world, TYPED)

    found = await evaluated(world, task_id=soon["task_id"])
    by_hand = await evaluated(world, task_id=common["task_id"])

    assert (found["priority_class"], found["policy_version"]) == ("deferrable", "2")
    then = found["task"]
    assert (then["agrees"], then["derived_class"], then["derived_reason_code"]) == (True, "short_deadline", "DUE_SOON")
    assert then["again"]["policy_version"] == "2026-11-30.1"
    assert (by_hand["task"]["priority_class"], by_hand["task"]["reason_code"]) == ("critical", "OVERRIDE")
    assert (by_hand["task"]["agrees"], by_hand["task"]["derived_class"]) == (True, "common")


async def test_a_tenants_key_sees_no_text_of_the_policy_and_explains_only_its_own_tasks(world: World) -> None:
    await seeded(world)
    await world.tenant("acme")
    await world.tenant("other")
    mine, theirs = await world.key("acme"), await world.key("other")
    task = await world.submitted(theirs)

    read = (await world.client.get("/v1/priority/policy", headers=mine)).json()
    refused = await world.client.post("/v1/priority/evaluate", json={"task_id": task["task_id"]}, headers=mine)
    written = await world.client.put("/v1/priority/policy", json={"document": NEXT}, headers=mine)
    found = await evaluated(world, mine, type="echo")

    assert read["document"] is None
    assert read["classes"] == ["critical", "short_deadline", "common", "deferrable"]
    problem(refused, 404, "not_found")
    problem(written, 403, "forbidden")
    assert {one["when"] for one in found["rules"]} == {None}


@pytest.mark.parametrize(
    "body", [{}, {"type": "echo", "task_id": "x"}, {"task_id": "x", "group": "g"}, {"type": "echo", "input": 1}]
)
async def test_an_evaluation_of_neither_or_both_is_refused(world: World, body: dict[str, Any]) -> None:
    problem(await world.client.post("/v1/priority/evaluate", json=body), 422, "invalid_payload")


async def reclassified(
    world: World, task_id: str, priority_class: str, headers: dict[str, str] | None = None
) -> dict[str, Any]:
    """Give a task a class for ten minutes."""
    until = (datetime.now(UTC) + timedelta(minutes=10)).isoformat()
    body = {"priority_class": priority_class, "reason": "the boss waits", "expires_at": until}
    answer = await world.client.post(f"/v1/tasks/{task_id}/reclassify", json=body, headers=headers)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def test_a_class_given_by_hand_is_listed_audited_counted_and_in_the_history(world: World) -> None:
    await world.tenant("acme")
    submitter = await world.key("acme")
    operator = await world.key(None, "operator", subject="ann")
    task = await world.submitted(submitter)

    seen = await reclassified(world, task["task_id"], "critical", operator)

    assert (seen["priority_class"], seen["priority_reason_code"]) == ("critical", "OVERRIDE")
    (item,) = (await world.client.get("/v1/overrides", params={"state": "lasting"}, headers=submitter)).json()["items"]
    assert (item["task_id"], item["created_by"], item["derived_class"]) == (task["task_id"], "ann", "common")
    assert (await world.client.get("/v1/overrides", params={"state": "ended"})).json()["items"] == []
    (audited,) = (await world.client.get("/v1/audit", params={"target": task["task_id"]})).json()["items"]
    assert (audited["action"], audited["subject"], audited["reason"]) == ("task.reclassify", "ann", "the boss waits")
    assert b'despacho_overrides_made_total{priority_class="critical"} 1.0' in world.runtime.metrics.render()
    events = (await world.client.get(f"/v1/tasks/{task['task_id']}/events", headers=submitter)).json()["items"]
    first, second = events[:2]
    assert (first["kind"], first["reason"], first["detail"]["priority_class"]) == ("submitted", "DEFAULT", "common")
    assert (second["kind"], second["actor"], second["detail"]["to"]) == ("reclassified", "ann", "critical")
    assert json.dumps(second["detail"]).count("common") == 1


async def test_giving_a_class_needs_its_scope_a_reason_an_end_and_a_class_that_there_is(world: World) -> None:
    await world.tenant("acme")
    submitter = await world.key("acme")
    task = await world.submitted(submitter)
    path = f"/v1/tasks/{task['task_id']}/reclassify"
    good = {"priority_class": "critical", "reason": "why", "expires_at": datetime.now(UTC) + timedelta(minutes=1)}
    good["expires_at"] = str(good["expires_at"]).replace(" ", "T")

    problem(await world.client.post(path, json=good, headers=submitter), 403, "forbidden")
    for field, wrong in (("priority_class", "nope"), ("reason", ""), ("expires_at", "2020-01-01T00:00:00Z"),
                         ("expires_at", "2126-01-01T00:00:00Z"), ("expires_at", None)):  # fmt: skip
        body = problem(await world.client.post(path, json=good | {field: wrong}), 422, "invalid_payload")
        assert pointers(body) == [f"#/{field}"]
    (mine,) = await claimed(world.runtime, [task["task_id"]])
    running = (await world.client.post(path, json=good)).json()
    assert (running["status"], running["priority_class"], mine.priority_class) == ("running", "critical", "common")
