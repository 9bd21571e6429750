"""How dependencies and budgets stand."""

from collections.abc import Sequence
from datetime import datetime
from decimal import Decimal
from typing import Generic, Literal

import msgspec

from app.client.bound import Bound, S, call, streaming
from app.client.request import Request, Stream, get_items, pages


class Dependency(msgspec.Struct, frozen=True, kw_only=True):
    """A dependency: `closed` lets calls through, `half_open` a few, `open` none until `closed_until`."""

    name: str
    state: Literal["closed", "half_open", "open"]
    since: datetime | None = None
    closed_until: datetime | None = None
    openings: int = 0
    ceiling: int | None = None
    in_use: int = 0
    waiting: int = 0
    workers: int = 0
    concurrency: int | None = None
    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    reserve: dict[str, float] = {}


class Budget(msgspec.Struct, frozen=True, kw_only=True):
    """A budget and what is spent of it today (UTC)."""

    on: str
    cost_usd_per_day: Decimal | None = None
    tokens_per_day: int | None = None
    retry_margin: float | None = None
    spent_cost_usd: Decimal = Decimal(0)
    spent_tokens: int = 0
    remaining_cost_usd: Decimal | None = None
    remaining_tokens: int | None = None
    share_spent: float = 0.0
    opens_at: datetime | None = None


class Dependencies(Bound[S], Generic[S]):
    """`client.dependencies`."""

    @call
    def list(self) -> Request[Sequence[Dependency]]:
        """Read how every dependency stands."""
        return get_items("/v1/dependencies", Dependency)


class Budgets(Bound[S], Generic[S]):
    """`client.budgets`."""

    @streaming
    def list(self, *, at_most: int | None = None) -> Stream[Budget]:
        """Iterate over the budgets: the policy's, then those of tenants."""
        return pages("/v1/budgets", Budget, at_most=at_most)
