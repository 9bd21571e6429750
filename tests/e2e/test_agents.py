"""An agent in worker processes: killed after an effect was accepted, it repeats nothing and pays nothing twice."""

import json

import pytest

from app.services.submission import Submission, Submitter, prepare
from tests.e2e.test_processes import LEASE_SECONDS
from tests.support.eventually import eventually
from tests.support.installation import Installation
from tests.support.llm_provider import Say, a_provider
from tests.support.outside import an_outside
from tests.support.rabbitmq import RabbitNode
from tests.support.work import a_tenant, rows
from tests.support.world import ONE_CLASS, a_world
from workers.handlers.agent.shelf import shelf

MODULES = "tests.support.tasks,tests.support.agent_tasks"


async def test_a_killed_agent_repeats_no_effect_and_no_model_call(
    database_url: str, rabbit: RabbitNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DESPACHO_TASK_MODULES", MODULES)
    monkeypatch.setenv("DESPACHO_AGENT__TOOLS", "*")
    shelf.cache_clear()
    async with (
        a_provider() as provider,
        an_outside() as outside,
        a_world(database_url, rabbit.url, slots=None) as world,
    ):
        ticket = (("create_ticket", '{"title": "deadly"}'),)
        turns = [Say(text="", tool_calls=ticket), Say(text="", tool_calls=(("finish", '{"answer": "done"}'),))]
        provider.script = lambda body: turns[sum(one["role"] == "assistant" for one in body["messages"])]
        own = {
            "DESPACHO_BROKER__QUEUE_PREFIX": world.runtime.settings.broker.queue_prefix,
            "DESPACHO_WORKER__LEASE_SECONDS": str(LEASE_SECONDS / 2),
            "DESPACHO_LLM__PROVIDERS": provider.environment(),
            "DESPACHO_TASK_MODULES": MODULES,
            "DESPACHO_AGENT__TOOLS": "*",
            "TEST_OUTSIDE_URL": outside.url,
            "TEST_DIES_AFTER": "deadly",
            "TEST_DIED": str(world.at / "died"),
        }
        installation = Installation(database_url, rabbit.url, ONE_CLASS, own)
        try:
            installation.start_worker("worker", slots=2)
            await installation.has_workers(1)
            tenant = await a_tenant(world.runtime)
            asked = Submission(type="agent", input='{"goal": "triage", "tools": ["create_ticket"]}')
            task = prepare(world.runtime, tenant, "tests", False, asked)
            await Submitter(world.runtime).submit_many([task])
            await eventually(lambda: installation.processes["worker"].process.poll() is not None, within_seconds=30)
            installation.start("worker")
            (row,) = await world.ended([task.task_id], within_seconds=90)

            assert row["status"] == "done", row["error_message"]
            assert json.loads(row["result"])["answer"] == "done"
            assert outside.total == 1, "accepted once, though it was asked for twice with the same key"
            assert provider.calls == 2
            (total,) = await rows(world.runtime, "SELECT count(*) AS n, sum(cost_usd) AS cost FROM llm_calls")
            assert (total["n"], total["cost"]) == (provider.calls, provider.cost_usd)
            (effect,) = await rows(world.runtime, "SELECT state FROM effects")
            assert effect["state"] == "confirmed"
        finally:
            await installation.close()
            shelf.cache_clear()
