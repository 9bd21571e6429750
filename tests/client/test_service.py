"""Both clients against the real API and a real database: every noun, and what a retry must never do twice."""

import asyncio
import secrets
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.client import (
    ApiError,
    Client,
    Refused,
    ResultWithheld,
    StillRunning,
    TaskCancelled,
    TaskFailed,
)
from app.client.clients import PlainClient
from app.client.shells import Setup
from app.client.target import Secret, Target
from tests.api.world import ADMIN_KEY, World
from tests.client.speaking import QUICK, Speaker, a_speaker
from tests.support.work import dead, finished, rows


def unique() -> str:
    """Make a name that no other test has."""
    return f"t{secrets.token_hex(6)}"


async def count_tasks(world: World) -> int:
    """Count the tasks that there are."""
    return int((await rows(world.runtime, "SELECT count(*) AS n FROM tasks"))[0]["n"])


async def test_a_task_is_submitted_waited_for_and_answered(world: World, speak: Speaker) -> None:
    handle = await speak(
        lambda client: client.submit(
            "order", {"item": "ação", "amount": 1.5}, group="finance", metadata={"n": 1},
            source={"ref": "crm:1"}, due_at=datetime.now(UTC) + timedelta(hours=1), max_attempts=2,
        )
    )  # fmt: skip
    with pytest.raises(StillRunning):
        await speak.of(lambda: handle.result(wait=0))
    waiting = asyncio.create_task(speak.of(lambda: handle.result(wait=30)))
    await asyncio.sleep(0)
    await finished(world.runtime, [handle.task_id], result='{"total": 12.50}')

    assert await waiting == {"total": 12.5}
    assert (handle.task.group, handle.task.max_attempts, handle.task.metadata) == ("finance", 2, {"n": 1})
    assert handle.task.source.ref == "crm:1"
    assert handle.task.finished_at.tzinfo is not None
    assert handle.task.usage.cost_usd == Decimal(0)
    assert await speak.of(handle.result) == {"total": 12.5}


async def test_a_cancelled_task_is_raised_by_its_kind(world: World, speak: Speaker) -> None:
    handle = await speak(lambda client: client.submit("echo", {"a": 1}))

    assert (await speak.of(lambda: handle.cancel("not needed"))).status == "cancelled"
    assert (await speak.of(lambda: handle.cancel())).status == "cancelled"
    with pytest.raises(TaskCancelled) as cancelled:
        await speak.of(handle.result)
    assert cancelled.value.status == "cancelled"


async def test_an_answer_that_was_lost_after_the_commit_makes_one_task(world: World, url: str, kind: str) -> None:
    class LosesAnswers:
        """Lets requests through and loses the first answers."""

        def __init__(self) -> None:
            self.left = 2

        def lose(self) -> None:
            if self.left:
                self.left -= 1
                raise httpx.ReadError("lost")

    losing = LosesAnswers()

    class Blocking(httpx.HTTPTransport):
        def handle_request(self, request: httpx.Request) -> httpx.Response:
            answer = super().handle_request(request)
            answer.read()
            losing.lose()
            return answer

    class Awaiting(httpx.AsyncHTTPTransport):
        async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
            answer = await super().handle_async_request(request)
            await answer.aread()
            losing.lose()
            return answer

    speaker = a_speaker(kind, url, ADMIN_KEY)
    shell = speaker.client._shell
    setup = Setup(shell.setup.target, retries=QUICK, transport=Blocking() if kind == "blocking" else Awaiting())
    speaker.client._shell = type(shell)(setup)

    before = await count_tasks(world)

    handle = await speaker(lambda client: client.submit("echo", {"a": 1}))

    assert losing.left == 0
    assert await count_tasks(world) == before + 1
    assert (await speaker.of(handle.refresh)).status == "queued"
    await speaker.close()


async def test_the_same_key_is_the_same_task_and_another_input_is_refused(world: World, speak: Speaker) -> None:
    key = unique()
    first = await speak(lambda client: client.submit("echo", {"a": 1, "b": 2}, idempotency_key=key))
    again = await speak(lambda client: client.submit("echo", {"b": 2, "a": 1}, idempotency_key=key))

    with pytest.raises(ApiError) as refused:
        await speak(lambda client: client.submit("echo", {"a": 2}, idempotency_key=key))

    assert first.task_id == again.task_id
    assert refused.value.code == "idempotency_key_reused"


