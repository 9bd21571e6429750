"""Effects: what tasks did outside, and what is in doubt."""

from datetime import datetime
from typing import Generic

import msgspec

from app.client.bound import Bound, S, call, streaming
from app.client.request import Request, Several, Stream, given, pages, part, post


class Effect(msgspec.Struct, frozen=True, kw_only=True):
    """What a task did outside, or may have done.

    `state`: `reserved` (its call may be in the air), `confirmed` (it happened, as `external_id`), `not_sent`, or
    `in_doubt` (nobody can tell, and a person must). `idempotency_key` is what the outside system was given.
    """

    effect_id: str
    state: str
    type: str | None = None
    key: str | None = None
    idempotency_key: str | None = None
    external_id: str | None = None
    tenant_id: str | None = None
    task_id: str | None = None
    task_type: str | None = None
    attempt: int | None = None
    calls: int | None = None
    first_reserved_at: datetime | None = None
    reserved_at: datetime | None = None
    call_until: datetime | None = None
    updated_at: datetime | None = None
    in_doubt_at: datetime | None = None
    resolved_at: datetime | None = None
    resolved_by: str | None = None
    reason: str | None = None


class Effects(Bound[S], Generic[S]):
    """`client.effects`."""

    @streaming
    def list(
        self, *, state: Several = None, type: Several = None, task_id: Several = None, tenant_id: Several = None,
        at_most: int | None = None,
    ) -> Stream[Effect]:  # fmt: skip
        """Iterate over effects, newest first; `state="in_doubt"` for those that somebody must decide."""
        parameters = {"state": state, "type": type, "task_id": task_id, "tenant_id": tenant_id}
        return pages("/v1/effects", Effect, parameters, at_most=at_most)

    @call
    def resolve(self, effect_id: str, outcome: str, reason: str, *, external_id: str | None = None) -> Request[Effect]:
        """Say what became of an effect in doubt: `confirmed` or `not_sent`; its task goes on."""
        body = given(outcome=outcome, reason=reason, external_id=external_id)
        return post(f"/v1/effects/{part(effect_id)}/resolve", Effect, body)
