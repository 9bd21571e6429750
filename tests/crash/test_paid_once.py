"""Agent work whose workers are killed all the time: paid once, acted once, and the cost known to the cent.

`DESPACHO_PAID_TASKS` sets how many tasks there are (1,000 for the figure of the project; the suite has fewer),
`DESPACHO_PAID_SLOTS` the slots of each of the two workers.
"""

import asyncio
import os
import sys
import time
from collections import Counter, deque
from collections.abc import Mapping
from decimal import Decimal

import httpx
import pytest

from tests.support.eventually import eventually
from tests.support.installation import ADMIN_KEY, Installation, an_installation
from tests.support.llm_provider import FakeProvider, Say, a_provider
from tests.support.outside import Outside, an_outside
from tests.support.paid_tasks import ASKED
from tests.support.rabbitmq import RabbitNode
from tests.support.runtimes import a_runtime
from tests.support.world import ONE_CLASS
from workers.sweeps import llm_calls

TASKS = int(os.environ.get("DESPACHO_PAID_TASKS", "120"))
WORKERS = ("worker-1", "worker-2")
SLOTS = int(os.environ.get("DESPACHO_PAID_SLOTS", "8"))
KILL_EVERY_SECONDS = 1.0
KILLED_SHARE = 0.8
MOST_KILLS = max(6, TASKS // 20)
"""Workers are killed until so much is done, or so often: the rest shows that what was interrupted comes to its end."""
THINKS_SECONDS = 0.15
_BATCH = 500
_WITHIN_SECONDS = 60.0 + TASKS / 2


async def test_workers_killed_every_second_pay_once_and_act_once(
    database_url: str, rabbit: RabbitNode, capsys: pytest.CaptureFixture[str]
) -> None:
    async with a_provider() as provider, an_outside() as outside:
        provider.script = lambda body: Say(silent_seconds=THINKS_SECONDS)
        outside.delay_seconds = THINKS_SECONDS
        settings = {
            "DESPACHO_TASK_MODULES": "tests.support.paid_tasks",
            "DESPACHO_BROKER__QUEUE_PREFIX": "paid",
            "DESPACHO_WORKER__LEASE_SECONDS": "1.5",
            "DESPACHO_OUTBOUND__ALLOWED_NETWORKS": "127.0.0.1",
            "DESPACHO_LLM__PROVIDERS": provider.environment(),
        }
        async with an_installation(database_url, rabbit.url, ONE_CLASS, **settings) as installation:
            await installation.start_api(dispatcher=True)
            for name in WORKERS:
                installation.start_worker(name, slots=SLOTS)
            await installation.has_workers(len(WORKERS))
            await _submit(installation, outside)
            began = time.monotonic()
            kills = await _kill_until_done(installation)
            took = time.monotonic() - began
            async with a_runtime(database_url) as runtime:
                await llm_calls.run_once(runtime, quiet_seconds=0)
            told = await _told(installation, provider, outside, kills, took)
            with capsys.disabled():
                sys.stdout.write(f"\n{told}\n")
            await _check(installation, provider, outside, kills)


async def _submit(installation: Installation, outside: Outside) -> None:
    headers = {"Authorization": f"Bearer {ADMIN_KEY}"}
    async with httpx.AsyncClient(base_url=installation.api_url, headers=headers, timeout=60) as client:
        for first in range(0, TASKS, _BATCH):
            numbers = range(first, min(TASKS, first + _BATCH))
            tasks = [{"type": "paid", "input": {"n": n, "url": outside.url}} for n in numbers]
            answer = await client.post("/v1/tasks/batch", json={"tasks": tasks})
            assert answer.status_code == 202, answer.text


async def _kill_until_done(installation: Installation) -> int:
    """Kill a worker a second, each started again at once, until most is done; then wait for all.

    It is the turn of the one that has come to work and lives longest: where a process takes longer than a second to
    start, killing them blindly would keep any from ever working.
    """
    kills = 0

    async def done() -> int:
        rows = await installation.query(
            "SELECT count(*) AS n FROM tasks WHERE status IN ('done', 'dead_lettered', 'rejected')"
        )
        return int(rows[0]["n"])

    give_up_at = time.monotonic() + _WITHIN_SECONDS
    turns = deque(WORKERS)
    while kills < MOST_KILLS and await done() < TASKS * KILLED_SHARE:
        assert time.monotonic() < give_up_at, await installation.story()
        await asyncio.sleep(KILL_EVERY_SECONDS)
        if "worker_started" in installation.processes[turns[0]].output():
            await installation.processes[turns[0]].kill()
            installation.start(turns[0])
            turns.rotate(-1)
            kills += 1

    async def all_done() -> bool:
        return await done() == TASKS

    try:
        await eventually(all_done, within_seconds=_WITHIN_SECONDS, every_seconds=0.1)
    except AssertionError as error:
        raise AssertionError(f"{error}\n{await installation.story()}") from None
    return kills


async def _told(installation: Installation, provider: FakeProvider, outside: Outside, kills: int, took: float) -> str:
    calls = await _grouped(installation, "SELECT outcome AS k, count(*) AS n FROM llm_calls GROUP BY 1")
    statuses = await _grouped(installation, "SELECT status AS k, count(*) AS n FROM tasks GROUP BY 1")
    outcomes = await _grouped(installation, "SELECT outcome AS k, count(*) AS n FROM attempts GROUP BY 1")
    cost = await installation.query("SELECT sum(cost_usd) AS cost FROM llm_calls")
    return (
        f"paid once: {TASKS} tasks in {took:.1f} s, {kills} kills of {SLOTS} slots\n"
        f"  tasks {statuses}, attempts {outcomes}\n"
        f"  model calls at the server {provider.calls} (billed {provider.cost_usd}), in the database {calls} "
        f"(cost {cost[0]['cost']})\n"
        f"  effects: {len(outside.accepted)} keys, {outside.total} accepted, {outside.arrived.total()} requests, "
        f"{outside.asked.total()} questions"
    )


async def _grouped(installation: Installation, statement: str) -> Mapping[str, int]:
    return {str(row["k"]): int(row["n"]) for row in await installation.query(statement)}


async def _check(installation: Installation, provider: FakeProvider, outside: Outside, kills: int) -> None:
    statuses = await _grouped(installation, "SELECT status AS k, count(*) AS n FROM tasks GROUP BY 1")
    assert statuses == {"done": TASKS}, await installation.story()
    states = await _grouped(installation, "SELECT state AS k, count(*) AS n FROM effects GROUP BY 1")
    assert states == {"confirmed": TASKS}, "nothing is in doubt, and nothing was seen by nobody"
    assert len(outside.accepted) == outside.total == TASKS, "every key was accepted once"
    assert provider.calls <= TASKS + kills * SLOTS
    await _check_cost(installation, provider)


async def _check_cost(installation: Installation, provider: FakeProvider) -> None:
    """Compare task by task what the database says was paid with what the server counts.

    A call whose worker died before the answer is `unanswered` and is taken to have cost what such calls cost: the
    server bills what it has read, whoever is still there to hear it. Only a worker that died between the intent and
    the request leaves a row too many: the database may overestimate by exactly these, and never knows too little.
    """
    asked = Counter(str(body["messages"][0]["content"]) for body in provider.requests)
    rows = await installation.query(
        "SELECT CAST(t.input AS json) ->> 'n' AS n, count(*) AS calls, sum(c.cost_usd) AS cost, "
        "count(*) FILTER (WHERE c.outcome = 'answered') AS answered, "
        "count(*) FILTER (WHERE c.outcome NOT IN ('answered', 'unanswered')) AS other "
        "FROM llm_calls c JOIN tasks t USING (task_id) GROUP BY 1"
    )
    one = provider.cost_usd / provider.answered
    unsent = 0
    for row in rows:
        seen = asked[ASKED.format(n=row["n"])]
        assert (row["answered"], row["other"]) == (1, 0), dict(row)
        assert row["calls"] >= seen >= 1, "every call that arrived was written down before"
        assert Decimal(row["cost"]) == one * row["calls"]
        unsent += row["calls"] - seen
    assert len(rows) == TASKS
    assert sum(Decimal(row["cost"]) for row in rows) == provider.cost_usd + one * unsent
    sys.stdout.write(f"calls that were written down and never arrived: {unsent}\n")
