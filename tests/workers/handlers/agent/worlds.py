"""An installation with an agent's tools, a scripted model and an outside system that counts."""

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from app.services.submission import Submission, Submitter, prepare
from tests.support.llm_provider import FakeProvider, Say, a_provider
from tests.support.outside import Outside
from tests.support.rabbitmq import RabbitNode
from tests.support.work import a_tenant, rows
from tests.support.world import World, a_world

MODULES = ("tests.support.tasks", "tests.support.agent_tasks")


def says(*calls: tuple[str, Any], text: str = "", **more: Any) -> Say:
    """Have the model call tools; arguments that are no text are spelled as JSON."""
    spelled = tuple((name, raw if isinstance(raw, str) else json.dumps(raw)) for name, raw in calls)
    return Say(text=text, tool_calls=spelled, **more)


DONE = ("finish", {"answer": "done"})


@dataclass
class AgentWorld:
    """A world, its model and its outside."""

    world: World
    provider: FakeProvider
    outside: Outside
    turns: dict[str, Sequence[Say]] = field(default_factory=dict)

    def script(self, *turns: Say, goal: str = "triage") -> None:
        """Let the model take these turns for a goal, told apart by what was said before; the last one for good."""
        self.turns[goal] = turns
        self.provider.script = self._answer

    def _answer(self, body: Mapping[str, Any]) -> Say:
        turns = self.turns[_goal_of(body)]
        said = sum(message["role"] in ("assistant", "user") for message in body["messages"]) - 1
        return turns[min(said, len(turns) - 1)]

    async def submit(self, goal: str = "triage", *, max_attempts: int = 5, **fields: Any) -> str:
        """Submit one agent's task; returns its id."""
        tenant = await a_tenant(self.world.runtime)
        submission = Submission(type="agent", input=json.dumps({"goal": goal, **fields}), max_attempts=max_attempts)
        task = prepare(self.world.runtime, tenant, "tests", False, submission)
        await Submitter(self.world.runtime).submit_many([task])
        return task.task_id

    async def ended(self, task_id: str, within_seconds: float = 30.0) -> Mapping[str, Any]:
        """Wait for the end of a task."""
        return (await self.world.ended([task_id], within_seconds=within_seconds))[0]

    async def result(self, **fields: Any) -> dict[str, Any]:
        """Submit a task, wait for its end and give its result."""
        row = await self.ended(await self.submit(**fields))
        assert row["status"] == "done", (row["error_type"], row["error_message"])
        return dict(json.loads(row["result"]))

    def told(self, goal: str = "triage") -> str:
        """Give the last message of a goal's latest request: what the model was told of its turn before."""
        mine = [one for one in self.provider.requests if _goal_of(one) == goal]
        return str(mine[-1]["messages"][-1]["content"])

    async def results(self, fields: Mapping[str, Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
        """Submit a task for each goal, wait for all their ends and give their rows."""
        ids = {goal: await self.submit(goal, **more) for goal, more in fields.items()}
        ended = await self.world.ended(list(ids.values()), within_seconds=60)
        return dict(zip(ids, ended, strict=True))

    async def paid(self) -> tuple[int, Any]:
        """Count the calls that the database knows, and add up their cost."""
        (row,) = await rows(self.world.runtime, "SELECT count(*) AS n, sum(cost_usd) AS cost FROM llm_calls")
        return row["n"], row["cost"]


def _goal_of(body: Mapping[str, Any]) -> str:
    return next(str(one["content"]) for one in body["messages"] if one["role"] == "user").partition("\n")[0]


@asynccontextmanager
async def an_agent_world(
    database_url: str, rabbit: RabbitNode, outside: Outside, **groups: Mapping[str, object]
) -> AsyncIterator[AgentWorld]:
    """Open an installation whose agents may use the tools of `agent_tasks`."""
    async with a_provider() as provider:
        llm = {"providers": {"fake": provider.settings()}}
        async with a_world(database_url, rabbit.url, modules=MODULES, llm=llm, **groups) as world:
            yield AgentWorld(world, provider, outside)