async def test_what_does_not_validate_is_told_with_pointers(world: World, speak: Speaker) -> None:
    with pytest.raises(ApiError) as refused:
        await speak(lambda client: client.submit("order", {"item": "hidden-word"}))

    assert (refused.value.code, refused.value.status, refused.value.retryable) == ("invalid_payload", 422, False)
    assert refused.value.errors[0].pointer == "#/input/amount"
    assert "hidden-word" not in str(refused.value)


async def test_many_are_submitted_listed_and_waited_for(world: World, speak: Speaker) -> None:
    group = unique()
    items: list[dict[str, Any]] = [{"type": "echo", "input": n, "group": group} for n in range(60)]
    items[7] = {"type": "nope"}

    became = await speak(lambda client: client.submit_many(items))
    handles = [one for one in became if not isinstance(one, Refused)]
    await finished(world.runtime, [handle.task_id for handle in handles])
    tasks = await speak(lambda client: client.wait_all(handles, wait=30))

    assert isinstance(became[7], Refused) and became[7].problem.code == "unknown_task_type"
    assert [task.task_id for task in tasks] == [handle.task_id for handle in handles]
    listed = await speak(lambda client: client.tasks.list(group=group, status=["done", "queued"], include_result=True))
    assert sorted(task.task_id for task in listed) == sorted(task.task_id for task in tasks)


async def test_documents_are_stored_by_path_and_by_bytes_and_read_back(
    world: World, speak: Speaker, tmp_path: Path
) -> None:
    path = tmp_path / "a document.txt"
    path.write_bytes(b"\x00\xff text")

    by_path = await speak(lambda client: client.inputs.store(path, "text/plain"))
    by_bytes = await speak(lambda client: client.inputs.store(path.read_bytes(), "text/plain"))

    assert by_path == by_bytes
    assert by_path.size_bytes == 7
    assert await speak(lambda client: client.inputs.read(by_path.input_ref)) == b"\x00\xff text"
    handle = await speak(lambda client: client.submit("echo", input_ref=by_path.input_ref))
    assert handle.task.input_ref == by_path.input_ref
    with pytest.raises(FileNotFoundError):
        await speak(lambda client: client.inputs.store(tmp_path / "missing"))


async def test_dead_letters_are_seen_and_put_back(world: World, speak: Speaker) -> None:
    handles = [await speak(lambda client: client.submit("echo", {"a": 1}, tenant_id=None)) for _ in range(3)]
    ids = [handle.task_id for handle in handles]
    error_type = unique()
    await dead(world.runtime, ids, error_type=error_type)

    with pytest.raises(TaskFailed, match="it did not work") as failed:
        await speak.of(handles[0].result)
    summary = await speak(lambda client: client.dead_letters.summary())
    listed = await speak(lambda client: client.dead_letters.list(error_type=error_type))
    story = await speak(lambda client: client.dead_letters.get(ids[0]))
    dry = await speak(lambda client: client.dead_letters.reprocess_dry_run(error_type=[error_type]))
    back = await speak(lambda client: client.dead_letters.reprocess(ids[0], "mended"))
    action = await speak(lambda client: client.dead_letters.reprocess_many("mended", error_type=error_type, limit=1))

    assert (failed.value.status, failed.value.error.type) == ("dead_lettered", error_type)
    assert [group.count for group in summary.items if group.error_type == error_type] == [3]
    assert sorted(letter.task_id for letter in listed) == sorted(ids)
    assert (story.item.task_id, len(story.attempts), story.attempts[0].outcome) == (ids[0], 1, "dead_lettered")
    assert story.history[-1].at.tzinfo is not None
    assert dry.matched == 3
    assert back.status == "queued"
    assert (action.state, action.matched) == ("running", 1)
    assert (await speak(lambda client: client.bulk_actions.abort(action.bulk_action_id))).state == "aborted"
    assert (await speak(lambda client: client.bulk_actions.wait(action.bulk_action_id))).state == "aborted"
    assert len(await speak(lambda client: client.dead_letters.sample(5, error_type=error_type))) == 2
    assert (await speak(lambda client: client.dead_letters.purge("old", error_type=error_type))).kind == "purge"


