"""Events of ended tasks: one per end, delivered at least once under one id, and no receiver in the way of another."""

import asyncio
import json
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import pytest
from sqlalchemy import text
from standardwebhooks.webhooks import Webhook, WebhookVerificationError

from app.domain.lifecycle import FINAL, Move, TaskStatus
from app.domain.outcome import Settlement
from app.domain.webhooks import Try
from app.ids import is_id
from app.runtime import Runtime
from app.services import webhook_secrets, webhooks
from app.services.actors import ServiceActor
from app.services.errors import Conflict
from app.store import webhooks as store
from app.store.cancellations import cancel
from app.store.settlements import settle
from app.store.tasks import move_sql
from tests.support.eventually import eventually
from tests.support.http_server import Request, a_response, serving
from tests.support.webhooks import a_calling_runtime, events_of, of_task
from tests.support.work import a_tenant, claimed, dead, finished, rows, submitted
from workers.sweeps import expiry
from workers.webhook_sender import WebhookSender
from workers.webhooks import WebhookLoop

OPERATOR = ServiceActor("ana", "key_1")


@asynccontextmanager
async def delivering(runtime: Runtime) -> AsyncIterator[WebhookLoop]:
    """Let a leader's loop run."""
    loop, stop = WebhookLoop(runtime), asyncio.Event()
    loop.active(True)
    running = asyncio.create_task(loop.run(stop))
    try:
        yield loop
    finally:
        stop.set()
        await running


async def made_due(runtime: Runtime) -> None:
    """Have every lease and every pause be over."""
    await rows(runtime, "UPDATE webhooks SET next_try_at = clock_timestamp() WHERE state = 'waiting'")


async def _moved(runtime: Runtime, move: Move, task_id: str) -> None:
    async with runtime.database.transaction() as connection:
        sql = move_sql(move, "(SELECT CAST(:task_id AS text) AS task_id)", "finished_at = clock_timestamp()")
        await connection.execute(text(sql), {"task_id": task_id})


async def _cancelled(runtime: Runtime, *task_ids: str) -> None:
    async with runtime.database.transaction() as connection:
        await cancel(connection, task_ids, actor="ana", reason=None)


async def test_every_kind_of_end_makes_exactly_one_event_and_nothing_else_makes_one(database_url: str) -> None:
    async with a_calling_runtime(database_url) as runtime:
        ids = await submitted(runtime, 8, callback_url="http://127.0.0.1:9/hook?token=secret")
        done, letter, waiting, running, over, superseded, rejected, open_ = ids
        (silent,) = await submitted(runtime)

        await finished(runtime, [done, silent])
        await dead(runtime, [letter])
        await _cancelled(runtime, waiting)
        (mine,) = await claimed(runtime, [running])
        await _cancelled(runtime, running)
        await settle(runtime.database, [Settlement(running, mine.fence, Move.CANCEL, "cancelled")])
        await rows(runtime, "UPDATE ready SET valid_until = submitted_at WHERE task_id = :id", id=over)
        await expiry.run_once(runtime)
        await _moved(runtime, Move.SUPERSEDE, superseded)
        await _moved(runtime, Move.REJECT, rejected)

        found = await events_of(runtime, *ids, silent)
        assert sorted((row["task_id"], row["event"]) for row in found) == sorted(
            [
                (done, "task.done"), (letter, "task.dead_lettered"), (waiting, "task.cancelled"),
                (running, "task.cancelled"), (over, "task.expired"), (superseded, "task.superseded"),
                (rejected, "task.rejected"),
            ]
        )  # fmt: skip
        assert {row["event"].removeprefix("task.") for row in found} == {str(one) for one in FINAL}
        assert all(is_id("webhook", row["webhook_id"]) for row in found)
        assert {row["host"] for row in found} == {"127.0.0.1:9"}
        assert open_ not in {row["task_id"] for row in found}


async def test_a_reprocessed_dead_letter_tells_of_its_next_end_too(database_url: str) -> None:
    async with a_calling_runtime(database_url) as runtime, serving() as receiver:
        (task_id,) = await submitted(runtime, callback_url=receiver.url())
        await dead(runtime, [task_id])
        await rows(runtime, "UPDATE tasks SET status = 'queued', finished_at = NULL, error_type = NULL")
        await rows(runtime, "UPDATE tasks SET status = 'done', finished_at = clock_timestamp()")

        async with delivering(runtime):
            await eventually(lambda: len(receiver.requests) == 2)

        told = {one.json()["type"]: one for one in receiver.requests}
        assert told.keys() == {"task.dead_lettered", "task.done"}
        assert told["task.dead_lettered"].json()["data"]["error"]["type"] == "timeout"
        assert told["task.done"].json()["data"]["error"] is None
        assert len({one.headers["webhook-id"] for one in receiver.requests}) == 2


