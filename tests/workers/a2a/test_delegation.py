"""Delegating to a real A2A agent: sent once whatever happens in between, waited for without a worker."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest
import pytest_asyncio
from pydantic import BaseModel

from app.agent_settings import A2aSettings
from app.domain.errors import DeadLetter, Snoozed
from app.runtime import Runtime
from app.settings import OutboundSettings, Settings
from tests.support.a2a_agent import Trial, an_agent
from tests.support.contexts import a_context_on, no_input
from tests.support.ports import free_port
from tests.support.runtimes import a_runtime, a_task_type
from tests.support.work import a_tenant, claimed, returned, submitted
from workers.a2a.agents import AgentUnavailable
from workers.a2a.delegation import message_id_of
from workers.context import TaskContext
from workers.facilities import Facilities, open_facilities


class Sum(BaseModel):
    """What the agent is to return."""

    total: float


@dataclass(frozen=True, slots=True)
class Installation:
    """A runtime, and the facilities that all runs share as in a worker."""

    runtime: Runtime
    facilities: Facilities


@pytest_asyncio.fixture(scope="module")
async def running_agent() -> AsyncIterator[Trial]:
    """The module's agent."""
    async with an_agent() as served:
        yield served


@pytest_asyncio.fixture
async def agent(running_agent: Trial) -> Trial:
    """The agent, which has seen nothing yet and finishes nothing."""
    await running_agent.tell("reset")
    return running_agent


@pytest_asyncio.fixture
async def there(database_url: str, agent: Trial, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Installation]:
    """A runtime that knows the agent as `trial`, and one that is away as `away`."""
    monkeypatch.setenv("DESPACHO_SECRET_AGENT", "Bearer canary-key")
    agents = {
        "trial": {"url": agent.url, "headers": {"Authorization": "AGENT"}},
        "away": {"url": f"http://127.0.0.1:{free_port()}"},
    }
    settings = Settings(_env_file=None, a2a=A2aSettings(agents=agents, poll_seconds=0.5), outbound=OutboundSettings())
    async with a_runtime(database_url, a_task_type(), settings=settings) as opened:
        await a_tenant(opened)
        facilities = open_facilities(opened, read_input=no_input)
        yield Installation(opened, facilities)
        await facilities.close()


async def a_run(installation: Installation, task_id: str | None = None) -> tuple[Any, TaskContext]:
    """Begin a run of a task, or of a fresh one."""
    runtime = installation.runtime
    (attempt,) = await claimed(runtime, [task_id] if task_id else await submitted(runtime))
    return attempt, await a_context_on(runtime, attempt, installation.facilities)


async def kind_of(calling: Any) -> str:
    with pytest.raises(DeadLetter) as caught:
        await calling
    return caught.value.error_type


async def test_work_is_sent_once_and_gone_on_with_in_later_runs(there: Installation, agent: Trial) -> None:
    attempt, context = await a_run(there)
    with pytest.raises(Snoozed) as first:
        await context.delegate("trial", "count", returns=Sum)
    await returned(there.runtime, attempt)
    attempt, context = await a_run(there, attempt.task_id)
    with pytest.raises(Snoozed):
        await context.delegate("trial", "count", returns=Sum)
    await returned(there.runtime, attempt)
    await agent.tell("finish")

    answer = None
    for _ in range(50):
        attempt, context = await a_run(there, attempt.task_id)
        try:
            answer = await context.delegate("trial", "count", returns=Sum)
            break
        except Snoozed:
            await returned(there.runtime, attempt)

    assert answer == Sum(total=12.5)
    seen = await agent.tell()
    assert seen["message_ids"] == [message_id_of(attempt.task_id, "1")]
    assert (first.value.why, first.value.after_seconds) == ("awaiting_agent", 0.5)
    assert set(seen["authorizations"]) == {"Bearer canary-key"}
    assert await context.delegate("trial", "count", name="1", returns=Sum) == answer
    assert (await agent.tell())["requests"] == seen["requests"]


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        ("fail", "delegation_failed"),
        ("reject", "delegation_rejected"),
        ("ask", "delegation_input_required"),
        ("huge", "delegation_invalid_answer"),
    ],
)
async def test_other_ends_are_failures_of_their_own(there: Installation, agent: Trial, said: str, kind: str) -> None:
    await agent.tell("finish")
    _, context = await a_run(there)

    found = None
    for _ in range(200):
        try:
            await context.delegate("trial", said, name="one")
        except Snoozed:
            continue
        except DeadLetter as error:
            found = error.error_type
            break

    assert found == kind or (said == "huge" and found in ("response_too_large", "delegation_answer_too_large"))


async def test_hostile_answers_are_cleaned_and_marked(there: Installation, agent: Trial) -> None:
    await agent.tell("finish")
    _, context = await a_run(there)

    answer = None
    while answer is None:
        try:
            answer = await context.delegate("trial", "hostile", name="one")
        except Snoozed:
            continue

    assert {"nul", "chat_marks", "injection_marks"} <= set(answer.findings)
    assert "\x00" not in answer.text
    assert answer.as_data().startswith("<data-")


async def test_another_message_under_the_same_name_is_refused(there: Installation, agent: Trial) -> None:
    _, context = await a_run(there)
    with pytest.raises(Snoozed):
        await context.delegate("trial", "count", name="one")

    assert await kind_of(context.delegate("trial", "something else", name="one")) == "delegation_changed"
    assert len((await agent.tell())["message_ids"]) == 1


async def test_a_delegation_that_takes_too_long_ends(there: Installation, agent: Trial) -> None:
    _, context = await a_run(there)
    with pytest.raises(Snoozed):
        await context.delegate("trial", "count", name="one")

    assert await kind_of(context.delegate("trial", "count", name="one", timeout_seconds=0.001)) == "delegation_timeout"


async def test_urls_of_tasks_are_guarded_and_names_must_be_known(there: Installation, agent: Trial) -> None:
    _, context = await a_run(there)

    assert await kind_of(context.delegate(agent.url, "count")) == "forbidden_address"
    assert await kind_of(context.delegate("file:///etc/passwd", "count")) == "forbidden_address"
    assert await kind_of(context.delegate("nobody", "count")) == "unknown_agent"
    assert (await agent.tell())["requests"] == 0


async def test_an_agent_that_is_away_or_overloaded_is_tried_again(there: Installation, agent: Trial) -> None:
    _, context = await a_run(there)
    with pytest.raises(AgentUnavailable):
        await context.delegate("away", "count")
    await agent.tell("refuse", 503)

    with pytest.raises(AgentUnavailable):
        await context.delegate("trial", "count")
    await agent.tell("refuse", 401)

    assert await kind_of(context.delegate("trial", "count", name="two")) == "agent_access_refused"
