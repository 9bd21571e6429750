"""Effects over REST: listed, told in the history, resolved once, and nobody else's."""

from collections.abc import Mapping
from typing import Any

from app.domain.effects import EffectState
from app.domain.lifecycle import Move
from app.domain.outcome import Settlement
from app.ids import mint
from app.services.effects import look_after
from app.store import effects
from app.store.effects import Existing, Wanted
from app.store.flights import Claimed
from app.store.settlements import settle
from tests.api.world import World, pointers, problem
from tests.support.work import claimed, rows
from workers.sweeps.figures import run_once as count

RESOLVED = {"outcome": "confirmed", "external_id": "T-1", "reason": "seen in the ticket system"}


def wanted(task: Claimed, key: str = "k", effect_type: str = "create_ticket", seconds: float = 5.0) -> Wanted:
    """Want an effect on behalf of an attempt."""
    return Wanted(
        mint("effect"),
        mint("x"),
        task.tenant_id,
        key,
        effect_type,
        "f",
        task.task_id,
        task.type,
        task.fence,
        1,
        seconds,
        None,
    )


async def doubted(world: World, headers: dict[str, str], key: str = "k") -> tuple[str, str]:
    """Have a task dead-lettered for an effect in doubt; returns its id and the effect's."""
    task = await world.submitted(headers)
    (mine,) = await claimed(world.runtime, [task["task_id"]])
    want = wanted(mine, key)
    (effect_id,) = await effects.reserve(world.runtime.database, [want], retry_for_seconds=1)
    assert effect_id == want.effect_id
    (held,) = await effects.reserve(world.runtime.database, [wanted(mine, key)], retry_for_seconds=1)
    assert isinstance(held, Existing)
    await effects.doubt(
        world.runtime.database, held, task_id=mine.task_id, fence=mine.fence, worker_id="w", retry_for_seconds=1
    )
    await dead_for(world, mine, effect_id)
    return mine.task_id, effect_id


async def dead_for(world: World, mine: Claimed, effect_id: str) -> None:
    """Settle an attempt as the runner does when its effect is in doubt."""
    settlement = Settlement(
        mine.task_id,
        mine.fence,
        Move.DEAD_LETTER,
        "failed",
        error_type="effect_in_doubt",
        error_message=f"nobody can tell whether {effect_id} happened",
        error_retryable=False,
        dead_letter_id=mint("dead"),
    )
    await settle(world.runtime.database, [settlement])


async def _reasons(world: World, task_id: str) -> list[tuple[str, str]]:
    events: list[Mapping[str, Any]] = (await world.client.get(f"/v1/tasks/{task_id}/events")).json()["items"]
    return [(one["kind"], one["reason"]) for one in events if one["kind"] in ("effect", "reprocessed")]


async def test_an_effect_in_doubt_is_listed_resolved_once_and_its_task_goes_on(world: World) -> None:
    await world.tenant("acme")
    owner = await world.key("acme", "operator")
    task_id, effect_id = await doubted(world, owner)

    listed = (await world.client.get("/v1/effects?state=in_doubt", headers=owner)).json()["items"]
    story = (await world.client.get(f"/v1/dead-letters/{task_id}", headers=owner)).json()
    resolved = await world.client.post(f"/v1/effects/{effect_id}/resolve", headers=owner, json=RESOLVED)
    again = await world.client.post(f"/v1/effects/{effect_id}/resolve", headers=owner, json=RESOLVED)

    assert [one["effect_id"] for one in listed] == [effect_id] == [one["effect_id"] for one in story["effects"]]
    assert resolved.status_code == 200, resolved.text
    body = resolved.json()
    assert (body["state"], body["external_id"], body["reason"]) == ("confirmed", "T-1", RESOLVED["reason"])
    problem(again, 409, "effect_not_in_doubt")
    task = (await world.client.get(f"/v1/tasks/{task_id}", headers=owner)).json()
    assert task["status"] in ("queued", "failed_retryable") and task["links"]["effects"].endswith(f"{task_id}/effects")
    of_task = (await world.client.get(f"/v1/tasks/{task_id}/effects", headers=owner)).json()["items"]
    assert [one["state"] for one in of_task] == ["confirmed"]
    assert await _reasons(world, task_id) == [
        ("effect", "reserved"),
        ("effect", "in_doubt"),
        ("effect", "resolved"),
        ("reprocessed", f"effect {effect_id} resolved: {RESOLVED['reason']}"),
    ]
    trail = (await world.client.get("/v1/audit?tenant_id=acme&action=effect.resolve")).json()["items"]
    assert [(one["target"], one["reason"]) for one in trail] == [(effect_id, RESOLVED["reason"])]


