"""Budgets stop releases before they are passed, first attempts before retries."""

from decimal import Decimal

import pytest

from app.domain.budgets import Amount, Budget, BudgetGate, Purse, passed_by, share_spent
from app.domain.fairness import TenantHeads
from app.domain.release import Demand, Waiting, plan_release
from tests.domain.policies import a_class, a_head, a_policy, one_pool

CENT = Amount(Decimal("0.01"), Decimal(100))


def an_amount(cost: str, tokens: int = 0) -> Amount:
    return Amount(Decimal(cost), Decimal(tokens))


@pytest.mark.parametrize(
    ("spent", "more", "is_passed"),
    [
        (an_amount("0"), an_amount("0.10"), False),
        (an_amount("0.09"), an_amount("0.01"), False),
        (an_amount("0.09"), an_amount("0.0100001"), True),
        (an_amount("0.10"), an_amount("0"), True),
    ],
)
def test_a_budget_of_exactly_what_was_spent_refuses_the_next_call(spent: Amount, more: Amount, is_passed: bool) -> None:
    assert passed_by(Budget("all", Decimal("0.10")), spent, more) is is_passed


def test_tokens_count_as_money_does() -> None:
    budget = Budget("tenant:acme", tokens_per_day=1000)

    assert not passed_by(budget, an_amount("999"), an_amount("1", 1000))
    assert passed_by(budget, an_amount("0", 1), an_amount("0", 1000))
    assert share_spent(budget, an_amount("0", 800)) == Decimal("0.8")
    assert share_spent(Budget("all", Decimal(0)), an_amount("0")) == 1


@pytest.mark.parametrize("on", ["all", "type:ask", "tenant:acme"])
def test_a_plan_releases_what_fits_and_keeps_a_margin_for_retries(on: str) -> None:
    purse = Purse([Budget(on, Decimal("0.10"))], {on: an_amount("0.05")}, {"ask": CENT})
    policy = a_policy(a_class("only", nominal=0))
    firsts = [a_head(f"first{n}", "ask", age_seconds=9) for n in range(20)]
    demand = Demand({"only": [TenantHeads("acme", 0, 1, firsts)]}, purse=purse)

    plan = plan_release(one_pool(policy, 50), demand, policy)
    again = plan_release(one_pool(policy, 50), demand, policy)

    assert len(plan.releases) == len(again.releases) == 4, "0.05 spent, 0.01 each, 0.01 kept for retries"
    assert plan.waiting["only"].reasons == {Waiting.BUDGET: 16}


def test_a_retry_may_use_the_margin_and_a_type_that_costs_nothing_goes_on() -> None:
    purse = Purse([Budget("tenant:acme", Decimal("0.10"))], {"tenant:acme": an_amount("0.09")}, {"ask": CENT})
    gate = BudgetGate(purse)
    first, retry, free = a_head("a", "ask"), a_head("b", "ask", attempt=2), a_head("c", "count_words")

    assert gate.stops("acme", first)
    assert not gate.stops("acme", retry)
    gate.pass_through("acme", retry)
    assert gate.stops("acme", retry)
    assert not gate.stops("acme", free)
    assert not gate.stops("globex", first)


def test_what_was_released_counts_until_the_purse_is_read_again() -> None:
    purse = Purse([Budget("type:ask", tokens_per_day=250, retry_margin=0)], {}, {"ask": CENT, "other": CENT})
    assert purse.stopped(is_first=True) == {}

    purse.take("acme", "ask")
    purse.take("globex", "ask")
    purse.take("globex", "other")

    assert purse.stopped(is_first=True) == {"type:ask": ("ask",)}