async def test_what_operators_and_admins_do(world: World, speak: Speaker) -> None:
    task = (await speak(lambda client: client.submit("echo", not_before="2126-01-01T00:00:00Z"))).task

    assert task.status == "scheduled"
    assert (await speak(lambda client: client.tasks.retry_now(task.task_id))).task_id == task.task_id
    assert (await speak(lambda client: client.tasks.handle(task.task_id))).status in ("scheduled", "queued")
    assert await speak(lambda client: client.tasks.attempts(task.task_id)) == []
    assert (await speak(lambda client: client.tasks.events(task.task_id)))[0].kind
    assert {one.name for one in await speak(lambda client: client.task_types.list())} == {"echo", "order"}
    assert (await speak(lambda client: client.task_types.get("order"))).input_schema["required"] == ["item", "amount"]
    assert (await speak(lambda client: client.classes.list()))[0].name
    assert await speak(lambda client: client.workers.list()) == []
    name = unique()

    pause = await speak(lambda client: client.pauses.create("type:echo", "provider down"))
    assert pause.pause_id in {one.pause_id for one in await speak(lambda client: client.pauses.list())}
    assert await speak(lambda client: client.pauses.delete(pause.pause_id)) is None

    schedule = await speak(lambda client: client.schedules.create(name, "0 7 * * *", {"type": "echo", "input": 1}))
    assert (await speak(lambda client: client.schedules.get(schedule.schedule_id))).next_fire_at.tzinfo is not None
    assert name in {one.name for one in await speak(lambda client: client.schedules.list())}
    await speak(lambda client: client.schedules.delete(schedule.schedule_id))

    tenant = await speak(lambda client: client.tenants.create(name, quotas={"max_open_tasks": 5}))
    assert tenant.quotas.max_open_tasks == 5
    assert name in {one.tenant_id for one in await speak(lambda client: client.tenants.list())}
    key = await speak(lambda client: client.keys.create(name, role="submitter", subject="robot"))
    assert key.key.startswith("dsp_") and key.key not in repr(key)
    assert [one.key_id for one in await speak(lambda client: client.keys.list(tenant_id=name))] == [key.key_id]
    await speak(lambda client: client.keys.revoke(key.key_id))
    assert {one.action for one in await speak(lambda client: client.audit.list(at_most=100))}

    action = await speak(lambda client: client.tasks.cancel_many("clean", type=["echo"]))
    assert action.kind == "cancel"
    assert (await speak(lambda client: client.health.ready())).checks["database"] == "ok"
    assert "despacho" in await speak(lambda client: client.health.metrics())
    assert (await speak(lambda client: client.raw.get("/v1/tasks")))["items"]


async def test_a_reader_is_told_that_results_are_not_for_it(world: World, url: str, kind: str) -> None:
    task = await world.submitted()
    await finished(world.runtime, [task["task_id"]], result='"secret"')
    key = (await world.key("default", "reader"))["Authorization"].removeprefix("Bearer ")
    reader = a_speaker(kind, url, key)

    handle = await reader(lambda client: client.tasks.handle(task["task_id"]))
    with pytest.raises(ResultWithheld):
        await reader.of(handle.result)

    with pytest.raises(ApiError) as refused:
        await reader(lambda client: client.submit("echo"))
    assert refused.value.status == 403
    await reader.close()


async def test_a_key_of_nobody_is_refused_without_being_shown(url: str, kind: str) -> None:
    stranger = a_speaker(kind, url, "dsp_hidden-word")

    with pytest.raises(ApiError) as refused:
        await stranger(lambda client: client.tasks.list())

    assert refused.value.status == 401
    assert "hidden-word" not in repr(refused.value) + str(refused.value)
    await stranger.close()


async def test_eight_threads_share_one_client(world: World, url: str) -> None:
    def work(number: int) -> list[str]:
        handles = [client.submit("echo", {"n": number}, group="shared") for _ in range(5)]
        return [handle.refresh().task_id for handle in handles]

    before = await count_tasks(world)
    with Client(url, ADMIN_KEY) as client, ThreadPoolExecutor(8) as pool:
        futures = [asyncio.wrap_future(pool.submit(work, number)) for number in range(8)]
        ids = [task_id for found in await asyncio.gather(*futures) for task_id in found]

    assert len(set(ids)) == 40
    assert await count_tasks(world) == before + 40


async def test_many_coroutines_share_one_client(world: World, url: str) -> None:
    speaker = a_speaker("asyncio", url, ADMIN_KEY)
    async with speaker.client as client:
        handles = await asyncio.gather(*(client.submit("echo", {"n": n}) for n in range(40)))
        tasks = await asyncio.gather(*(client.tasks.get(handle.task_id) for handle in handles))

    assert len({task.task_id for task in tasks}) == 40


async def test_plain_answers_are_the_same_bytes_read_as_json(world: World, url: str) -> None:
    task = await world.submitted()
    plain = PlainClient(Setup(Target(url, Secret(ADMIN_KEY)), typed=False))

    shown = await asyncio.to_thread(plain.tasks.get, task["task_id"])

    assert shown == (await world.client.get(f"/v1/tasks/{task['task_id']}")).json()
    plain.close()
