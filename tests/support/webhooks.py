"""Receivers of events, and a runtime that may call them."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from app.runtime import Runtime
from app.settings import OutboundSettings, Settings, WebhookSettings
from tests.support.http_server import Request, Server
from tests.support.runtimes import a_runtime
from tests.support.work import rows

QUICK: Mapping[str, Any] = {
    "try_timeout_seconds": 5.0,
    "backoff_base_seconds": 0.05,
    "backoff_cap_seconds": 0.1,
    "max_tries": 3,
}


@asynccontextmanager
async def a_calling_runtime(
    database_url: str, *, allowed: Sequence[str] = ("127.0.0.0/8",), **webhooks: object
) -> AsyncIterator[Runtime]:
    """Open a runtime that may call this machine; `webhooks` overrides short times."""
    settings = Settings(
        _env_file=None,
        outbound=OutboundSettings(allowed_networks=list(allowed)),
        webhooks=WebhookSettings(**{**QUICK, **webhooks}),
    )
    async with a_runtime(database_url, settings=settings) as runtime:
        yield runtime


async def events_of(runtime: Runtime, *task_ids: str) -> list[Mapping[str, Any]]:
    """Read the events of tasks, the oldest first."""
    return await rows(
        runtime,
        "SELECT * FROM webhooks WHERE task_id = ANY(CAST(:ids AS text[])) ORDER BY webhook_id",
        ids=list(task_ids),
    )


def of_task(server: Server, task_id: str) -> list[Request]:
    """Give the requests that told of this task."""
    return [one for one in server.requests if one.json()["data"]["task_id"] == task_id]