async def test_one_receiver_hangs_one_fails_twice_and_the_third_hears_at_once(database_url: str) -> None:
    over = asyncio.Event()

    async def hang(_: asyncio.StreamWriter) -> None:
        await over.wait()

    async with (
        a_calling_runtime(database_url, try_timeout_seconds=1.0) as runtime,
        serving(lambda _: hang) as hanging,
        serving(lambda _: a_response(500 if len(failing.requests) < 3 else 204)) as failing,
        serving() as fine,
        delivering(runtime),
    ):
        made = await webhook_secrets.create(runtime, OPERATOR, (await a_tenant(runtime)).tenant_id, overlap_seconds=0)
        first, second = (
            await submitted(runtime, 2, callback_url=hanging.url()),
            await submitted(runtime, callback_url=failing.url()),
        )
        third = await submitted(runtime, callback_url=fine.url("/hook?token=secret"))
        await finished(runtime, [*first, *second])
        await eventually(lambda: hanging.connections >= 2)
        began = time.monotonic()
        await finished(runtime, third)

        await eventually(lambda: fine.requests)
        assert time.monotonic() - began < 4
        assert fine.requests[0].path == "/hook?token=secret"
        await eventually(lambda: len(failing.requests) == 3)
        assert len({one.headers["webhook-id"] for one in failing.requests}) == 1
        assert len({one.body for one in failing.requests}) == 1
        for request in (*failing.requests, *fine.requests):
            Webhook(made.secret).verify(request.body, request.headers)
            with pytest.raises(WebhookVerificationError):
                Webhook(made.secret).verify(request.body + b" ", request.headers)
        await eventually(lambda: _all_settled(runtime), within_seconds=40)
        over.set()

        (row,) = await events_of(runtime, second[0])
        assert (row["state"], row["tries"], row["last_status_code"]) == ("delivered", 3, 204)
        given_up = await events_of(runtime, *first)
        assert {(row["state"], row["tries"], row["last_error_type"]) for row in given_up} == {("failed", 3, "timeout")}
        (longest,) = await rows(runtime, "SELECT max(seconds) AS s FROM webhook_tries")
        assert 0.9 < longest["s"] < 10
        kinds = await rows(runtime, "SELECT DISTINCT kind, reason FROM events WHERE kind LIKE 'webhook%' ORDER BY kind")
        assert kinds == [
            {"kind": "webhook_delivered", "reason": "task.done"},
            {"kind": "webhook_failed", "reason": "task.done"},
        ]


async def _all_settled(runtime: Runtime) -> bool:
    return not await rows(runtime, "SELECT 1 FROM webhooks WHERE state = 'waiting' LIMIT 1")


async def test_what_is_taken_leaves_room_for_other_hosts_and_tenants(database_url: str) -> None:
    async with a_calling_runtime(database_url) as runtime:
        for tenant_id, host in (("acme", "a.example.com"), ("acme", "b.example.com"), ("other", "a.example.com")):
            ids = await submitted(runtime, 10, tenant_id=tenant_id, callback_url=f"https://{host}/")
            await finished(runtime, ids)

        async def taken(room: store.Room) -> list[tuple[str, str]]:
            await made_due(runtime)
            found = await store.take(runtime.database, room, classes=(), lease_seconds=60, result_max_bytes=0)
            return sorted((row.tenant_id, row.host) for row in found)

        a, b, other = ("acme", "a.example.com"), ("acme", "b.example.com"), ("other", "a.example.com")
        assert Counter(await taken(store.Room(100, 4, 100, {}, {}))).total() == 8
        assert Counter(await taken(store.Room(100, 20, 100, {}, {}))) == {a: 10, b: 10, other: 10}
        assert Counter(await taken(store.Room(100, 4, 100, {"a.example.com": 4}, {}))) == {b: 4}
        assert Counter(await taken(store.Room(100, 20, 5, {}, {"other": 3}))).total() == 7
        assert len(await taken(store.Room(3, 20, 20, {}, {}))) == 3
        assert (
            await store.take(
                runtime.database, store.Room(3, 0, 20, {}, {}), classes=(), lease_seconds=60, result_max_bytes=0
            )
            == []
        )


