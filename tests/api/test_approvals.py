"""Approvals as a client meets them: lists in order, one decision, never about one's own, nobody else's seen."""

import asyncio
import json
from typing import Any

import httpx
import pytest

from app.store.settlements import settle
from tests.api.world import World, pointers, problem
from tests.support.approvals import asked, over, suspended, suspension
from tests.support.work import claimed, rows, status_of

NOBODY = "appr_01JZ8W4W9GZK4K2GZ7Q2ABCD12"
HOSTILE = {
    "to": "<img src=x onerror=alert(1)>", "why": "</script><script>alert(1)</script>", "sql": "'; DROP TABLE tasks; --",
    "esc": "\x1b[31m\u202e", "number": 1e22, "zero": -0.0,
}  # fmt: skip


async def read(world: World, path: str, **parameters: Any) -> list[dict[str, Any]]:
    """Read a list with the admin's key."""
    answer = await world.client.get(path, params=parameters)
    assert answer.status_code == 200, answer.text
    items: list[dict[str, Any]] = answer.json()["items"]
    return items


async def test_a_task_that_was_submitted_here_is_approved_here_and_goes_on(world: World) -> None:
    await world.tenant("acme")
    submitter = await world.key("acme", subject="bob")
    approver = await world.key("acme", "approver", subject="ann")
    task = await world.submitted(submitter)
    (mine,) = await claimed(world.runtime, [task["task_id"]])
    approval_id = await asked(world.runtime, mine, "send_mail", detail=HOSTILE)
    await settle(world.runtime.database, [suspension(mine, approval_id)])

    (item,) = (await world.client.get("/v1/approvals", headers=approver)).json()["items"]
    decided = await world.client.post(
        f"/v1/approvals/{approval_id}/approve", json={"comment": "go <b>"}, headers=approver
    )

    assert item == (await world.client.get(f"/v1/approvals/{approval_id}")).json() | {
        "state": "pending", "decided_at": None, "decided_by": None, "comment": None
    }  # fmt: skip
    assert (item["approval_id"], item["task_id"]) == (approval_id, task["task_id"])
    assert (item["type"], item["tenant_id"], item["priority_class"]) == ("echo", "acme", "common")
    assert (item["action"], item["detail"], item["submitted_by"]) == ("send_mail", HOSTILE, "bob")
    assert item["asked_at"] < item["due_at"] <= item["expires_at"]
    assert decided.status_code == 200
    assert (decided.json()["state"], decided.json()["decided_by"]) == ("approved", "ann")
    seen = (await world.client.get(task["links"]["self"], headers=submitter)).json()
    assert (seen["status"], seen["attempts"]) == ("queued", 0)
    events = (await world.client.get(f"{task['links']['self']}/events", headers=submitter)).json()["items"]
    told = [(one["kind"], one["reason"], one["actor"]) for one in events if one["kind"].startswith("approval")]
    assert told == [("approval_asked", None, "handler"), ("approval_approved", "go <b>", "ann")]
    assert (await world.client.get("/v1/approvals", headers=approver)).json()["items"] == []
    audited = await read(world, "/v1/audit", target=approval_id)
    assert [(one["action"], one["subject"], one["reason"]) for one in audited] == [
        ("approval.approve", "ann", "go <b>")
    ]


async def test_a_decision_counts_once_and_its_second_is_told_so(world: World) -> None:
    task_id, approval_id = await suspended(world.runtime)

    answers = await asyncio.gather(
        *(world.client.post(f"/v1/approvals/{approval_id}/{verb}", json={}) for verb in ["approve", "deny"] * 10)
    )

    assert sorted(answer.status_code for answer in answers) == [200] + [409] * 19
    for answer in answers:
        if answer.status_code == 409:
            assert problem(answer, 409, "approval_decided")["task_id"] == task_id
    (won,) = [answer.json()["state"] for answer in answers if answer.status_code == 200]
    assert await status_of(world.runtime, task_id) == ("queued" if won == "approved" else "rejected")


