"""The example of the agents' page works as it is printed there, on a small mailbox."""

import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import workers.handlers.agent
from tests.support.llm_provider import Say, a_provider
from tests.support.outside import Outside
from tests.support.rabbitmq import RabbitNode
from tests.support.work import rows
from tests.support.world import a_world
from tests.workers.handlers.agent.worlds import AgentWorld, says
from workers.handlers.agent.shelf import shelf

PAGE = (Path(workers.handlers.agent.__file__).parent / "README.md").read_text()
MAILS = sorted((Path(__file__).parent / "mailbox").glob("*.txt"))


def _triage(body: Mapping[str, Any]) -> Say:
    """Read, then open tickets for what the mails ask, then finish with the ids that were answered."""
    said = [one for one in body["messages"] if one["role"] == "assistant"]
    told = [str(one["content"]) for one in body["messages"] if one["role"] == "tool"]
    if not said:
        return says(*[("read_document", {"document": f"doc{n}"}) for n in (1, 2, 3)])
    if len(said) == 1:
        queues = {"charged twice": "billing", "impressora": "support", "off everything": "spam"}
        return says(
            *[
                ("create_ticket", {"title": word, "queue": queue})
                for text in told
                for word, queue in queues.items()
                if word in text
            ]
        )
    return says(("finish", {"tickets": re.findall(r'"id":"(out-[0-9a-f]+)"', "".join(told))}))


async def test_a_mailbox_is_triaged(
    database_url: str, rabbit: RabbitNode, outside: Outside, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    code, task = (re.findall(rf"```{kind}\n(.*?)```", PAGE, re.DOTALL)[0] for kind in ("python", "json"))
    (tmp_path / "tickets.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("TICKETS_URL", outside.url)
    monkeypatch.setenv("DESPACHO_TASK_MODULES", "tickets")
    monkeypatch.setenv("DESPACHO_AGENT__TOOLS", "create_ticket")
    shelf.cache_clear()
    async with a_provider() as provider:
        provider.script = _triage
        llm = {"providers": {"fake": provider.settings()}}
        async with a_world(database_url, rabbit.url, modules=["tickets"], llm=llm) as world:
            for number, mail in enumerate(MAILS, 1):
                await rows(
                    world.runtime,
                    "INSERT INTO inputs (input_ref, tenant_id, sha256, size_bytes, content_type, content, created_at, "
                    "used_at) VALUES (:ref, 'acme', :ref, 1, 'text/plain', :content, clock_timestamp(), "
                    "clock_timestamp())",
                    ref=f"input_{number}",
                    content=mail.read_bytes(),
                )
            agents = AgentWorld(world, provider, outside)

            result = await agents.result(**json.loads(task)["input"])

    shelf.cache_clear()
    sys.modules.pop("tickets", None)
    assert len(result["result"]["tickets"]) == 2 and outside.total == 2
    assert (result["stop_reason"], result["turns"], result["answer"]) == ("finished", 3, None)
    used = {one["name"]: (one["calls"], one["errors"], one["findings"]) for one in result["tools"]}
    assert used == {"read_document": (3, 0, ["injection_marks"]), "create_ticket": (3, 1, [])}
