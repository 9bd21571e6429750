"""Effects: what tasks did outside, and what is in doubt."""

from datetime import datetime
from typing import Generic

import msgspec

from app.client.bound import Bound, S, call, streaming
from app.client.request import Json, Request, Several, Stream, given, pages, part, post


class Effect(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that a task did outside, or was about to do; `state` is `in_doubt` where nobody knows."""

    effect_id: str
    state: str
    task_id: str | None = None
    tenant_id: str | None = None
    effect_type: str | None = None
    effect_key: str | None = None
    external_id: str | None = None
    attempt: int | None = None
    error: Json = None
    created_at: datetime | None = None
    updated_at: datetime | None = None
    confirmed_at: datetime | None = None


class Effects(Bound[S], Generic[S]):
    """`client.effects`."""

    @streaming
    def list(self, *, state: Several = None, tenant_id: Several = None, at_most: int | None = None) -> Stream[Effect]:
        """Iterate over effects, newest first; `state="in_doubt"` for those that somebody must decide."""
        return pages("/v1/effects", Effect, {"state": state, "tenant_id": tenant_id}, at_most=at_most)

    @call
    def resolve(self, effect_id: str, outcome: str, reason: str, *, external_id: str | None = None) -> Request[Effect]:
        """Say what became of an effect in doubt: `confirmed` or `not_sent`; its task goes on."""
        body = given(outcome=outcome, reason=reason, external_id=external_id)
        return post(f"/v1/effects/{part(effect_id)}/resolve", Effect, body)
