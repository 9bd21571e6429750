"""What handlers reach outside: the guarded client in every executor, and secrets that no text shows."""

import io
import json
from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio

from app.telemetry import logs
from tests.support.contexts import an_attempt
from tests.support.http_server import Server, a_response, serving
from tests.support.rabbitmq import RabbitNode
from tests.support.work import rows
from tests.support.world import World, a_world
from workers.outgoing import bound_headers

CANARY = "kanarie-8f2c1d"
CALLS = ("call_out", "call_out_thread", "call_out_process")


@pytest.fixture
def secret(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("DESPACHO_SECRET_TEST_TOKEN", CANARY)
    yield


@pytest_asyncio.fixture
async def server() -> AsyncIterator[Server]:
    async with serving(lambda request: a_response(body=json.dumps({"n": 1}))) as made:
        yield made


@pytest_asyncio.fixture
async def world(database_url: str, rabbit: RabbitNode) -> AsyncIterator[World]:
    """An installation that may call this machine."""
    async with a_world(
        database_url,
        rabbit.url,
        outbound={"allowed_networks": "127.0.0.1"},
        modules=["tests.support.http_tasks"],
    ) as opened:
        yield opened


async def test_handlers_of_every_kind_call_out_with_their_secret(world: World, secret: None, server: Server) -> None:
    ids = [(await world.submit(kind, url=server.url()))[0] for kind in CALLS]

    ended = await world.ended(ids)

    assert [(row["status"], row["result"]) for row in ended] == [("done", '{"n":1}')] * 3, ended
    assert [request.headers["authorization"] for request in server.requests] == [f"Bearer {CANARY}"] * 3


async def test_an_address_that_is_not_opened_is_a_dead_letter_without_a_connection(
    world: World, secret: None, server: Server
) -> None:
    ids = [(await world.submit(kind, url=server.url("/?token=kanarie", host="localhost")))[0] for kind in CALLS]

    ended = await world.ended(ids)

    assert [(row["status"], row["error_type"]) for row in ended] == [("dead_lettered", "forbidden_address")] * 3
    assert server.connections == 0
    assert "kanarie" not in str([row["error_message"] for row in ended])


async def test_a_status_is_classified_and_its_message_has_no_query(world: World, secret: None, server: Server) -> None:
    server.answer = lambda request: a_response(404)
    ids = [(await world.submit(kind, url=server.url("/x?token=kanarie")))[0] for kind in CALLS]

    ended = await world.ended(ids)

    assert [(row["status"], row["error_type"]) for row in ended] == [("dead_lettered", "http_404")] * 3
    assert "kanarie" not in str([row["error_message"] for row in ended])


async def test_an_undeclared_secret_is_refused_by_name(world: World, secret: None, server: Server) -> None:
    ids = [(await world.submit(kind, url=server.url(), name="DATABASE_URL"))[0] for kind in CALLS]

    ended = await world.ended(ids)

    assert {row["error_type"] for row in ended} == {"undeclared_secret"}
    assert all("DATABASE_URL" in row["error_message"] and "@task_type" in row["error_message"] for row in ended)
    assert server.connections == 0


async def test_a_missing_secret_fails_the_attempt_before_its_handler(world: World, server: Server) -> None:
    (task_id,) = await world.submit("call_out", url=server.url())

    (row,) = await world.ended([task_id])

    assert (row["status"], row["error_type"]) == ("dead_lettered", "missing_secret")
    assert "DESPACHO_SECRET_TEST_TOKEN" in row["error_message"]
    assert server.connections == 0


async def test_a_secret_is_in_no_log_error_event_metric_or_dead_letter(
    world: World, secret: None, capfd: pytest.CaptureFixture[str]
) -> None:
    lines = io.StringIO()
    logs.configure("INFO", "test", stream=lines)
    try:
        ids = [(await world.submit(kind))[0] for kind in ("leak", "leak_process")]
        ended = await world.ended(ids)
    finally:
        logs.shutdown()

    assert [row["error_type"] for row in ended] == ["ValueError", "ValueError"]
    assert "using [redacted]" in lines.getvalue()
    stored = [
        await rows(world.runtime, f"SELECT * FROM {table}") for table in ("tasks", "attempts", "dead_letters", "events")
    ]
    everything = [lines.getvalue(), str(stored), str(capfd.readouterr()), world.runtime.metrics.render().decode()]
    assert all(CANARY not in text for text in everything)


def test_a_call_carries_the_trace_on_unless_it_names_its_own() -> None:
    owner = an_attempt()
    traced = type(owner)(**{name: getattr(owner, name) for name in owner.__slots__} | {"traceparent": "00-a"})

    assert bound_headers(owner, None) == {}
    assert bound_headers(traced, {"X": "1"}) == {"X": "1", "traceparent": "00-a"}
    assert bound_headers(traced, {"Traceparent": "00-b"}) == {"Traceparent": "00-b"}
