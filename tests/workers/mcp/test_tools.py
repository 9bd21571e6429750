"""Tools of real MCP servers, well-behaved and not, as a handler meets them."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from app.domain.errors import DeadLetter
from tests.support.eventually import eventually
from tests.support.mcp_server import PROGRAM
from tests.support.ports import free_port
from tests.workers.mcp.worlds import RAW, STDIO, TRACE, a_context
from workers.blocking_context import BlockingTaskContext
from workers.context import TaskContext
from workers.mcp.errors import ServerUnavailable, ToolTimedOut


@pytest_asyncio.fixture(scope="module")
async def http_url() -> AsyncIterator[str]:
    """The trial server over HTTP."""
    port = free_port()
    process = await asyncio.create_subprocess_exec(
        sys.executable, PROGRAM, str(port), stdin=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL
    )

    async def listens() -> bool:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            return False
        writer.close()
        return True

    await eventually(listens, within_seconds=30)
    yield f"http://127.0.0.1:{port}/mcp"
    process.kill()
    await process.wait()


@pytest_asyncio.fixture(scope="module")
async def stdio() -> AsyncIterator[TaskContext]:
    """One context whose server is started once for the module."""
    async with a_context({"trial": {**STDIO, "variables": {"COLOUR": "green"}}}, max_answer_bytes=100_000) as context:
        yield context


async def refused(calling: Any) -> str:
    with pytest.raises(DeadLetter) as caught:
        await calling
    return caught.value.error_type


async def test_a_tool_is_called_over_stdio_and_the_trace_goes_along(stdio: TaskContext) -> None:
    tools = stdio.mcp("trial")

    answer = await tools.call("add", {"a": 2, "b": 3})
    seen = await tools.call("meta")

    assert (answer.text, answer.structured, answer.is_error) == ("5", {"result": 5}, False)
    assert seen.structured["traceparent"].split("-")[1] == TRACE.split("-")[1]


async def test_a_tool_is_called_over_http(http_url: str) -> None:
    async with a_context({"web": {"transport": "http", "url": http_url}}, max_answer_bytes=100_000) as context:
        tools = context.mcp("web")

        answer = await tools.call("add", {"a": 2, "b": 3})
        too_large = await refused(tools.call("text", {"kind": "huge", "size": 5_000_000}))
        after = await tools.call("add", {"a": 1, "b": 1})

    assert (answer.structured, too_large, after.structured) == ({"result": 5}, "mcp_answer_too_large", {"result": 2})


async def test_the_child_has_the_environment_that_it_is_given_and_no_other(
    stdio: TaskContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = set((await stdio.mcp("trial").call("environment")).structured["result"])

    assert names <= {"PATH", "COLOUR", "LC_CTYPE"}


async def test_secrets_reach_the_child_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DESPACHO_SECRET_TOKEN", "canary-of-the-test")
    async with a_context({"trial": {**STDIO, "env": {"TOKEN": "TOKEN"}}}) as context:
        assert (await context.mcp("trial").call("variable", {"name": "TOKEN"})).text == "canary-of-the-test"


async def test_tools_that_the_type_does_not_name_are_refused() -> None:
    async with a_context({"trial": STDIO}, tools={"trial": ("add",)}) as context:
        assert await refused(context.mcp("trial").call("die")) == "tool_not_allowed"
        with pytest.raises(DeadLetter, match="does not name this MCP server"):
            context.mcp("other")


async def test_arguments_are_held_against_the_schema_and_not_repeated(stdio: TaskContext) -> None:
    with pytest.raises(DeadLetter) as caught:
        await stdio.mcp("trial").call("add", {"a": "canary", "b": 1})

    assert caught.value.error_type == "mcp_invalid_arguments"
    assert "canary" not in caught.value.message
    assert "a of the call" in caught.value.message


async def test_unknown_tools_and_tools_that_come_later(stdio: TaskContext) -> None:
    tools = stdio.mcp("trial")

    before = await refused(tools.call("later"))
    await tools.call("grow", {"name": "later"})

    assert before == "mcp_unknown_tool"
    assert (await tools.call("later")).text == "later"
    assert "later" in {one.name for one in await tools.tools()}


async def test_a_tool_that_never_answers_times_out_and_others_go_on(stdio: TaskContext) -> None:
    tools = stdio.mcp("trial")
    before = (await tools.call("pid")).structured

    with pytest.raises(ToolTimedOut):
        await tools.call("never", timeout_seconds=0.3)

    assert (await tools.call("pid")).structured == before


async def test_a_server_that_dies_in_a_call_is_started_anew(stdio: TaskContext) -> None:
    tools = stdio.mcp("trial")
    before = (await tools.call("pid")).structured

    with pytest.raises(ServerUnavailable):
        await tools.call("die")

    assert (await tools.call("pid")).structured != before


async def test_a_huge_answer_fails_its_call_alone(stdio: TaskContext) -> None:
    tools = stdio.mcp("trial")
    before = (await tools.call("pid")).structured

    kind = await refused(tools.call("text", {"kind": "huge", "size": 5_000_000}))

    assert kind == "mcp_answer_too_large"
    assert (await tools.call("pid")).structured == before


async def test_hostile_text_is_cleaned_and_handed_on_as_data(stdio: TaskContext) -> None:
    answer = await stdio.mcp("trial").call("text", {"kind": "hostile"})

    assert {"nul", "control_characters", "hidden_characters", "chat_marks", "injection_marks"} <= set(answer.findings)
    assert "\x00" not in answer.text and "\x1b" not in answer.text and "<|" not in answer.text
    assert answer.as_data().startswith("<data-") and "source=trial/text" in answer.as_data()


async def test_a_tool_that_says_it_failed_is_a_result(stdio: TaskContext) -> None:
    assert (await stdio.mcp("trial").call("failing")).is_error


async def test_lone_surrogates_depth_and_nonsense_end_their_call_and_leave_the_connection() -> None:
    async with a_context({"raw": RAW}) as context:
        tools = context.mcp("raw")

        cleaned = await tools.call("surrogate")
        deep = await refused(tools.call("deep"))
        nonsense = await refused(tools.call("nonsense"))
        fine = await tools.call("fine")

    assert (cleaned.text, deep, nonsense) == ("half \ufffd of a pair", "mcp_invalid_answer", "mcp_invalid_answer")
    assert fine.text == "fine"


async def test_a_server_that_cannot_be_started_or_reached_is_tried_again_later() -> None:
    servers = {
        "missing": {"transport": "stdio", "command": "/no/such/program"},
        "closed": {"transport": "http", "url": f"http://127.0.0.1:{free_port()}/mcp"},
    }
    async with a_context(servers) as context:
        for name in servers:
            with pytest.raises(ServerUnavailable):
                await context.mcp(name).call("add", {"a": 1, "b": 1})


async def test_no_child_is_left_after_closing_even_one_that_is_stuck() -> None:
    async with a_context({"trial": STDIO}) as context:
        tools = context.mcp("trial")
        pid = (await tools.call("pid")).structured["result"]
        with pytest.raises(ToolTimedOut):
            await tools.call("block", timeout_seconds=0.3)

    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


async def test_a_plain_handler_calls_tools_from_its_thread(stdio: TaskContext) -> None:
    blocking = BlockingTaskContext(stdio, asyncio.get_running_loop())

    answer = await asyncio.to_thread(lambda: blocking.mcp("trial").call("add", {"a": 20, "b": 22}))

    assert answer.structured == {"result": 42}