async def test_a_denied_task_tells_why(world: World) -> None:
    task_id, approval_id = await suspended(world.runtime)

    await world.client.post(f"/v1/approvals/{approval_id}/deny", json={"comment": "not this quarter"})

    task = (await world.client.get(f"/v1/tasks/{task_id}")).json()
    assert task["status"] == "rejected"
    assert task["error"] == {"type": "approval_denied", "message": "not this quarter", "retryable": False}


async def test_nobody_decides_about_their_own_task_admins_of_the_platform_included(world: World) -> None:
    task = await world.submitted(None)
    (mine,) = await claimed(world.runtime, [task["task_id"]])
    approval_id = await asked(world.runtime, mine)
    await settle(world.runtime.database, [suspension(mine, approval_id)])

    for verb in ("approve", "deny"):
        answer = await world.client.post(f"/v1/approvals/{approval_id}/{verb}", json={"comment": "mine"})
        problem(answer, 403, "own_task")

    assert await status_of(world.runtime, task["task_id"]) == "awaiting_approval"
    other = await world.key(None, "admin", subject="another admin")
    assert (await world.client.post(f"/v1/approvals/{approval_id}/approve", json={}, headers=other)).is_success


async def test_deciding_needs_its_scope_and_reading_its_own(world: World) -> None:
    await world.tenant("acme")
    _, approval_id = await suspended(world.runtime)
    path = f"/v1/approvals/{approval_id}"

    for role, reads, decides in (
        ("submitter", 403, 403), ("reader", 200, 403), ("operator", 200, 403), ("approver", 200, 200),
    ):  # fmt: skip
        headers = await world.key("acme", role, subject=f"a {role}")
        assert (await world.client.get("/v1/approvals", headers=headers)).status_code == reads, role
        assert (await world.client.get(path, headers=headers)).status_code == reads, role
        answer = await world.client.post(f"{path}/approve", json={}, headers=headers)
        assert answer.status_code == decides, (role, answer.text)


async def test_another_tenants_approvals_look_like_none(world: World) -> None:
    await world.tenant("rival")
    task_id, approval_id = await suspended(world.runtime)
    rival = await world.key("rival", "admin", subject="mallory")

    for method, rest, body in (("GET", "", None), ("POST", "/approve", {}), ("POST", "/deny", {"comment": "no"})):
        hidden = await world.client.request(method, f"/v1/approvals/{approval_id}{rest}", json=body, headers=rival)
        absent = await world.client.request(method, f"/v1/approvals/{NOBODY}{rest}", json=body, headers=rival)
        problem(hidden, 404, "not_found")
        assert hidden.content == absent.content
    assert (await world.client.get("/v1/approvals", headers=rival)).json()["items"] == []
    named = await world.client.get("/v1/approvals", params={"task_id": task_id}, headers=rival)
    assert named.json()["items"] == []
    problem(await world.client.get("/v1/approvals?tenant_id=acme", headers=rival), 403, "forbidden")

    assert await status_of(world.runtime, task_id) == "awaiting_approval"
    await world.app.state.front.refusals.flush()
    audited = await rows(
        world.runtime, "SELECT target FROM audit WHERE action = 'tenant.crossing_refused' AND target <> 'list'"
    )
    assert [row["target"] for row in audited] == [approval_id] * 3


async def test_what_is_too_late_or_not_asked_any_more_is_refused(world: World) -> None:
    _, late = await suspended(world.runtime)
    cancelled, withdrawn = await suspended(world.runtime)
    await over(world.runtime, late)
    await world.client.post(f"/v1/tasks/{cancelled}/cancel")

    problem(await world.client.post(f"/v1/approvals/{late}/approve", json={}), 409, "approval_expired")
    problem(await world.client.post(f"/v1/approvals/{withdrawn}/deny", json={}), 409, "approval_withdrawn")

    assert await read(world, "/v1/approvals") == []
    assert [one["approval_id"] for one in await read(world, "/v1/approvals", state="expired")] == [late]
    both = await read(world, "/v1/approvals", state=["withdrawn", "expired"])
    assert {one["approval_id"] for one in both} == {late, withdrawn}


