"""A budget as it goes out."""

from datetime import datetime, timedelta
from decimal import Decimal

from app.api.schemas.administration import BudgetAnswer
from app.domain.budgets import share_spent
from app.services.budgets import BudgetStanding


def shown_budget(one: BudgetStanding, now: datetime) -> BudgetAnswer:
    """Show a budget with what is spent and left of it; the time until the next day counts from `now`."""
    budget, spent = one.budget, one.spent
    tokens = int(spent.tokens)
    return BudgetAnswer(
        on=budget.on,
        cost_usd_per_day=budget.cost_usd_per_day,
        tokens_per_day=budget.tokens_per_day,
        retry_margin=budget.retry_margin,
        spent_cost_usd=spent.cost_usd,
        spent_tokens=tokens,
        remaining_cost_usd=_left(budget.cost_usd_per_day, spent.cost_usd),
        remaining_tokens=None if budget.tokens_per_day is None else max(0, budget.tokens_per_day - tokens),
        share_spent=round(float(share_spent(budget, spent)), 4),
        opens_at=(now + timedelta(seconds=one.opens_in_seconds)).replace(microsecond=0),
    )


def _left(most: Decimal | None, spent: Decimal) -> Decimal | None:
    return None if most is None else max(Decimal(0), most - spent)
