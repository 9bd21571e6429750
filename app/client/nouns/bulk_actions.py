"""Bulk actions: how far one is, waiting for it, stopping it."""

import time
from datetime import datetime
from typing import Generic

import msgspec

from app.client.bound import Bound, S, call
from app.client.errors import StillRunning
from app.client.request import Flow, Json, Pause, Request, get, member_of, part, post

_LOOK_EVERY_SECONDS = 0.5


class BulkError(msgspec.Struct, frozen=True):
    """One thing that could not be touched."""

    id: str
    code: str


class BulkAction(msgspec.Struct, frozen=True, kw_only=True):
    """A bulk action as it was when it was read; `errors` keeps the first hundred."""

    bulk_action_id: str
    state: str
    kind: str | None = None
    matched: int = 0
    done: int = 0
    failed: int = 0
    errors: tuple[BulkError, ...] = ()
    filter: Json = None
    reason: str | None = None
    actor: str | None = None
    limit: int | None = None
    rate_per_second: float | None = None
    created_at: datetime | None = None
    updated_at: datetime | None = None


class BulkActions(Bound[S], Generic[S]):
    """`client.bulk_actions`."""

    @call
    def get(self, bulk_action_id: str) -> Request[BulkAction]:
        """Read a bulk action."""
        return _read(bulk_action_id)

    @call
    def wait(self, bulk_action_id: str, wait: float | None = None) -> Flow[BulkAction]:
        """Wait until a bulk action has ended, done or aborted. Raises StillRunning."""
        end = float("inf") if wait is None else time.monotonic() + wait
        while True:
            action: BulkAction = yield _read(bulk_action_id)
            if member_of(action, "state") != "running":
                return action
            if time.monotonic() >= end:
                raise StillRunning((), f"{bulk_action_id} is still running after {wait:g} s")
            yield Pause(_LOOK_EVERY_SECONDS)

    @call
    def abort(self, bulk_action_id: str) -> Request[BulkAction]:
        """Stop a bulk action; what is done stays done."""
        return post(f"/v1/bulk-actions/{part(bulk_action_id)}/abort", BulkAction, repeatable=True)


def _read(bulk_action_id: str) -> Request[BulkAction]:
    return get(f"/v1/bulk-actions/{part(bulk_action_id)}", BulkAction)
