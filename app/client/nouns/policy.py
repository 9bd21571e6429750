"""The priority policy: reading, replacing and asking it. Its documents are shown as they come."""

from collections.abc import Mapping
from typing import Generic

from app.client.bound import Bound, S, call
from app.client.request import Json, Request, get, post


class Policies(Bound[S], Generic[S]):
    """`client.policy`."""

    @call
    def get(self) -> Request[Json]:
        """Read the policy in force and its history."""
        return get("/v1/priority/policy", object)

    @call
    def put(self, policy: Mapping[str, Json], *, dry_run: bool = False) -> Request[Json]:
        """Bring a new version into force once it validates; `dry_run` only shows what it would change."""
        body = {**policy, "dry_run": True} if dry_run else policy
        return post("/v1/priority/policy", object, body, method="PUT", repeatable=True)

    @call
    def evaluate(self, task: Mapping[str, Json]) -> Request[Json]:
        """Say what class a task (the fields of `submit`) would be, and why."""
        return post("/v1/priority/evaluate", object, task, repeatable=True)
