"""The priority policy: reading, replacing and asking it; and the classes that people gave."""

from collections.abc import Mapping
from datetime import datetime
from typing import Generic

import msgspec

from app.client.bound import Bound, S, call, streaming
from app.client.request import Json, Request, Several, Stream, get, pages, post


class Policies(Bound[S], Generic[S]):
    """`client.policy`. Answers are shown as they come."""

    @call
    def get(self, version: str | None = None) -> Request[Json]:
        """Read the policy in force, or one version by its name."""
        return get("/v1/priority/policy", object, {"version": version})

    @streaming
    def history(self, *, at_most: int | None = None) -> Stream[Json]:
        """Iterate over the versions, newest first, without their texts."""
        return pages("/v1/priority/policy", object, {"history": "true"}, at_most=at_most)

    @call
    def put(self, document: str, *, dry_run: bool = False) -> Request[Json]:
        """Bring a new version (its TOML text) into force once it validates; `dry_run` only shows what it would change.

        Raises ApiError `invalid_policy`, `policy_version_exists` or `policy_class_in_use`.
        """
        body: dict[str, Json] = {"document": document, **({"dry_run": True} if dry_run else {})}
        return post("/v1/priority/policy", object, body, method="PUT", repeatable=True)

    @call
    def evaluate(self, task: Mapping[str, Json], *, tenant_id: str | None = None) -> Request[Json]:
        """Say what class a task would be, and why: `type` with group, claims, due_at, valid_until, requested_class."""
        return post("/v1/priority/evaluate", object, task, parameters={"tenant_id": tenant_id}, repeatable=True)

    @call
    def explain(self, task_id: str) -> Request[Json]:
        """Say why a stored task has its class, and whether its stored facts give it again."""
        return post("/v1/priority/evaluate", object, {"task_id": task_id}, repeatable=True)


class Override(msgspec.Struct, frozen=True, kw_only=True):
    """A class that somebody gave a task; `derived_class`, which the rules gave, comes back at the end."""

    override_id: str
    task_id: str
    state: str
    type: str | None = None
    tenant_id: str | None = None
    priority_class: str | None = None
    from_class: str | None = None
    derived_class: str | None = None
    derived_reason_code: str | None = None
    reason: str | None = None
    created_by: str | None = None
    created_at: datetime | None = None
    expires_at: datetime | None = None
    ended_at: datetime | None = None


class Overrides(Bound[S], Generic[S]):
    """`client.overrides`; a class is given with `client.tasks.reclassify`."""

    @streaming
    def list(
        self,
        *,
        state: str | None = None,
        priority_class: Several = None,
        task_id: Several = None,
        tenant_id: Several = None,
        at_most: int | None = None,
    ) -> Stream[Override]:
        """Iterate over classes given by hand, newest first; `state`: lasting or ended."""
        parameters = {"state": state, "priority_class": priority_class, "task_id": task_id, "tenant_id": tenant_id}
        return pages("/v1/overrides", Override, parameters, at_most=at_most)
