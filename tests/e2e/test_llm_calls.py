"""Models called by worker processes: what a crash after an answer costs, in a worker and in a child of one."""

import json

from tests.e2e.test_processes import LEASE_SECONDS
from tests.support.eventually import eventually
from tests.support.installation import Installation
from tests.support.llm_provider import Say, a_provider
from tests.support.rabbitmq import RabbitNode
from tests.support.work import rows
from tests.support.world import ONE_CLASS, a_world


async def test_a_crash_after_an_answer_costs_no_second_call(database_url: str, rabbit: RabbitNode) -> None:
    async with a_provider() as provider, a_world(database_url, rabbit.url, slots=None) as world:
        provider.script = lambda body: Say(text=f"heard {body['messages'][0]['content']}")
        own = {
            "DESPACHO_BROKER__QUEUE_PREFIX": world.runtime.settings.broker.queue_prefix,
            "DESPACHO_WORKER__LEASE_SECONDS": str(LEASE_SECONDS / 2),
            "DESPACHO_LLM__PROVIDERS": provider.environment(),
        }
        installation = Installation(database_url, rabbit.url, ONE_CLASS, own)
        try:
            installation.start_worker("worker", slots=2)
            await installation.has_workers(1)
            (killing,) = await world.submit("models", kind="dies")
            await eventually(lambda: installation.processes["worker"].process.poll() is not None, within_seconds=30)
            installation.start("worker")
            killed, other = await world.ended([killing, *await world.submit("models_process")], within_seconds=60)

            result = json.loads(killed["result"])
            assert (killed["status"], other["status"]) == ("done", "done")
            assert result["replayed"] == [True, False]
            assert json.loads(other["result"])["replayed"] == [True]
            assert result["pid"] != installation.processes["worker"].pid, "a suspect runs in a child"
            (total,) = await rows(world.runtime, "SELECT count(*) AS n, sum(cost_usd) AS cost FROM llm_calls")
            made = await rows(world.runtime, "SELECT outcome FROM llm_calls WHERE task_id = :id", id=killing)
            assert [row["outcome"] for row in made] == ["answered"] * 2
            assert (total["n"], total["cost"]) == (provider.calls, provider.cost_usd)
            assert provider.calls == 3
        finally:
            await installation.close()