async def test_every_task_that_waits_for_a_shared_key_goes_on(world: World) -> None:
    await world.tenant("acme")
    owner = await world.key("acme", "operator")
    first, effect_id = await doubted(world, owner)
    other = await world.submitted(owner)
    (mine,) = await claimed(world.runtime, [other["task_id"]])
    await dead_for(world, mine, effect_id)

    await world.client.post(
        f"/v1/effects/{effect_id}/resolve", headers=owner, json={"outcome": "not_sent", "reason": "looked"}
    )

    left = await rows(world.runtime, "SELECT task_id FROM dead_letters")
    assert left == []
    assert {first, other["task_id"]} == {
        row["task_id"] for row in await rows(world.runtime, "SELECT task_id FROM delayed")
    }


async def test_a_task_goes_on_when_the_answer_comes_late(world: World) -> None:
    await world.tenant("acme")
    task_id, effect_id = await doubted(world, await world.key("acme", "operator"))
    (row,) = await rows(world.runtime, "SELECT tokens FROM effects")

    await effects.end(
        world.runtime.database,
        [effects.Ended(effect_id, row["tokens"][0], EffectState.CONFIRMED, "T-9")],
        retry_for_seconds=1,
    )
    await rows(world.runtime, "UPDATE dead_letters SET failed_at = failed_at - interval '1 minute'")
    assert await look_after(world.runtime) == 1

    assert (await world.client.get(f"/v1/tasks/{task_id}")).json()["status"] != "dead_lettered"


async def test_bad_words_about_an_effect_are_refused_and_the_effect_stays(world: World) -> None:
    await world.tenant("acme")
    owner, reader = await world.key("acme", "operator"), await world.key("acme", "reader")
    _, effect_id = await doubted(world, owner)
    path = f"/v1/effects/{effect_id}/resolve"

    for bad in (
        {},
        {"outcome": "confirmed"},
        {"outcome": "maybe", "reason": "x"},
        {"outcome": "not_sent", "external_id": "T-1", "reason": "x"},
        {"outcome": "confirmed", "external_id": "a\0b", "reason": "x"},
        {"outcome": "confirmed", "external_id": "x" * 501, "reason": "x"},
        {"outcome": "confirmed", "external_id": 7, "reason": "x"},
        {"outcome": "confirmed", "reason": ""},
        {"outcome": "confirmed", "reason": "x", "more": 1},
    ):
        assert pointers(problem(await world.client.post(path, headers=owner, json=bad), 422, "invalid_payload"))
    problem(await world.client.post(path, headers=reader, json=RESOLVED), 403, "forbidden")
    problem(await world.client.get("/v1/effects?state=maybe", headers=owner), 422, "invalid_parameter")
    problem(await world.client.get("/v1/effects?status=in_doubt", headers=owner), 422, "invalid_parameter")
    problem(await world.client.post("/v1/effects/nonsense/resolve", headers=owner, json=RESOLVED), 404, "not_found")

    assert await rows(world.runtime, "SELECT state FROM effects") == [{"state": "in_doubt"}]


async def test_another_tenants_effect_looks_like_none(world: World) -> None:
    await world.tenant("acme")
    await world.tenant("rival")
    _, effect_id = await doubted(world, await world.key("acme", "operator"))
    rival = await world.key("rival", "operator")

    hidden = await world.client.post(f"/v1/effects/{effect_id}/resolve", headers=rival, json=RESOLVED)
    absent = await world.client.post(f"/v1/effects/{mint('effect')}/resolve", headers=rival, json=RESOLVED)

    assert hidden.status_code == 404 and hidden.json().keys() == absent.json().keys()
    assert (await world.client.get("/v1/effects", headers=rival)).json()["items"] == []
    assert len((await world.client.get("/v1/effects?tenant_id=acme")).json()["items"]) == 1


async def test_effects_come_in_pages_and_by_filter_and_are_counted(world: World) -> None:
    await world.tenant("acme")
    owner = await world.key("acme", "operator")
    made = [(await doubted(world, owner, f"k{n}"))[1] for n in range(3)]

    first = (await world.client.get("/v1/effects?page_size=2&type=create_ticket", headers=owner)).json()
    rest = (await world.client.get(f"/v1/effects?page_token={first['next_page_token']}", headers=owner)).json()
    none = (await world.client.get("/v1/effects?state=confirmed&state=not_sent", headers=owner)).json()
    await count(world.runtime)

    assert [one["effect_id"] for one in first["items"] + rest["items"]] == made[::-1]
    assert none["items"] == []
    assert b'despacho_effects_in_doubt{effect_type="create_ticket"} 3.0' in world.runtime.metrics.render()
