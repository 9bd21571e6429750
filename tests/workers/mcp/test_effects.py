"""Tools that change the world go through the ledger: once per key, whatever is run again."""

from pathlib import Path

import pytest

from app.domain.errors import DeadLetter
from app.settings import Settings
from tests.support.contexts import no_input
from tests.support.runtimes import a_runtime, a_task_type
from tests.support.work import a_tenant, claimed, submitted
from tests.workers.mcp.worlds import STDIO
from workers.attempt import Attempt
from workers.context import TaskContext
from workers.facilities import open_facilities


async def test_a_tool_with_a_key_is_called_once(database_url: str, tmp_path: Path) -> None:
    record = tmp_path / "record"
    server = {**STDIO, "variables": {"RECORD": str(record)}}
    settings = Settings(_env_file=None, mcp={"servers": {"trial": server}})
    task_type = a_task_type(mcp={"trial": ("record",)})
    async with a_runtime(database_url, task_type, settings=settings) as runtime:
        await a_tenant(runtime)
        (one,) = await claimed(runtime, await submitted(runtime))
        owner = Attempt(
            one.task_id, one.tenant_id, task_type.spec, one.attempt, one.fence, one.dispatch, "common", "worker_1", 60.0
        )
        facilities = open_facilities(runtime, read_input=no_input)
        tools = TaskContext(owner, facilities).mcp("trial")

        first = await tools.effect_call("record", {"what": "paid"}, key="pay-1")
        second = await tools.effect_call("record", {"what": "paid"}, key="pay-1")
        with pytest.raises(DeadLetter, match="schema"):
            await tools.effect_call("record", {"what": 5}, key="pay-2")
        await facilities.close()

    assert first == second == "paid-1"
    assert len(record.read_text().splitlines()) == 1