async def test_a_name_that_leads_inside_at_delivery_is_never_connected_to(database_url: str) -> None:
    async def rebound(host: str, port: int) -> list[str]:
        return ["93.184.216.34", "127.0.0.1"]

    async with a_calling_runtime(database_url, allowed=(), max_tries=2) as runtime, serving() as inside:
        (task_id,) = await submitted(runtime, callback_url=f"http://hooks.example.com:{inside.port}/")
        await finished(runtime, [task_id])
        loop = WebhookLoop(runtime, WebhookSender(runtime, resolver=rebound))
        for _ in range(2):
            await made_due(runtime)
            assert await loop.run_once() == 1
        await loop.close()

        (row,) = await events_of(runtime, task_id)
        assert (row["state"], row["last_error_type"], row["last_status_code"]) == ("failed", "forbidden_address", None)
        assert inside.connections == 0


async def test_who_dies_between_sending_and_recording_leaves_the_same_event_to_the_next(database_url: str) -> None:
    async with a_calling_runtime(database_url) as runtime, serving() as receiver:
        (task_id,) = await submitted(runtime, callback_url=receiver.url())
        await finished(runtime, [task_id])
        dying = WebhookLoop(runtime, _Dying(runtime))
        sending = asyncio.create_task(dying.run_once())
        await eventually(lambda: receiver.requests)
        await dying.close()
        await sending

        heir = WebhookLoop(runtime)
        assert await heir.run_once() == 0, "the lease of the dead one still holds"
        await made_due(runtime)
        assert await heir.run_once() == 1
        await heir.close()

        assert len(receiver.requests) == 2
        assert len({(one.headers["webhook-id"], one.body) for one in receiver.requests}) == 1
        (row,) = await events_of(runtime, task_id)
        assert (row["state"], row["tries"]) == ("delivered", 2)


class _Dying(WebhookSender):
    """Sends, and never comes back with the answer."""

    async def send(self, url: str, headers: Mapping[str, str], body: bytes) -> Try:
        await super().send(url, headers, body)
        await asyncio.sleep(3600)
        raise AssertionError("unreachable")


async def test_a_late_sender_settles_nothing_but_a_delivery(database_url: str) -> None:
    def a_record(state: str, number: int) -> store.TryRecord:
        status = 200 if state == "delivered" else 500
        return store.TryRecord(webhook_id, number, store.WebhookState(state), 60.0, 0.1, status, None, "{}")

    async with a_calling_runtime(database_url) as runtime:
        (task_id,) = await submitted(runtime, callback_url="http://127.0.0.1:9/")
        await finished(runtime, [task_id])
        webhook_id = (await events_of(runtime, task_id))[0]["webhook_id"]
        room = store.Room(10, 10, 10, {}, {})
        for _ in range(2):
            await made_due(runtime)
            await store.take(runtime.database, room, classes=(), lease_seconds=60, result_max_bytes=0)

        assert await store.record(runtime.database, [a_record("failed", 1)]) == set()
        with pytest.raises(Conflict):
            await webhooks.redeliver(runtime, OPERATOR, webhook_id)
        assert await store.record(runtime.database, [a_record("delivered", 1)]) == {webhook_id}
        assert await store.record(runtime.database, [a_record("failed", 2)]) == set()

        (row,) = await events_of(runtime, task_id)
        assert (row["state"], row["tries"]) == ("delivered", 2)


@pytest.mark.parametrize(
    ("answer", "state", "error_type"),
    [
        (a_response(410), "failed", "gone"),
        (a_response(301, headers=[("Location", "http://169.254.169.254/")]), "waiting", "redirected"),
        (a_response(404), "waiting", "http_404"),
        (a_response(429, headers=[("Retry-After", "600")]), "waiting", "http_429"),
        (a_response(200, b"x" * 3_000_000), "delivered", None),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nx", "delivered", None),
        (b"nonsense\r\n\r\n", "waiting", "connection"),
    ],
    ids=["gone", "redirect", "not_found", "retry_after", "large", "cut_off", "nonsense"],
)
async def test_what_is_answered_decides(database_url: str, answer: bytes, state: str, error_type: str | None) -> None:
    async with a_calling_runtime(database_url) as runtime, serving(lambda _: answer) as receiver:
        (task_id,) = await submitted(runtime, callback_url=receiver.url())
        await finished(runtime, [task_id])
        loop = WebhookLoop(runtime)
        assert await loop.run_once() == 1
        await loop.close()

        (row,) = await events_of(runtime, task_id)
        assert (row["state"], row["last_error_type"]) == (state, error_type)
        if error_type == "http_429":
            assert (row["next_try_at"] - row["last_try_at"]).total_seconds() >= 600


