"""The API description against the application: everything that it answers is described, and nothing is a 5xx."""

import asyncio
from collections.abc import AsyncIterator

import httpx
import jsonschema  # type: ignore[import-untyped]
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from app.api.problem_types import PROBLEM_TYPES
from tests.api.world import ADMIN_KEY, World, served

_CHECKS = (
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
)


async def test_every_operation_describes_its_refusals_with_examples(world: World) -> None:
    document = (await world.client.get("/openapi.json")).json()

    assert document["openapi"].startswith("3.1")
    named: set[str] = set()
    for path, verbs in document["paths"].items():
        for verb, described in verbs.items():
            if not path.startswith("/v1"):
                continue
            keyed = {"401", "403"} if "security" in described else set()
            assert {"422", "503"} | keyed <= described["responses"].keys(), (verb, path)
            if "application/json" in described.get("requestBody", {}).get("content", {}):
                assert {"400", "413"} <= described["responses"].keys(), (verb, path)
            for status, response in described["responses"].items():
                for kind in (
                    response.get("content", {}).get("application/problem+json", {}).get("examples", {}).values()
                ):
                    assert kind["value"]["status"] == int(status)
                    named.add(kind["value"]["code"])
    assert named <= PROBLEM_TYPES.keys()
    jsonschema.Draft202012Validator.check_schema(document["components"]["schemas"]["Task"])


async def test_generated_requests_find_no_5xx_and_no_undescribed_answer(world: World) -> None:
    await world.submitted()
    async with served(world) as url:
        failures = await asyncio.to_thread(_bombard, url)

    assert not failures, "\n".join(failures)


def _bombard(url: str) -> list[str]:
    schema = schemathesis.openapi.from_url(f"{url}/openapi.json")
    failures: list[str] = []
    tried: set[str] = set()

    for result in schema.get_all_operations():
        operation = result.ok()  # type: ignore[union-attr]
        tried.add(operation.label)
        for mode in (schemathesis.GenerationMode.POSITIVE, schemathesis.GenerationMode.NEGATIVE):
            failures += _attack(operation, mode, url)
    assert "POST /v1/tasks" in tried
    return failures


def _attack(operation: schemathesis.APIOperation, mode: schemathesis.GenerationMode, url: str) -> list[str]:  # type: ignore[type-arg]
    # That wrong bodies are refused is for `test_bodies`: the tool also counts as wrong what is none (one text for a
    # list in a query, a text where a text or null may stand, a bad item in a batch, which is refused by itself).
    @settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck), database=None)
    @given(case=operation.as_strategy(generation_mode=mode))
    def run(case: schemathesis.Case) -> None:  # type: ignore[type-arg]
        headers = {"Authorization": f"Bearer {ADMIN_KEY}"}
        case.call_and_validate(base_url=url, headers=headers, checks=list(_CHECKS), timeout=20)

    try:
        run()
    except Unsatisfiable:
        # An operation without parameters has no wrong ones.
        return [] if mode is schemathesis.GenerationMode.NEGATIVE else [f"{operation}: nothing could be generated"]
    except (Exception, BaseExceptionGroup) as error:
        return [f"{mode.value} {operation}: {error}"]
    return []


async def test_a_chunked_flood_is_refused_in_time(world: World) -> None:
    async def flood() -> AsyncIterator[bytes]:
        for _ in range(800):
            yield b"x" * 65536

    async with served(world) as url, httpx.AsyncClient(timeout=20) as client:
        began = asyncio.get_running_loop().time()
        answer = await client.post(f"{url}/v1/tasks", content=flood(), headers={"Authorization": f"Bearer {ADMIN_KEY}"})
        took = asyncio.get_running_loop().time() - began
        after = await client.get(f"{url}/healthz")

    assert answer.status_code == 413 and answer.json()["code"] == "payload_too_large"
    assert took < 5
    assert after.status_code == 200


@pytest.mark.parametrize("line", [b"GET /v1/tasks HTTP/1.1\r\nHost: x\r\nAuthorization: \xff\xfe\r\n\r\n"])
async def test_bytes_that_are_no_text_in_a_header_are_no_5xx(world: World, line: bytes) -> None:
    async with served(world) as url:
        reader, writer = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]))
        writer.write(line)
        answer = await asyncio.wait_for(reader.readline(), 5)
        writer.close()

    assert answer.split()[1] in (b"400", b"401")