async def test_the_list_goes_by_class_and_then_by_due_time_over_its_pages(world: World) -> None:
    made = [(await suspended(world.runtime, detail={"n": n}))[1] for n in range(6)]
    classes = ["common", "critical", "common", "deferrable", "critical", "gone"]
    for n, (approval_id, name) in enumerate(zip(made, classes, strict=True)):
        await rows(
            world.runtime,
            "UPDATE approvals SET priority_class = :name, due_at = due_at - make_interval(mins => :n) "
            "WHERE approval_id = :id",
            name=name, n=n, id=approval_id,
        )  # fmt: skip
    in_order = [made[n] for n in (4, 1, 2, 0, 3, 5)]

    seen, token = [], None
    for _ in range(6):
        page = (
            await world.client.get("/v1/approvals", params={"page_size": 2} | ({"page_token": token} if token else {}))
        ).json()
        seen += [one["approval_id"] for one in page["items"]]
        token = page["next_page_token"]
        if token is None:
            break

    assert seen == in_order
    assert [one["approval_id"] for one in await read(world, "/v1/approvals", priority_class="critical")] == in_order[:2]


async def test_the_list_can_be_filtered_and_refuses_what_it_does_not_know(world: World) -> None:
    mailed, mail = await suspended(world.runtime, "mail")
    _, refund = await suspended(world.runtime, "refund")
    await world.client.post(f"/v1/approvals/{refund}/approve", json={})

    async def ids(**found: object) -> list[str]:
        return [one["approval_id"] for one in await read(world, "/v1/approvals", **found)]

    assert await ids() == await ids(action="mail") == await ids(type="echo") == await ids(tenant_id="acme") == [mail]
    assert await ids(action="refund") == await ids(type="x") == await ids(tenant_id="x") == []
    assert await ids(state="approved") == [refund]
    assert await ids(state=["approved", "pending"], task_id=mailed) == [mail]
    problem(await world.client.get("/v1/approvals?state=open"), 422, "invalid_parameter")
    problem(await world.client.get("/v1/approvals?status=pending"), 422, "invalid_parameter")
    for token in ("x", "MTp4", "MTowLDIwMjYsYXBwcg", "MToxLDIwMjYtMDEtMDFUMDA6MDA6MDAseA"):
        problem(await world.client.get("/v1/approvals", params={"page_token": token}), 422, "invalid_parameter")


@pytest.mark.parametrize(
    ("body", "status", "code", "where"),
    [
        (b"", 400, "malformed_json", []),
        (b"[]", 422, "invalid_payload", ["#"]),
        (b'{"comment": ""}', 422, "invalid_payload", ["#/comment"]),
        (b'{"comment": 7}', 422, "invalid_payload", ["#/comment"]),
        (b'{"comment": "a\\u0000b"}', 422, "invalid_payload", ["#/comment"]),
        (b'{"comment": "\\ud800"}', 422, "invalid_payload", ["#/comment"]),
        (b'{"reason": "x"}', 422, "invalid_payload", ["#"]),
        (json.dumps({"comment": "x" * 1001}).encode(), 422, "invalid_payload", ["#/comment"]),
    ],
)
async def test_a_decision_that_does_not_validate_decides_nothing(
    world: World, body: bytes, status: int, code: str, where: list[str]
) -> None:
    _, approval_id = await suspended(world.runtime)

    answer: httpx.Response = await world.client.post(f"/v1/approvals/{approval_id}/approve", content=body)

    assert pointers(problem(answer, status, code)) == where
    assert (await world.client.get(f"/v1/approvals/{approval_id}")).json()["state"] == "pending"
