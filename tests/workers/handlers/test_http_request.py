"""Delivering tasks to endpoints: what is sent, what an answer means, and callbacks that complete a task later."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import httpx
import pytest
import pytest_asyncio
from pydantic import SecretStr, ValidationError
from standardwebhooks import Webhook

from app.main import create_app
from app.outbound.signatures import secret_of
from app.services.actors import ServiceActor
from app.services.bootstrap import first_start
from app.services.cancellation import cancel_task
from app.services.dead_letters import reprocess
from app.services.submission import Submission, Submitter, prepare
from app.settings import Settings
from app.store.retention import remove_tasks
from tests.support.eventually import eventually
from tests.support.http_server import Request, Server, a_response, serving
from tests.support.rabbitmq import RabbitNode
from tests.support.work import a_tenant, rows
from tests.support.world import World, a_world
from workers.handlers.http_request import HttpRequest, opened
from workers.sweeps.retention import run_once

KEY = secret_of(b"k" * 32)
OLD_KEY = secret_of(b"o" * 32)
ACME = ServiceActor("ana", "key_1", "acme")
PLATFORM = ServiceActor("bob", "key_2", None)
TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture
def local(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let submissions name this machine."""
    monkeypatch.setenv("DESPACHO_OUTBOUND__ALLOWED_NETWORKS", "127.0.0.1,inside.example")
    monkeypatch.setenv("DESPACHO_SECRET_HOOK_KEY", f"{KEY} {OLD_KEY}")
    opened.cache_clear()
    yield
    opened.cache_clear()


@pytest_asyncio.fixture
async def server() -> AsyncIterator[Server]:
    async with serving() as made:
        yield made


@pytest_asyncio.fixture
async def world(database_url: str, rabbit: RabbitNode, local: None) -> AsyncIterator[World]:
    """An installation that may call this machine and sign for the tenant acme."""
    outbound = {
        "allowed_networks": "127.0.0.1",
        "signing_secrets": "acme/HOOK_KEY",
        "max_response_bytes": 1_000_000,
    }
    api = {"public_url": "http://despacho.example"}
    async with a_world(database_url, rabbit.url, slots=2, outbound=outbound, api=api) as opened_world:
        yield opened_world


@pytest_asyncio.fixture
async def api(world: World) -> AsyncIterator[httpx.AsyncClient]:
    """A client without a key."""
    transport = httpx.ASGITransport(create_app(world.runtime))
    async with httpx.AsyncClient(transport=transport, base_url="http://despacho.example") as client:
        yield client


async def delivered(world: World, *, max_attempts: int = 1, tenant_id: str = "acme", **fields: Any) -> str:
    """Submit one delivery; returns the task's id."""
    tenant = await a_tenant(world.runtime, tenant_id)
    submission = Submission(type="http_request", input=json.dumps(fields), max_attempts=max_attempts, traceparent=TRACE)
    task = prepare(world.runtime, tenant, "tests", False, submission)
    await Submitter(world.runtime).submit_many([task])
    return task.task_id


async def ended(world: World, task_id: str) -> Any:
    return (await world.ended([task_id]))[0]


async def waiting(world: World, task_id: str) -> None:
    """Wait until the task waits for its callback and holds no worker."""

    async def snoozed() -> bool:
        found = await rows(world.runtime, "SELECT why FROM delayed WHERE task_id = :id", id=task_id)
        return [row["why"] for row in found] == ["snoozed"]

    await eventually(snoozed)
    await eventually(lambda: world.pools[0].consumer.free_slots == 2)


def path_of(request: Request) -> str:
    return request.headers["despacho-callback-url"].removeprefix("http://despacho.example")


async def test_a_delivery_is_signed_keyed_and_traced_and_its_answer_is_the_result(world: World, server: Server) -> None:
    server.answer = lambda request: a_response(body='{"größe": [1, 1e3, null]}')
    task_id = await delivered(
        world, url=server.url("/x?a=1"), body={"größe": 1}, secret="HOOK_KEY", headers={"X-A": "b"}
    )

    row = await ended(world, task_id)

    assert (row["status"], json.loads(row["result"])) == ("done", {"größe": [1, 1000.0, None]})
    (request,) = server.requests
    assert (request.method, request.path, request.json()) == ("POST", "/x?a=1", {"größe": 1})
    for key in (KEY, OLD_KEY):
        assert Webhook(key).verify(request.body, request.headers) == {"größe": 1}
    assert request.headers["webhook-id"] == task_id
    assert request.headers["despacho-attempt"] == "1"
    assert request.headers["traceparent"] == TRACE
    assert request.headers["x-a"] == "b"
    assert task_id not in request.headers["idempotency-key"]
    assert "despacho-callback-url" not in request.headers