async def test_higher_classes_go_first_and_an_event_carries_its_trace_and_a_small_result(database_url: str) -> None:
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    async with (
        a_calling_runtime(database_url, max_in_flight=1, result_max_bytes=10) as runtime,
        serving() as receiver,
    ):
        classes = [one.name for one in runtime.policy.current.classes]
        ids = await submitted(runtime, len(classes), callback_url=receiver.url(), traceparent=trace)
        await finished(runtime, ids)
        await rows(runtime, "UPDATE tasks SET result = :r WHERE task_id = :id", r='{"a":1e22}', id=ids[-1])
        await rows(runtime, "UPDATE tasks SET result = :r WHERE task_id = :id", r='"0123456789"', id=ids[0])
        for task_id, name in zip(ids, reversed(classes), strict=True):
            await rows(runtime, "UPDATE webhooks SET priority_class = :c WHERE task_id = :id", c=name, id=task_id)
        loop = WebhookLoop(runtime)
        while await loop.run_once():
            pass
        await loop.close()

        told = [one.json()["data"] for one in receiver.requests]
        assert [one["task_id"] for one in told] == ids[::-1]
        assert receiver.requests[0].body.find(b'"result":{"a":1e22}') > 0
        assert "result" not in told[-1]
        assert {one.headers["traceparent"] for one in receiver.requests} == {trace}


async def test_a_thousand_ends_at_once_are_each_told_once(database_url: str) -> None:
    async with (
        a_calling_runtime(database_url, max_in_flight_per_host=32) as runtime,
        serving() as receiver,
        delivering(runtime),
    ):
        ids = await submitted(runtime, 1000, callback_url=receiver.url())
        await finished(runtime, ids)

        await eventually(lambda: _all_settled(runtime), within_seconds=60, every_seconds=0.1)

        assert sorted(one.json()["data"]["task_id"] for one in receiver.requests) == sorted(ids)


async def test_old_and_new_secrets_sign_side_by_side_until_the_old_one_is_over(database_url: str) -> None:
    async with a_calling_runtime(database_url) as runtime, serving() as receiver:
        await a_tenant(runtime)
        loop = WebhookLoop(runtime)

        async def told() -> Request:
            await finished(runtime, await submitted(runtime, callback_url=receiver.url()))
            await loop.run_once()
            return receiver.requests[-1]

        assert len((await told()).headers["webhook-signature"].split()) == 1
        old = await webhook_secrets.create(runtime, OPERATOR, "acme", overlap_seconds=3600)
        assert len((await told()).headers["webhook-signature"].split()) == 1, "one that nobody knows is dropped at once"
        new = await webhook_secrets.create(runtime, OPERATOR, "acme", overlap_seconds=3600)
        both = await told()
        for made in (old, new):
            Webhook(made.secret).verify(both.body, both.headers)
        await webhook_secrets.retire(runtime, OPERATOR, old.row.webhook_secret_id)
        last = await told()
        Webhook(new.secret).verify(last.body, last.headers)
        with pytest.raises(WebhookVerificationError):
            Webhook(old.secret).verify(last.body, last.headers)
        await loop.close()

        audited = await rows(runtime, "SELECT detail FROM audit WHERE action = 'webhook_secret.created'")
        assert "whsec_" not in json.dumps([dict(row) for row in audited])


async def test_a_cancelled_task_tells_of_its_cancellation_alone(database_url: str) -> None:
    async with a_calling_runtime(database_url) as runtime, serving() as receiver, delivering(runtime):
        (task_id,) = await submitted(runtime, callback_url=receiver.url())
        (mine,) = await claimed(runtime, [task_id])
        finish = Settlement(task_id, mine.fence, Move.FINISH, "done", result="null")
        stop = Settlement(task_id, mine.fence, Move.CANCEL, "cancelled")
        await asyncio.gather(settle(runtime.database, [stop]), settle(runtime.database, [finish]))
        (row,) = await rows(runtime, "SELECT status FROM tasks")

        await eventually(lambda: _all_settled(runtime))

        assert [one.json()["type"] for one in of_task(receiver, task_id)] == [f"task.{row['status']}"]
        assert row["status"] in (TaskStatus.DONE, TaskStatus.CANCELLED)


async def test_an_event_that_cannot_be_signed_is_given_up_and_not_sent_unsigned(database_url: str) -> None:
    async with a_calling_runtime(database_url, max_tries=1) as runtime, serving() as receiver:
        (task_id,) = await submitted(runtime, callback_url=receiver.url())
        await webhook_secrets.create(runtime, OPERATOR, "acme", overlap_seconds=0)
        await rows(runtime, "UPDATE webhook_secrets SET secret = 'whsec_broken'")
        await finished(runtime, [task_id])
        loop = WebhookLoop(runtime)
        await loop.run_once()
        await loop.close()

        (row,) = await events_of(runtime, task_id)
        assert (row["state"], row["last_error_type"]) == ("failed", "not_sendable")
        assert receiver.connections == 0
