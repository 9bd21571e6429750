"""Despacho as an MCP server, asked by the SDK's own client over both transports."""

import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import httpx2
import pytest_asyncio
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client

from tests.api.world import World, a_world, problem, served
from tests.cli.terminal import ROOT, shell
from tests.support.work import dead

TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


@pytest_asyncio.fixture
async def world(database_url: str) -> AsyncIterator[World]:
    """A fresh application on a fresh database."""
    async with a_world(database_url) as opened:
        yield opened
        await opened.app.state.mcp.close()


@asynccontextmanager
async def a_client(url: str, headers: dict[str, str], mode: str = "auto") -> AsyncIterator[Client]:
    """Have the SDK's client of `/mcp`."""
    async with (
        httpx2.AsyncClient(headers=headers, trust_env=False, timeout=30) as http,
        Client(streamable_http_client(f"{url}/mcp", http_client=http), mode=mode) as client,
    ):
        yield client


def content(result: Any) -> Any:
    """Give the structured content of a good answer."""
    assert not result.is_error, result
    return result.structured_content


def failed(result: Any) -> str:
    """Give the code of a bad answer."""
    assert result.is_error, result
    code: str = result.structured_content["code"]
    return code


async def test_an_agent_submits_reads_and_waits_over_http_in_both_eras(world: World) -> None:
    await world.tenant("acme")
    headers = await world.key("acme", "submitter")
    async with served(world) as url:
        for mode in ("auto", "legacy"):
            async with a_client(url, headers, mode) as client:
                tools = {tool.name: tool for tool in (await client.list_tools()).tools}
                given = {"type": "order", "input": {"item": "book", "amount": 1}, "idempotency_key": f"one-{mode}"}
                task = content(await client.call_tool("submit_task", given, meta={"traceparent": TRACE}))
                again = content(await client.call_tool("submit_task", given))
                read = content(await client.call_tool("get_task", {"task_id": task["task_id"]}))
                waited = content(
                    await client.call_tool("wait_for_task", {"task_id": task["task_id"], "timeout_seconds": 0.2})
                )
                types = content(await client.call_tool("list_task_types", {"name": "order"}))

            assert again["task_id"] == task["task_id"] == read["task_id"]
            assert waited["is_final"] is False
            assert types["items"][0]["name"] == "order"
            assert tools["get_task"].annotations.read_only_hint is True
            assert tools["reprocess_dead_letter"].annotations.destructive_hint is True


async def test_the_trace_of_meta_goes_to_the_task(world: World) -> None:
    await world.tenant("acme")
    headers = await world.key("acme", "submitter")
    async with served(world) as url, a_client(url, headers) as client:
        meta = {"traceparent": TRACE}
        task = content(await client.call_tool("submit_task", {"type": "echo", "input": {}}, meta=meta))

    async with world.runtime.database.transaction() as transaction:
        from sqlalchemy import text

        found = (
            await transaction.execute(
                text("SELECT traceparent FROM tasks WHERE task_id = :id"), {"id": task["task_id"]}
            )
        ).scalar_one()
    assert found.split("-")[1] == TRACE.split("-")[1]


async def test_what_the_key_may_not_is_a_tool_error_and_what_is_anothers_does_not_exist(world: World) -> None:
    await world.tenant("acme")
    await world.tenant("other")
    submitter = await world.key("acme", "submitter")
    stranger = await world.key("other", "submitter")
    task = await world.submitted(submitter)
    async with served(world) as url, a_client(url, stranger) as client:
        foreign = failed(await client.call_tool("get_task", {"task_id": task["task_id"]}))
        forbidden = failed(
            await client.call_tool("reprocess_dead_letter", {"task_id": task["task_id"], "reason": "again"})
        )
        unknown = failed(await client.call_tool("submit_task", {"type": "no_such_type"}))
        wrong = await client.call_tool("wait_for_task", {"task_id": "canary-1", "timeout_seconds": "canary-2"})

    assert (foreign, forbidden, failed(wrong)) == ("not_found", "forbidden", "invalid_arguments")
    assert unknown != "internal"
    assert "canary" not in str(wrong)


async def test_dead_letters_are_listed_and_done_again(world: World) -> None:
    await world.tenant("acme")
    operator = await world.key("acme", "operator")
    task = await world.submitted(await world.key("acme", "submitter"))
    await dead(world.runtime, [task["task_id"]])
    async with served(world) as url, a_client(url, operator) as client:
        letters = content(await client.call_tool("list_dead_letters", {"error_type": "timeout"}))
        again = content(
            await client.call_tool("reprocess_dead_letter", {"task_id": task["task_id"], "reason": "fixed"})
        )
        twice = failed(await client.call_tool("reprocess_dead_letter", {"task_id": task["task_id"], "reason": "fixed"}))

    assert [one["task_id"] for one in letters["items"]] == [task["task_id"]]
    assert again["is_final"] is False
    assert twice


async def test_the_door_keeps_its_manners(world: World) -> None:
    large = b"x" * (2 * 1024 * 1024)

    problem(await world.client.post("/mcp", headers={"Authorization": "Bearer wrong"}, json={}), 401, "unauthorized")
    problem(await world.client.post("/mcp", content=large), 413, "payload_too_large")
    refused = await world.client.get("/mcp")

    problem(refused, 405, "method_not_allowed")
    assert refused.headers["allow"] == "POST"
    nonsense = await world.client.post(
        "/mcp", content=b"[[[", headers={"content-type": "application/json", "accept": "application/json"}
    )
    assert nonsense.status_code == 400


async def test_it_can_be_turned_off(database_url: str) -> None:
    async with a_world(database_url, mcp=False) as world:
        answer: httpx.Response = await world.client.post("/mcp", json={})

        problem(answer, 404, "not_found")


async def test_an_agent_starts_it_over_stdio(world: World) -> None:
    await world.tenant("acme")
    key = (await world.key("acme", "submitter"))["Authorization"].removeprefix("Bearer ")
    async with served(world) as url:
        program = StdioServerParameters(
            command=sys.executable,
            args=["-m", "app", "mcp"],
            env={"DESPACHO_URL": url, "DESPACHO_KEY": key, "PYTHONPATH": str(ROOT), "PATH": os.environ["PATH"]},
        )
        async with Client(program) as client:
            task = content(await client.call_tool("submit_task", {"type": "echo", "input": {"a": 1}}))
            read = content(await client.call_tool("get_task", {"task_id": task["task_id"]}))

    assert read["status"] == task["status"]


async def test_the_command_says_what_is_wrong_with_the_address() -> None:
    ended = await shell("despacho mcp --url not-a-url --key dsp_x")

    assert (ended.code, ended.out) == (2, "")
    assert "http://" in ended.err