async def test_the_key_stays_the_same_over_attempts(world: World, server: Server) -> None:
    answers = [a_response(503, headers=[("Retry-After", "0")]), a_response(500), a_response(body="7")]
    server.answer = lambda request: answers[len(server.requests) - 1]
    task_id = await delivered(world, url=server.url(), max_attempts=3)
    for number in (1, 2):
        await _hurried(world, task_id, number)

    row = await ended(world, task_id)

    assert (row["status"], row["result"], row["attempts"]) == ("done", "7", 3)
    assert [request.headers["despacho-attempt"] for request in server.requests] == ["1", "2", "3"]
    assert len({request.headers["idempotency-key"] for request in server.requests}) == 1
    assert [one["error_type"] for one in await world.attempts(task_id)] == ["unavailable", "http_500", None]


async def _hurried(world: World, task_id: str, number: int) -> None:
    async def failed() -> bool:
        return [one["outcome"] for one in await world.attempts(task_id)] == ["failed"] * number

    await eventually(failed)
    await rows(world.runtime, "UPDATE delayed SET due_at = clock_timestamp() WHERE task_id = :id", id=task_id)


@pytest.mark.parametrize("form", ["seconds", "date"])
async def test_retry_after_is_honoured_in_both_forms(world: World, server: Server, form: str) -> None:
    when = datetime.now(UTC) + timedelta(seconds=8)
    value = "7" if form == "seconds" else format_datetime(when, usegmt=True)
    server.answer = lambda request: a_response(429, headers=[("Retry-After", value)])
    task_id = await delivered(world, url=server.url(), max_attempts=2)

    async def backs_off() -> Any:
        (row,) = await world.tasks([task_id])
        return row if row["status"] == "failed_retryable" else None

    row = await eventually(backs_off)

    assert row["error_type"] == "rate_limit"
    (attempt,) = await world.attempts(task_id)
    pause = (row["next_attempt_at"] - attempt["finished_at"]).total_seconds()
    assert 5.5 <= pause <= 12, pause
    await eventually(lambda: world.pools[0].consumer.free_slots == 2)


async def test_a_status_decides_between_another_try_and_the_dead_letters(world: World, server: Server) -> None:
    server.answer = lambda request: a_response(int(request.path[1:4]), "kanarie", headers=[("Location", "/kanarie")])
    given_up = {status: f"http_{status}" for status in (302, 400, 401, 403, 404, 409, 410, 422, 451)}
    retried = {408: "timeout", 425: "unavailable", 429: "rate_limit", 500: "http_500", 501: "http_501"}
    retried |= {502: "unavailable", 503: "unavailable", 504: "timeout", 599: "http_599"}
    ids = {
        await delivered(
            world, url=server.url(f"/{status}?q=kanarie"), max_attempts=1 if status in retried else 3
        ): status
        for status in given_up | retried
    }

    for row in await world.ended(list(ids)):
        status = ids[row["task_id"]]
        told = (row["status"], row["error_type"], row["error_retryable"], row["attempts"])
        assert told == ("dead_lettered", (given_up | retried)[status], status in retried, 1), status
        assert "kanarie" not in row["error_message"]


async def test_an_answer_that_is_no_result_or_too_large_is_given_up(world: World, server: Server) -> None:
    bodies = {"/a": b'{"a": NaN}', "/b": b'"' + b"a" * 5_000_000 + b'"'}
    server.answer = lambda request: a_response(body=bodies[request.path])
    ids = [await delivered(world, url=server.url(path), max_attempts=3) for path in bodies]

    ended_ = await world.ended(ids)

    assert [row["error_type"] for row in ended_] == ["invalid_response", "response_too_large"]
    assert [row["attempts"] for row in ended_] == [1, 1]


