"""Clocks: every process ten minutes ahead of the database, whose time is the one that counts."""

import os
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import httpx
import pytest_asyncio

from tests.support.eventually import eventually
from tests.support.install import ensure_faketime
from tests.support.installation import ADMIN_KEY, Installation
from tests.support.rabbitmq import RabbitNode
from tests.support.world import ONE_CLASS

LEASE_SECONDS = 4.0


@pytest_asyncio.fixture
async def ahead(database_url: str, rabbit: RabbitNode) -> AsyncIterator[Installation]:
    """An API with a dispatcher, and a worker, whose clocks are ten minutes ahead."""
    shifted = {
        "LD_PRELOAD": str(ensure_faketime()),
        "FAKETIME": "+10m",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        "DESPACHO_BROKER__QUEUE_PREFIX": f"clocks{os.getpid()}",
        "DESPACHO_WORKER__LEASE_SECONDS": str(LEASE_SECONDS),
    }
    installation = Installation(database_url, rabbit.url, ONE_CLASS, shifted)
    try:
        installation.start_worker("worker-0")
        await installation.start_api(dispatcher=True)
        await installation.has_workers(1)
        yield installation
    finally:
        await installation.close()


def _spell(moment: datetime) -> str:
    return moment.isoformat().replace("+00:00", "Z")


async def test_times_are_the_databases_whatever_the_clocks_of_the_processes_say(ahead: Installation) -> None:
    headers = {"Authorization": f"Bearer {ADMIN_KEY}"}
    async with httpx.AsyncClient(base_url=ahead.api_url, headers=headers, timeout=40) as client:
        now = datetime.now(UTC)
        quick = {"type": "quick", "input": {"at": str(ahead.at)}}

        useful = await client.post(
            "/v1/tasks?wait=30", json={**quick, "valid_until": _spell(now + timedelta(minutes=5))}
        )
        later = await client.post("/v1/tasks?wait=30", json={**quick, "not_before": _spell(now + timedelta(seconds=4))})
        useless = await client.post("/v1/tasks", json={**quick, "valid_until": _spell(now - timedelta(seconds=5))})

    assert (useful.status_code, useful.json()["status"], useful.json()["attempts"]) == (200, "done", 1), useful.text
    assert useless.status_code == 422
    task = later.json()
    assert task["status"] == "done"
    started = datetime.fromisoformat(task["started_at"])
    assert now + timedelta(seconds=4) <= started <= datetime.now(UTC) + timedelta(seconds=1)
    (row,) = await ahead.query(
        "SELECT min(finished_at - started_at) AS least, min(started_at - queued_at) AS wait FROM attempts"
    )
    assert row["least"] >= timedelta(0) and row["wait"] >= timedelta(0)


async def test_a_lease_of_a_shifted_worker_lasts_as_long_as_any(ahead: Installation) -> None:
    headers = {"Authorization": f"Bearer {ADMIN_KEY}"}
    async with httpx.AsyncClient(base_url=ahead.api_url, headers=headers, timeout=40) as client:
        sent = await client.post("/v1/tasks", json={"type": "hold", "input": {"at": str(ahead.at)}})
        task_id = sent.json()["task_id"]
        held_from = time.monotonic()

        async def outlived_its_lease() -> bool:
            (row,) = await ahead.query("SELECT count(*) AS n FROM flights WHERE fence IS NOT NULL")
            return row["n"] == 1 and time.monotonic() - held_from > 1.5 * LEASE_SECONDS

        await eventually(outlived_its_lease, within_seconds=30)
        (ahead.at / "go").touch()
        done = await client.get(f"/v1/tasks/{task_id}?wait=30")

    assert (done.json()["status"], done.json()["attempts"]) == ("done", 1)
    (row,) = await ahead.query("SELECT count(*) AS n FROM attempts WHERE task_id = $1", task_id)
    assert row["n"] == 1
