"""Budgets inside a running task: whether its next call still fits, and what it spent beside its model calls.

A call that would pass a budget gives the worker back: the task comes back when the day turns, or a while later in case
somebody raised the budget, and then waits at the dispatcher without a seat. No attempt is spent.
"""

from collections import OrderedDict
from collections.abc import Sequence
from decimal import Decimal
from zlib import crc32

from app.coalescer import Coalescer
from app.domain.budgets import Amount, passed_by
from app.domain.errors import Snoozed
from app.runtime import Runtime
from app.services.budgets import BudgetStanding, standings_of
from app.store import spending
from app.store.spending import Spent
from workers.attempt import Attempt

WHY = "budget"
_REMEMBERED = 10_000
_MOST_ASKED = 500


class Budgets:
    """The budgets as the attempts of one process meet them."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._seen: OrderedDict[tuple[str, int], None] = OrderedDict()
        # Calls that ask together share one look, which begins after each of them has written its estimate down.
        self._looks: Coalescer[tuple[str, str], Sequence[BudgetStanding]] = Coalescer(
            self._look, max_items=_MOST_ASKED, splits_on=lambda _: False
        )

    async def admit(self, owner: Attempt, *, cost_usd: Decimal = Decimal(0), tokens: int = 0) -> None:
        """Let a call through that is expected to cost so much. Raises Snoozed (`budget`) when a budget would be passed.

        Of a budget that is spent to the last cent nothing more is let through, not even what is expected to be free.
        """
        for one in await self._looks.submit((owner.tenant_id, owner.task_type)):
            if passed_by(one.budget, one.spent, Amount(cost_usd, Decimal(tokens))):
                again = min(one.opens_in_seconds, self._runtime.settings.budgets.look_again_seconds)
                detail = (
                    f"The budget {one.budget.on} of today has no room for the next call; the day turns at 00:00 UTC."
                )
                raise Snoozed(max(again, 1.0), WHY, detail)

    async def _look(self, asked: Sequence[tuple[str, str]]) -> list[Sequence[BudgetStanding]]:
        """Read the budgets of each tenant and type once, all in one transaction."""
        async with self._runtime.database.transaction() as connection:
            found = {one: await standings_of(self._runtime, connection, *one) for one in dict.fromkeys(asked)}
        return [found[one] for one in asked]

    async def spent(self, owner: Attempt, *, cost_usd: Decimal = Decimal(0), tokens: int = 0) -> None:
        """Count what a handler paid elsewhere. Raises ValueError for amounts below zero or that are no numbers."""
        cost = Decimal(cost_usd)
        if not cost.is_finite() or cost < 0 or cost >= 10**12 or not 0 <= tokens < 10**15:
            raise ValueError("spent: cost_usd should be an amount and tokens a number, both from 0 on")
        key = (owner.task_id, owner.fence)
        first = key not in self._seen
        self._seen[key] = None
        if len(self._seen) > _REMEMBERED:
            self._seen.popitem(last=False)
        paid = Spent(owner.tenant_id, owner.task_type, cost, int(tokens), first)
        await spending.add(self._runtime.database, [paid], shard=crc32(owner.worker_id.encode()))
