"""One storm over real processes and servers: everything fails while thousands of tasks are submitted and run.

The seed is DESPACHO_STORM_SEED (default 1); it decides the tasks and the order and distance of the faults.
"""

import asyncio
import json
import os
import re
import sys
import time
from collections import Counter
from datetime import UTC, datetime, timedelta
from random import Random

import httpx
import pytest

from tests.crash.client import Client
from tests.crash.faults import PROCESSES, SERVERS, WORKERS, Faults
from tests.crash.history import violations
from tests.support.eventually import eventually
from tests.support.installation import ADMIN_KEY, Installation, an_installation
from tests.support.postgres import PrivatePostgres
from tests.support.rabbitmq import RabbitNode
from tests.support.runtimes import POLICY

TASKS = {
    "quick": 1500,
    "slow": 200,
    "flaky": 120,
    "hopeless": 80,
    "slow_thread": 150,
    "slow_process": 40,
    "deadly_once": 10,
    "deadly": 2,
}
TENANTS = ("acme", "beta", "gamma")
SUBMITTERS = 24
SUBMIT_OVER_SECONDS = 45.0
QUIET_WITHIN_SECONDS = 75.0


async def test_no_accepted_task_is_lost_doubled_or_overwritten_in_a_storm(
    postgres: PrivatePostgres, database_url: str, rabbit: RabbitNode, capsys: pytest.CaptureFixture[str]
) -> None:
    random = Random(seed := int(os.environ.get("DESPACHO_STORM_SEED", "1")))
    policy = re.sub(r'republish_after = "\d+s"', 'republish_after = "2s"', POLICY.read_text())
    started = time.monotonic()

    async with an_installation(database_url, rabbit.url, policy) as installation:
        client = Client(installation.api_url)
        faults = Faults(installation, postgres, rabbit, random)
        await _start(installation)
        ready = time.monotonic()
        numbers = await _storm(installation, client, faults, random)
        calm = time.monotonic()
        await _quiet(installation, faults)
        quiet = time.monotonic()

        tasks = await installation.query("SELECT * FROM tasks")
        attempts = await installation.query("SELECT * FROM attempts")
        found = violations(
            tasks,
            attempts,
            await installation.query("SELECT * FROM dead_letters"),
            installation.marks("starts"),
            {task_id: numbers[key] for key, task_id in client.accepted.items()},
        )
        outcomes = Counter(row["outcome"] for row in attempts)
        logged = Counter(
            str(line.get("event")) for path in installation.outputs for line in _lines(path.read_text(errors="replace"))
        )
    with capsys.disabled():
        sys.stdout.write(
            f"\nstorm: seed {seed}; {len(tasks)} tasks, {len(attempts)} attempts {dict(outcomes)}, "
            f"{len(installation.marks('starts'))} starts\n  answers {dict(client.answers)}\n"
            f"  faults {dict(faults.done)}\n  logged {dict(logged.most_common(25))}\n"
            f"  up {ready - started:.0f} s, storm {calm - ready:.0f} s, quiet {quiet - calm:.0f} s\n"
        )
    assert client.wrong == []
    assert len(client.accepted) == len(numbers) == sum(TASKS.values())
    assert not found, f"{len(found)} violations:\n" + "\n".join(found[:30])


async def _start(installation: Installation) -> None:
    await installation.start_api(dispatcher=True)
    for name in ("dispatcher-1", "dispatcher-2"):
        installation.start_dispatcher(name)
    for name in WORKERS:
        installation.start_worker(name, slots=8)
    await installation.has_leader()
    await installation.has_workers(len(WORKERS))
    async with httpx.AsyncClient(headers={"Authorization": f"Bearer {ADMIN_KEY}"}) as http:
        for tenant in TENANTS:
            answer = await http.post(
                f"{installation.api_url}/v1/tenants", json={"tenant_id": tenant, "name": tenant.title()}
            )
            assert answer.status_code == 201, answer.text


async def _storm(installation: Installation, client: Client, faults: Faults, random: Random) -> dict[str, int]:
    """Submit everything while everything fails; returns the number of each idempotency key's task."""
    kinds = random.sample([name for name, count in TASKS.items() for _ in range(count)], sum(TASKS.values()))
    numbers = {f"storm-{n}": n for n in range(len(kinds))}
    todo = list(enumerate(kinds))[::-1]
    pace = SUBMITTERS * SUBMIT_OVER_SECONDS / len(kinds)

    async def submit(http: httpx.AsyncClient, own: Random) -> None:
        while todo:
            number, kind = todo.pop()
            body: dict[str, object] = {
                "type": kind,
                "input": {"at": str(installation.at), "n": number, "seconds": round(own.uniform(0.05, 0.6), 2)},
            }
            if number % 3 == 0:
                body["due_at"] = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
            send = client.submit_twice if number % 10 == 0 else client.submit
            await send(http, f"storm-{number}", body, TENANTS[number % len(TENANTS)])
            await asyncio.sleep(own.uniform(0.0, 2 * pace))

    async with httpx.AsyncClient(limits=httpx.Limits(max_connections=64)) as http:
        await asyncio.gather(
            faults.all_of(SERVERS),
            faults.all_of(PROCESSES),
            *(submit(http, Random(random.random())) for _ in range(SUBMITTERS)),
        )
    return numbers


async def _quiet(installation: Installation, faults: Faults) -> None:
    """Wait until nothing waits, runs or is released; processes that a task took along are started again meanwhile."""

    async def nothing_open() -> bool:
        await faults.revive()
        (row,) = await installation.query(
            "SELECT (SELECT count(*) FROM ready) AS ready, (SELECT count(*) FROM delayed) AS delayed, "
            "(SELECT count(*) FROM flights WHERE fence IS NULL) AS released, "
            "(SELECT count(*) FROM flights WHERE fence IS NOT NULL) AS running, (SELECT count(*) FROM tasks "
            "WHERE status IN ('queued', 'running', 'scheduled', 'failed_retryable')) AS open"
        )
        assert not any(row.values()), dict(row)
        return True

    try:
        await eventually(nothing_open, within_seconds=QUIET_WITHIN_SECONDS, every_seconds=0.25)
    except AssertionError as error:
        raise AssertionError(f"{error}\n{await installation.story()}") from None


def _lines(output: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in output.splitlines() if line.startswith("{") and line.endswith("}")]
