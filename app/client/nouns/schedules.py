"""Schedules: one task per firing, never two."""

from collections.abc import Mapping
from datetime import datetime
from typing import Generic

import msgspec

from app.client.bound import Bound, S, call, streaming
from app.client.request import Json, Request, Stream, delete, get, pages, part, post


class Schedule(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule; `last_error` says why its last firing made no task."""

    schedule_id: str
    name: str
    cron: str
    timezone: str = "UTC"
    misfire: str = "once"
    task: Json = None
    tenant_id: str | None = None
    next_fire_at: datetime | None = None
    last_fired_at: datetime | None = None
    last_task_id: str | None = None
    last_error: str | None = None
    created_by: str | None = None
    created_at: datetime | None = None


class Schedules(Bound[S], Generic[S]):
    """`client.schedules`."""

    @call
    def create(
        self, name: str, cron: str, task: Mapping[str, Json], *, timezone: str = "UTC", misfire: str = "once",
        tenant_id: str | None = None,
    ) -> Request[Schedule]:  # fmt: skip
        """Have `task` (the fields of `submit`) submitted at each firing of `cron`, five fields in `timezone`."""
        body = {"name": name, "cron": cron, "timezone": timezone, "task": task, "misfire": misfire}
        return post("/v1/schedules", Schedule, body, parameters={"tenant_id": tenant_id})

    @streaming
    def list(self, *, tenant_id: str | None = None, at_most: int | None = None) -> Stream[Schedule]:
        """Iterate over schedules, newest first."""
        return pages("/v1/schedules", Schedule, {"tenant_id": tenant_id}, at_most=at_most)

    @call
    def get(self, schedule_id: str) -> Request[Schedule]:
        """Read a schedule."""
        return get(f"/v1/schedules/{part(schedule_id)}", Schedule)

    @call
    def delete(self, schedule_id: str) -> Request[None]:
        """Remove a schedule; what it submitted stays."""
        return delete(f"/v1/schedules/{part(schedule_id)}")
