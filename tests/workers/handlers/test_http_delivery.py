"""How often a delivery happens: at least once with one key, or at most once; counted by the endpoint."""

import asyncio
import json

import httpx
import pytest

from app.domain.effects import EffectState, idempotency_key_of
from app.main import create_app
from app.services.dead_letters import reprocess
from app.services.effects import resolve
from tests.support.eventually import eventually
from tests.support.http_server import Answer, Request, Server, a_response
from tests.support.work import rows
from tests.support.world import World
from tests.workers.handlers.test_http_request import PLATFORM, delivered, ended, local, path_of, server, waiting, world

__all__ = ["local", "server", "world"]


async def _silent(writer: asyncio.StreamWriter) -> None:
    await asyncio.sleep(30)


def in_turn(server: Server, *answers: Answer) -> None:
    """Let the endpoint answer so, the last one for good."""
    server.answer = lambda request: answers[min(len(server.requests), len(answers)) - 1]


async def effects_of(world: World, task_id: str) -> list[tuple[str, int]]:
    found = await rows(world.runtime, "SELECT * FROM effects WHERE task_id = :id ORDER BY effect_id", id=task_id)
    return [(row["state"], len(row["tokens"])) for row in found]


async def hurried(world: World, task_id: str) -> None:
    """Wait until the first attempt has failed, and let the next one begin."""

    async def failed() -> bool:
        return [one["outcome"] for one in await world.attempts(task_id) if one["outcome"] != "snoozed"] == ["failed"]

    await eventually(failed)
    await rows(world.runtime, "UPDATE delayed SET due_at = clock_timestamp() WHERE task_id = :id", id=task_id)


async def test_an_unanswered_delivery_is_repeated_with_the_same_key(world: World, server: Server) -> None:
    in_turn(server, _silent, a_response(body="7"))
    task_id = await delivered(world, url=server.url(), max_attempts=3, timeout_seconds=0.3)
    await hurried(world, task_id)

    row = await ended(world, task_id)

    assert (row["status"], row["result"], len(server.requests)) == ("done", "7", 2)
    keys = {(one.headers["idempotency-key"], one.headers["webhook-id"]) for one in server.requests}
    assert keys == {(idempotency_key_of("acme", f"http_request:{task_id}:delivery 1"), task_id)}
    assert await effects_of(world, task_id) == [("confirmed", 2)]


UNANSWERED: dict[str, Answer] = {
    "/silent": _silent,
    "/500": a_response(500),
    "/502": a_response(502),
    "/broken": b"HTTP/1.1 2",
}


@pytest.mark.parametrize("outcome", [EffectState.CONFIRMED, EffectState.NOT_SENT])
async def test_at_most_once_an_unanswered_delivery_is_a_doubt_for_a_person(
    world: World, server: Server, outcome: EffectState
) -> None:
    def answer(request: Request) -> Answer:
        first = [one.path for one in server.requests].count(request.path) == 1
        return UNANSWERED[request.path] if first else a_response(body="7")

    server.answer = answer
    ids = [
        await delivered(world, url=server.url(path), max_attempts=3, timeout_seconds=0.5, delivery="at_most_once")
        for path in UNANSWERED
    ]
    for task_id in ids:
        await hurried(world, task_id)

    told = {(row["status"], row["error_type"]) for row in await world.ended(ids)}

    assert (told, len(server.requests)) == ({("dead_lettered", "effect_in_doubt")}, len(UNANSWERED))
    for effect in await rows(world.runtime, "SELECT effect_id FROM effects"):
        await resolve(world.runtime, PLATFORM, effect["effect_id"], outcome, None, "looked there")

    async def done() -> bool:
        return {row["status"] for row in await world.tasks(ids)} == {"done"}

    await eventually(done)
    result, times = ("null", 1) if outcome is EffectState.CONFIRMED else ("7", 2)
    assert {row["result"] for row in await world.tasks(ids)} == {result}
    assert len(server.requests) == times * len(UNANSWERED)


async def test_what_was_answered_and_not_accepted_is_repeated_without_waiting_out_the_call(
    world: World, server: Server
) -> None:
    def answer(request: Request) -> Answer:
        first = [one.path for one in server.requests].count(request.path) == 1
        return a_response(int(request.path[1:4])) if first else a_response(body="7")

    server.answer = answer
    cases = [(status, delivery) for status in (429, 503) for delivery in ("at_least_once", "at_most_once")]
    ids = [
        await delivered(
            world, url=server.url(f"/{status}/{delivery}"), max_attempts=3, timeout_seconds=200, delivery=delivery
        )
        for status, delivery in cases
    ]
    for task_id in ids:
        await hurried(world, task_id)

    assert {(row["status"], row["result"]) for row in await world.ended(ids)} == {("done", "7")}
    for status, delivery in cases:
        mine = [one for one in server.requests if one.path == f"/{status}/{delivery}"]
        assert (len(mine), len({_key(one) for one in mine})) == (2, 1)
    assert [await effects_of(world, task_id) for task_id in ids] == [[("confirmed", 2)]] * len(ids)


@pytest.mark.parametrize(("delivery", "requests"), [("at_least_once", 2), ("at_most_once", 1)])
async def test_reprocessing_delivers_again_what_was_taken_only_at_least_once(
    world: World, server: Server, delivery: str, requests: int
) -> None:
    in_turn(server, a_response(body="{nonsense"), a_response(body="7"))
    task_id = await delivered(world, url=server.url(), delivery=delivery)
    assert (await ended(world, task_id))["error_type"] == "invalid_response"

    await reprocess(world.runtime, PLATFORM, task_id, "again")
    row = await ended(world, task_id)

    assert len(server.requests) == requests
    assert (row["status"], row["error_type"]) in [("done", None), ("dead_lettered", "invalid_response")]
    assert (row["status"] == "done") == (requests == 2)


async def test_at_most_once_a_promise_that_is_not_kept_is_not_delivered_again(world: World, server: Server) -> None:
    server.answer = lambda request: a_response(202)
    task_id = await delivered(
        world,
        url=server.url(),
        completion="callback",
        callback_timeout_seconds=0.2,
        delivery="at_most_once",
        max_attempts=3,
    )
    assert (await ended(world, task_id))["error_type"] == "callback_timeout"

    await reprocess(world.runtime, PLATFORM, task_id, "again")
    row = await ended(world, task_id)

    assert (row["status"], row["error_type"], len(server.requests)) == ("dead_lettered", "delivered_before", 1)


async def test_what_the_endpoint_gives_back_is_another_delivery_with_another_key(world: World, server: Server) -> None:
    server.answer = lambda request: a_response(202)
    task_id = await delivered(world, url=server.url(), completion="callback", delivery="at_most_once", max_attempts=3)
    await waiting(world, task_id)
    transport = httpx.ASGITransport(create_app(world.runtime))
    async with httpx.AsyncClient(transport=transport, base_url="http://despacho.example") as api:
        error = {"type": "busy", "message": "later", "retryable": True}
        await api.post(path_of(server.requests[0]), json={"error": error})
        await hurried(world, task_id)
        await eventually(lambda: len(server.requests) == 2)
        await waiting(world, task_id)
        await api.post(path_of(server.requests[1]), json={"result": 7})
    row = await ended(world, task_id)

    assert (row["status"], json.loads(row["result"])) == ("done", 7)
    assert len({_key(one) for one in server.requests}) == 2
    assert {one.headers["webhook-id"] for one in server.requests} == {task_id}
    assert await effects_of(world, task_id) == [("confirmed", 1), ("confirmed", 1)]


def _key(request: Request) -> str:
    return request.headers["idempotency-key"]
