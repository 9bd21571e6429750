"""Effects of workers that are killed between two steps, or frozen past their lease; real processes, counted outside."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx

from tests.support.eventually import eventually
from tests.support.installation import ADMIN_KEY, Installation, an_installation
from tests.support.outside import an_outside
from tests.support.rabbitmq import RabbitNode
from tests.support.world import ONE_CLASS

_PREFIX = "effects"


@asynccontextmanager
async def _running(database_url: str, rabbit: RabbitNode) -> AsyncIterator[tuple[Installation, httpx.AsyncClient]]:
    settings = {"DESPACHO_BROKER__QUEUE_PREFIX": _PREFIX, "DESPACHO_WORKER__LEASE_SECONDS": "1.5"}
    async with an_installation(database_url, rabbit.url, ONE_CLASS, **settings) as installation:
        await installation.start_api(dispatcher=True)
        for name in ("worker-1", "worker-2"):
            installation.start_worker(name)
        await installation.has_workers(2)
        headers = {"Authorization": f"Bearer {ADMIN_KEY}"}
        async with httpx.AsyncClient(base_url=installation.api_url, headers=headers, timeout=60) as client:
            yield installation, client


async def test_killed_between_reservation_request_and_confirmation_nothing_is_accepted_twice(
    database_url: str, rabbit: RabbitNode
) -> None:
    async with an_outside() as outside, _running(database_url, rabbit) as (installation, client):
        base = {"at": str(installation.at), "url": outside.url, "call_timeout_seconds": 8.0}
        cases: dict[str, dict[str, object]] = {
            "before, asks": {"holds": "before", "reconciles": True},
            "after, asks": {"holds": "after", "reconciles": True},
            "before, cannot ask": {"holds": "before"},
            "after, cannot ask": {"holds": "after"},
            "after, key honoured": {"holds": "after", "honours_key_for_seconds": 300},
        }
        ids: dict[str, str] = {}
        for n, (name, fields) in enumerate(cases.items()):
            sent = await client.post("/v1/tasks", json={"type": "act", "input": {**base, **fields, "n": n}})
            ids[name] = sent.json()["task_id"]
        await eventually(lambda: all(installation.marks(f"held-{n}") for n in range(len(cases))), within_seconds=30)
        for worker in ("worker-1", "worker-2"):
            await installation.processes[worker].kill()
        installation.start("worker-1")

        async def ended(task_id: str) -> tuple[str, str | None]:
            task = (await client.get(f"/v1/tasks/{task_id}?wait=40")).json()
            return task["status"], (task["error"] or {}).get("type")

        endings = dict(zip(ids, await asyncio.gather(*map(ended, ids.values())), strict=True))

        done, doubt = ("done", None), ("dead_lettered", "effect_in_doubt")
        assert list(endings.values()) == [done, done, doubt, doubt, done], (endings, await installation.story())
        assert outside.arrived.total() == 5, "the honoured key was sent again"
        assert set(outside.accepted.values()) == {1} and outside.total == 4
        in_doubt = (await client.get("/v1/effects?state=in_doubt")).json()["items"]
        assert {one["task_id"] for one in in_doubt} == {ids[name] for name in cases if "cannot" in name}


async def test_a_worker_that_is_frozen_past_its_lease_brings_its_answer_home(
    database_url: str, rabbit: RabbitNode
) -> None:
    async with an_outside() as outside, _running(database_url, rabbit) as (installation, client):
        outside.hangs = True
        fields = {"at": str(installation.at), "url": outside.url, "call_timeout_seconds": 30.0}
        task_id = (await client.post("/v1/tasks", json={"type": "act", "input": fields})).json()["task_id"]
        await eventually(lambda: outside.total == 1, within_seconds=30)
        pid = int(installation.marks("starts")[0].split()[3])
        frozen = next(one for one in installation.processes.values() if one.pid == pid)

        frozen.freeze()
        await eventually(lambda: len(installation.marks("starts")) > 1, within_seconds=40)
        outside.answer_all()
        frozen.thaw()
        task = (await client.get(f"/v1/tasks/{task_id}?wait=50")).json()

        assert task["status"] == "done", (task, await installation.story())
        assert (outside.total, outside.arrived.total()) == (1, 1)
        (effect,) = (await client.get(f"/v1/tasks/{task_id}/effects")).json()["items"]
        assert (effect["state"], effect["calls"]) == ("confirmed", 1)
        assert task["result"] == {"id": effect["external_id"]}
