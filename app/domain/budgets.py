"""Budgets of money and tokens per UTC day: what may still be released, and whether a call still fits.

A release counts before it costs: what is spent today, what the tasks in flight are going to cost by their type's
history, and the new task itself must fit. A first attempt must also leave the margin that is kept for retries: work
that was begun is rather finished than new work begun.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum

from app.domain.fairness import Head

ALL = "all"
ALERT_SHARE = Decimal("0.8")
DEFAULT_MARGIN = 0.1


class BudgetKind(StrEnum):
    """What a budget may be laid on, beside everything."""

    TENANT = "tenant"
    TYPE = "type"


@dataclass(frozen=True, slots=True)
class Budget:
    """At most so much a day for `on`: `all`, `tenant:x` or `type:y`. `retry_margin` is a share that retries may use."""

    on: str
    cost_usd_per_day: Decimal | None = None
    tokens_per_day: int | None = None
    retry_margin: float = DEFAULT_MARGIN


@dataclass(frozen=True, slots=True)
class Amount:
    """Money and tokens."""

    cost_usd: Decimal = Decimal(0)
    tokens: Decimal = Decimal(0)

    def plus(self, other: "Amount", times: int = 1) -> "Amount":
        """Add another amount, so many times."""
        return Amount(self.cost_usd + other.cost_usd * times, self.tokens + other.tokens * times)


NOTHING = Amount()


def subjects(tenant_id: str, task_type: str) -> tuple[str, str, str]:
    """Name what a task's cost counts for."""
    return ALL, f"{BudgetKind.TYPE}:{task_type}", f"{BudgetKind.TENANT}:{tenant_id}"


def passed_by(budget: Budget, spent: Amount, more: Amount, *, share: float = 1.0) -> bool:
    """Say whether `more` would pass `share` of the budget; what is spent to the last cent lets nothing through."""
    part = Decimal(str(share))
    pairs = (
        (budget.cost_usd_per_day, spent.cost_usd, more.cost_usd),
        (budget.tokens_per_day, spent.tokens, more.tokens),
    )
    return any(most is not None and (gone >= most * part or gone + next_ > most * part) for most, gone, next_ in pairs)


def share_spent(budget: Budget, spent: Amount) -> Decimal:
    """Say which share is spent, of money or tokens, whichever is more; a budget of 0 is spent."""
    shares = [
        gone / most if most else Decimal(1)
        for most, gone in ((budget.cost_usd_per_day, spent.cost_usd), (budget.tokens_per_day, spent.tokens))
        if most is not None
    ]
    return max(shares, default=Decimal(0))


class Purse:
    """All budgets with what is gone of each, in flight included, as it was last read and released since.

    `estimates` tells what a task of a type costs; a type without one is free and never stopped.
    """

    def __init__(self, budgets: Iterable[Budget], gone: Mapping[str, Amount], estimates: Mapping[str, Amount]) -> None:
        self._budgets: dict[str, list[Budget]] = {}
        for budget in budgets:
            self._budgets.setdefault(budget.on, []).append(budget)
        self._gone = {on: gone.get(on, NOTHING) for on in self._budgets}
        self._estimates = estimates

    @property
    def is_empty(self) -> bool:
        """Say whether there is nothing that a budget could stop."""
        return not self._budgets or not self._estimates

    def costs(self, tenant_id: str, task_type: str) -> dict[str, Amount]:
        """Say what a task is expected to take from which budgets."""
        estimate = self._estimates.get(task_type)
        if estimate is None:
            return {}
        return {on: estimate for on in subjects(tenant_id, task_type) if on in self._budgets}

    def take(self, tenant_id: str, task_type: str) -> None:
        """Count a task that was released."""
        for on, cost in self.costs(tenant_id, task_type).items():
            self._gone[on] = self._gone[on].plus(cost)

    def is_passed(self, on: str, more: Amount, *, is_first: bool) -> bool:
        """Say whether `more` would pass a budget of `on`; for a first attempt, reach into the retries' margin."""
        return any(
            passed_by(one, self._gone[on], more, share=1 - one.retry_margin if is_first else 1.0)
            for one in self._budgets[on]
        )

    def stopped(self, *, is_first: bool) -> dict[str, tuple[str, ...]]:
        """List, by budget, the types of which no first attempt, or no attempt at all, is released any more."""
        found: dict[str, tuple[str, ...]] = {}
        for on in self._budgets:
            types = tuple(
                name
                for name, cost in self._estimates.items()
                if on in (f"{BudgetKind.TYPE}:{name}", ALL) or on.startswith(f"{BudgetKind.TENANT}:")
                if self.is_passed(on, cost, is_first=is_first)
            )
            if types:
                found[on] = types
        return found


class BudgetGate:
    """The purse as one plan meets it; what the plan releases is counted here and not in the purse."""

    def __init__(self, purse: Purse) -> None:
        self._purse = purse
        self._taken: dict[str, Amount] = {}

    def stops(self, tenant_id: str, head: Head) -> bool:
        """Say whether a budget stops the task."""
        return any(
            self._purse.is_passed(on, self._taken.get(on, NOTHING).plus(cost), is_first=head.attempt <= 1)
            for on, cost in self._purse.costs(tenant_id, head.task_type).items()
        )

    def pass_through(self, tenant_id: str, head: Head) -> None:
        """Count a task that goes."""
        for on, cost in self._purse.costs(tenant_id, head.task_type).items():
            self._taken[on] = self._taken.get(on, NOTHING).plus(cost)
