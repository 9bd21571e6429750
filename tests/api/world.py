"""The real application over a test's own database, with keys and helpers; nothing in it is faked but the broker."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx
import uvicorn
from fastapi import FastAPI
from pydantic import BaseModel, SecretStr, TypeAdapter

from app.domain.task_types import CostClass, TaskTypeSpec
from app.main import create_app
from app.runtime import Runtime
from app.services.bootstrap import first_start
from app.settings import ApiSettings, Settings
from app.task_modules import TaskType, schema_field_names
from tests.support.eventually import eventually
from tests.support.ports import free_port
from tests.support.runtimes import a_runtime, a_task_type

ADMIN_KEY = "dsp_admin-of-the-tests"


class Order(BaseModel):
    """The input of the type `order`."""

    item: str
    amount: float
    tags: list[str] = []


def a_typed_task_type() -> TaskType:
    """Make the type `order`, whose input has a schema."""
    adapter: TypeAdapter[Any] = TypeAdapter(Order)
    spec = TaskTypeSpec(name="order", cost_class=CostClass.SHORT, max_attempts=3, timeout_seconds=60)
    return TaskType(spec, lambda ctx, value: value, True, adapter, None, schema_field_names(adapter.json_schema()))


@dataclass(frozen=True, slots=True)
class World:
    """An application, its runtime and a client with the admin's key."""

    app: FastAPI
    runtime: Runtime
    client: httpx.AsyncClient

    async def tenant(self, tenant_id: str, **quotas: float | int) -> None:
        """Make a tenant."""
        body: dict[str, object] = {"tenant_id": tenant_id, "name": tenant_id}
        if quotas:
            body["quotas"] = quotas
        answer = await self.client.post("/v1/tenants", json=body)
        assert answer.status_code == 201, answer.text

    async def key(self, tenant_id: str | None, role: str | None = "submitter", **more: object) -> dict[str, str]:
        """Make a key and return the headers that use it."""
        body = {"tenant_id": tenant_id, **({"role": role} if role else {}), **more}
        answer = await self.client.post("/v1/keys", json=body)
        assert answer.status_code == 201, answer.text
        return {"Authorization": f"Bearer {answer.json()['key']}"}

    async def submitted(self, headers: dict[str, str] | None = None, **body: object) -> dict[str, Any]:
        """Submit an `echo` and return the task."""
        answer = await self.client.post("/v1/tasks", json={"type": "echo", "input": {"a": 1}} | body, headers=headers)
        assert answer.status_code == 202, answer.text
        task: dict[str, Any] = answer.json()
        return task

    async def raw(self, body: bytes, headers: dict[str, str] | None = None) -> httpx.Response:
        """Submit a body byte by byte."""
        return await self.client.post("/v1/tasks", content=body, headers=headers)


@asynccontextmanager
async def a_world(database_url: str, **api: object) -> AsyncIterator[World]:
    """Open an application that knows the types `echo` and `order`; `api` overrides its settings."""
    settings = Settings(_env_file=None, bootstrap_key=SecretStr(ADMIN_KEY), api=ApiSettings(**api))
    async with a_runtime(database_url, a_task_type(), a_typed_task_type(), settings=settings) as runtime:
        await first_start(runtime.database, settings)
        app = create_app(runtime)
        transport = httpx.ASGITransport(app)
        headers = {"Authorization": f"Bearer {ADMIN_KEY}"}
        async with httpx.AsyncClient(transport=transport, base_url="http://test", headers=headers) as client:
            yield World(app, runtime, client)
            await app.state.front.refusals.flush()


@asynccontextmanager
async def served(world: World) -> AsyncIterator[str]:
    """Serve the application on a socket of this machine."""
    port = free_port()
    config = uvicorn.Config(world.app, host="127.0.0.1", port=port, log_level="error", lifespan="off", http="httptools")
    server = uvicorn.Server(config)
    running = asyncio.create_task(server.serve())
    await eventually(lambda: server.started)
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        await running


def problem(answer: httpx.Response, status: int, code: str) -> dict[str, Any]:
    """Have an answer be this problem, in the form that every problem has; returns it."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    body: dict[str, Any] = answer.json()
    assert body["code"] == code, body
    assert body["type"] == f"/problems/{code}"
    assert body["status"] == status
    assert body["title"] and body["detail"] and body["instance"]
    assert isinstance(body["retryable"], bool)
    return body


def pointers(body: dict[str, Any]) -> list[str]:
    """Name what the errors of a problem point at."""
    return [one.get("pointer") or one.get("parameter") or one.get("header") for one in body.get("errors", [])]