async def test_an_endpoint_that_drips_is_a_timeout_and_a_refused_connection_is_retried(
    world: World, server: Server
) -> None:
    async def drip(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 X\r\nContent-Length: 100000\r\n\r\n")
        for _ in range(1000):
            writer.write(b" ")
            await writer.drain()
            await asyncio.sleep(0.05)

    server.answer = lambda request: drip
    slow = await delivered(world, url=server.url(), timeout_seconds=0.5)
    closed = await delivered(world, url="http://127.0.0.1:1/")

    assert [(row["error_type"], row["error_retryable"]) for row in await world.ended([slow, closed])] == [
        ("timeout", True),
        ("connection", True),
    ]


async def test_a_name_that_leads_inside_is_a_dead_letter_at_run_time(world: World, server: Server) -> None:
    row = await ended(world, await delivered(world, url=server.url(host="inside.example"), max_attempts=1))

    assert row["error_type"] in ("forbidden_address", "connection")
    assert server.connections == 0


async def test_a_secret_that_is_not_opened_for_the_tenant_signs_nothing(world: World, server: Server) -> None:
    row = await ended(world, await delivered(world, url=server.url(), secret="HOOK_KEY", tenant_id="rival"))

    assert (row["status"], row["error_type"]) == ("dead_lettered", "undeclared_secret")
    assert server.connections == 0


async def test_a_stored_input_is_sent_as_it_is(world: World, server: Server) -> None:
    await rows(
        world.runtime,
        "INSERT INTO inputs (input_ref, tenant_id, sha256, size_bytes, content_type, content, created_at, used_at) "
        "VALUES ('input_1', 'acme', 'x', 3, 'x/y', '\\x00ff41', clock_timestamp(), clock_timestamp())",
    )

    row = await ended(world, await delivered(world, url=server.url(), body_ref="input_1", content_type="image/png"))

    assert row["status"] == "done", row["error_message"]
    assert (server.requests[0].body, server.requests[0].headers["content-type"]) == (b"\x00\xffA", "image/png")


# --- callbacks ------------------------------------------------------------------------------------------------------


async def test_a_task_waits_for_its_callback_without_a_worker_and_goes_on_at_once(
    world: World, server: Server, api: httpx.AsyncClient
) -> None:
    server.answer = lambda request: a_response(202)
    task_id = await delivered(world, url=server.url(), completion="callback")
    await waiting(world, task_id)

    called_at = time.monotonic()
    answer = await api.post(path_of(server.requests[0]), json={"result": {"done": [1, "é"]}})
    row = await ended(world, task_id)

    assert (answer.status_code, answer.json()) == (202, {"task_id": task_id})
    assert (row["status"], json.loads(row["result"]), row["attempts"]) == ("done", {"done": [1, "é"]}, 1)
    assert time.monotonic() - called_at < 5
    assert len(server.requests) == 1
    token = path_of(server.requests[0]).rpartition("/")[2]
    stored = [await rows(world.runtime, f"SELECT * FROM {table}") for table in ("callbacks", "tasks", "events")]
    assert token not in str(stored)
    again = await api.post(path_of(server.requests[0]), json={"result": 1})
    assert (again.status_code, again.json()["code"]) == (409, "callback_used")


async def test_a_call_that_comes_before_the_answer_is_not_lost(
    world: World, server: Server, api: httpx.AsyncClient
) -> None:
    def answering_late(request: Request) -> Any:
        async def answer(writer: asyncio.StreamWriter) -> None:
            called = await api.post(path_of(request), json={"result": "early"})
            assert called.status_code == 202
            writer.write(a_response(202))
            await writer.drain()

        return answer

    server.answer = answering_late
    row = await ended(world, await delivered(world, url=server.url(), completion="callback"))

    assert (row["status"], row["result"]) == ("done", '"early"')
    assert len(server.requests) == 1


async def test_an_endpoint_may_answer_at_once_although_it_could_call_back(
    world: World, server: Server, api: httpx.AsyncClient
) -> None:
    row = await ended(world, await delivered(world, url=server.url(), completion="callback"))

    assert (row["status"], row["result"]) == ("done", "{}")
    late = await api.post(path_of(server.requests[0]), json={"result": 1})
    assert (late.status_code, late.json()["code"]) == (410, "callback_closed")


async def test_an_error_that_is_called_back_ends_the_task_or_lets_it_be_delivered_again(
    world: World, server: Server, api: httpx.AsyncClient
) -> None:
    server.answer = lambda request: a_response(202)
    task_id = await delivered(world, url=server.url(), completion="callback", max_attempts=3)
    await waiting(world, task_id)
    error = {"type": "card_busy", "message": "later", "retryable": True}
    assert (await api.post(path_of(server.requests[0]), json={"error": error})).status_code == 202
    await eventually(lambda: _failed(world, task_id, ["card_busy"]))
    await rows(world.runtime, "UPDATE delayed SET due_at = clock_timestamp() WHERE task_id = :id", id=task_id)
    await eventually(lambda: len(server.requests) == 2)
    await waiting(world, task_id)

    first, second = (path_of(request) for request in server.requests)
    assert first != second
    assert (await api.post(first, json={"result": 1})).status_code == 409
    ending = {"type": "card_declined", "message": "no"}
    assert (await api.post(second, json={"error": ending})).status_code == 202
    row = await ended(world, task_id)

    assert (row["status"], row["error_type"], row["error_message"]) == ("dead_lettered", "card_declined", "no")


def _failed(world: World, task_id: str, error_types: list[str]) -> Any:
    async def seen() -> bool:
        found = [one["error_type"] for one in await world.attempts(task_id) if one["outcome"] == "failed"]
        return found == error_types

    return seen()


async def test_a_call_that_does_not_come_in_time_fails_the_attempt_and_a_late_one_still_completes_the_next(
    world: World, server: Server, api: httpx.AsyncClient
) -> None:
    server.answer = lambda request: a_response(202)
    task_id = await delivered(
        world, url=server.url(), completion="callback", callback_timeout_seconds=0.3, max_attempts=2
    )
    await eventually(lambda: _failed(world, task_id, ["callback_timeout"]))

    answer = await api.post(path_of(server.requests[0]), json={"result": "late"})
    row = await ended(world, task_id)

    assert answer.status_code == 202
    assert (row["status"], row["result"], row["attempts"]) == ("done", '"late"', 2)
    assert len(server.requests) == 1


async def test_a_cancelled_task_takes_no_call(world: World, server: Server, api: httpx.AsyncClient) -> None:
    server.answer = lambda request: a_response(202)
    task_id = await delivered(world, url=server.url(), completion="callback")
    await waiting(world, task_id)
    await cancel_task(world.runtime, ACME, task_id)

    late = await api.post(path_of(server.requests[0]), json={"result": 1})

    assert (late.status_code, late.json()["code"]) == (410, "callback_closed")
    assert (await world.task(task_id))["status"] == "cancelled"


async def test_of_calls_that_race_one_counts(world: World, server: Server, api: httpx.AsyncClient) -> None:
    server.answer = lambda request: a_response(202)
    task_id = await delivered(world, url=server.url(), completion="callback")
    await waiting(world, task_id)

    answers = await asyncio.gather(
        *(api.post(path_of(server.requests[0]), json={"result": number}) for number in range(8))
    )
    row = await ended(world, task_id)

    assert sorted(answer.status_code for answer in answers) == [202] + [409] * 7
    (winner,) = [number for number, answer in enumerate(answers) if answer.status_code == 202]
    assert row["result"] == str(winner)


async def test_what_is_no_callback_is_refused_alike_and_changes_nothing(
    world: World, server: Server, api: httpx.AsyncClient
) -> None:
    server.answer = lambda request: a_response(202)
    task_id = await delivered(world, url=server.url(), completion="callback")
    await waiting(world, task_id)
    path = path_of(server.requests[0])

    unknown = [await api.post(f"/v1/callbacks/{token}", json={"result": 1}) for token in ("x", "dsp_cb_" + "a" * 43)]
    assert {answer.status_code for answer in unknown} == {404}
    assert len({answer.content for answer in unknown}) == 1
    for body in (
        {},
        {"result": 1, "error": None},
        {"error": None},
        {"error": {"type": "a b"}},
        {"result": "\0"},
        [],
        1,
    ):
        assert (await api.post(path, json=body)).status_code == 422, body
    assert (await api.post(path, content=b'{"result": NaN}')).status_code == 400
    assert (await api.post(path, json={"result": "a" * 1_100_000})).status_code == 413
    assert (await api.post(path, content=b'{"result": 1.10}')).status_code == 202
    assert (await ended(world, task_id))["result"] == "1.1"


async def test_reprocessing_closes_the_old_addresses_and_delivers_anew(
    world: World, server: Server, api: httpx.AsyncClient
) -> None:
    server.answer = lambda request: a_response(202)
    task_id = await delivered(world, url=server.url(), completion="callback", callback_timeout_seconds=0.2)
    row = await ended(world, task_id)
    assert (row["status"], row["error_type"]) == ("dead_lettered", "callback_timeout")
    await reprocess(world.runtime, PLATFORM, task_id, "again")
    await eventually(lambda: len(server.requests) == 2)
    old, new = (path_of(request) for request in server.requests)

    assert (await api.post(old, json={"result": "old"})).status_code == 410
    called = await api.post(new, json={"result": "new"})
    row = await ended(world, task_id)

    assert called.status_code == 202
    assert (row["status"], row["result"]) == ("done", '"new"')


async def test_addresses_go_with_their_tasks(world: World, server: Server) -> None:
    done = await delivered(world, url=server.url(), completion="callback")
    fallen = await delivered(world, url=server.url("/x"), completion="callback", expect={"status": [201]})
    await world.ended([done, fallen])
    assert len(await rows(world.runtime, "SELECT * FROM callbacks")) == 2
    await rows(world.runtime, "UPDATE tasks SET finished_at = finished_at - interval '1000 days'")
    await rows(world.runtime, "UPDATE dead_letters SET failed_at = failed_at - interval '1000 days'")

    await remove_tasks(world.runtime.database, above="", now=datetime.now(UTC) + timedelta(days=2), days=1, limit=1000)
    assert [row["task_id"] for row in await rows(world.runtime, "SELECT * FROM callbacks")] == [fallen]
    await run_once(world.runtime)

    assert await rows(world.runtime, "SELECT * FROM callbacks") == []


# --- what is refused at submission ----------------------------------------------------------------------------------


async def test_the_api_refuses_urls_that_lead_inside_and_nothing_is_connected_to(
    world: World, server: Server, api: httpx.AsyncClient
) -> None:
    await first_start(
        world.runtime.database, Settings(_env_file=None, bootstrap_key=SecretStr("dsp_a-key-of-the-tests"))
    )
    api.headers["Authorization"] = "Bearer dsp_a-key-of-the-tests"
    hosts = ("[::ffff:7f00:1]", "[::1]", "localhost", "localhost.", "127.1", "0x7f.0.0.1", "2130706433", "0")
    urls = [f"http://{host}:{server.port}/?kanarie" for host in hosts]

    for url in (*urls, "http://169.254.169.254/", "file:///etc/passwd", "http://kanarie:kanarie@example.com/"):
        answer = await api.post("/v1/tasks", json={"type": "http_request", "input": {"url": url, "body": "kanarie"}})

        assert answer.status_code == 422, url
        assert answer.json()["errors"][0]["pointer"] == "#/input/url"
        assert "kanarie" not in answer.text
    assert server.connections == 0


@pytest.mark.parametrize(
    "fields",
    [
        {"url": "http://[::ffff:7f00:1]/"},
        {"url": "http://169.254.169.254/"},
        {"url": "http://localhost./"},
        {"url": "file:///etc/passwd"},
        {"url": "http://127.1/"},
        {"url": "http://user:kanarie@example.com/"},
        {"method": "TRACE"},
        {"method": "GET", "body": {}},
        {"body": 1, "body_ref": "input_1"},
        {"content_type": "a/b"},
        {"body_ref": "input_1", "content_type": "a/b\r\nX: kanarie"},
        {"headers": {"Host": "kanarie"}},
        {"headers": {"X": "kanarie\r\nY: z"}},
        {"headers": {"X:": "kanarie"}},
        {"headers": {"X": "1", "x": "2"}},
        {"headers": {"Webhook-Signature": "kanarie"}},
        {"headers": {"Despacho-Attempt": "9"}},
        {"headers": {"X": "é"}},
        {"secret": "../kanarie"},
        {"timeout_seconds": 0},
        {"timeout_seconds": 291},
        {"callback_timeout_seconds": -1},
        {"expect": {"status": [500]}},
        {"expect": {"content": "xml"}},
        {"completion": "later"},
        {"unknown": 1},
    ],
)
def test_an_input_that_cannot_be_delivered_is_refused_without_its_values(fields: dict[str, Any]) -> None:
    with pytest.raises(ValidationError) as refused:
        HttpRequest.model_validate({"url": "https://example.com/", **fields})

    assert "kanarie" not in str([error["msg"] for error in refused.value.errors()])
