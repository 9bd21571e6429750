"""Dependencies and budgets in the policy file: everything is read, and every mistake is named with its line."""

from decimal import Decimal

import pytest

from app.domain.policy_file import parse_policy
from tests.domain.test_policy_file import GOOD, problems_of

FIRST_LINE = GOOD.count("\n") + 1


def test_everything_that_is_said_of_a_dependency_and_a_budget_is_read() -> None:
    policy = parse_policy(
        GOOD
        + """[[dependency]]
name = "llm"
concurrency = 10
requests_per_minute = 600
tokens_per_minute = 200_000
reserve = { high = 0.2 }
breaker = { open_after = 3, failure_ratio = 0.4, window = "20s", probe_after = "2s", growth = 3, maximum = "1m", probes = 4, ramp = "9s" }
[[budget]]
on = "tenant:acme"
cost_usd_per_day = "10.50"
tokens_per_day = 1000
retry_margin = 0.2
"""  # noqa: E501 - one line of the file
    )

    llm, (budget,) = policy.dependency("llm"), policy.budgets
    assert (llm.concurrency, llm.requests_per_minute, llm.tokens_per_minute) == (10, 600, 200_000)
    assert llm.reserve == {"high": 0.2}
    breaker = llm.breaker
    assert (breaker.open_after, breaker.failure_ratio, breaker.window_seconds, breaker.probe_after_seconds) == (
        3, 0.4, 20.0, 2.0,
    )  # fmt: skip
    assert (breaker.growth, breaker.maximum_seconds, breaker.probes, breaker.ramp_seconds) == (3.0, 60.0, 4, 9.0)
    assert (budget.on, budget.cost_usd_per_day, budget.tokens_per_day, budget.retry_margin) == (
        "tenant:acme", Decimal("10.50"), 1000, 0.2,
    )  # fmt: skip
    assert policy.dependency("unheard-of").concurrency is None


@pytest.mark.parametrize(
    ("table", "line", "said"),
    [
        ("[[dependency]]\nconcurrency = 3", 0, "'name' is missing"),
        ('[[dependency]]\nname = "a b"', 1, "it must be letters"),
        ('[[dependency]]\nname = "a"\n[[dependency]]\nname = "a"', 3, "there twice"),
        ('[[dependency]]\nname = "a"\nconcurrency = 0', 2, "a whole number from 1"),
        ('[[dependency]]\nname = "a"\nrequests_per_minute = true', 2, "a whole number"),
        ('[[dependency]]\nname = "a"\nreserve = { nobody = 0.2 }', 2, "unknown class 'nobody'"),
        ('[[dependency]]\nname = "a"\nreserve = { high = 0.5, low = 0.5 }', 2, "add up to 1"),
        ('[[dependency]]\nname = "a"\nconcurrency = 1\nreserve = { high = 0.2 }', 2, "leaves nothing beside"),
        ('[[dependency]]\nname = "a"\nbreaker = { open_afer = 3 }', 2, "did you mean 'open_after'?"),
        ('[[dependency]]\nname = "a"\nbreaker = { growth = 0.5 }', 2, "a number from 1 to 100"),
        ('[[dependency]]\nname = "a"\nbreaker = { probe_after = "1m", maximum = "5s" }', 2, "shorter than"),
        ('[[budget]]\non = "class:x"\ntokens_per_day = 1', 1, "not something to give a budget"),
        ('[[budget]]\non = "all"', 1, "limits nothing"),
        ('[[budget]]\non = "all"\ncost_usd_per_day = "ten"', 2, "an amount of dollars"),
        ('[[budget]]\non = "all"\ncost_usd_per_day = nan', 2, "an amount of dollars"),
        ('[[budget]]\non = "all"\ncost_usd_per_day = "-1"', 2, "an amount of dollars"),
        ('[[budget]]\non = "all"\ntokens_per_day = 1\n[[budget]]\non = "all"\ntokens_per_day = 2', 4, "two budgets"),
        ('[[budget]]\non = "all"\ntokens_per_day = 1\nretry_margin = 1', 3, "leaves nothing for first"),
    ],
)
def test_a_mistake_is_named_with_its_line(table: str, line: int, said: str) -> None:
    problems = problems_of(GOOD + table + "\n")

    assert any(number == FIRST_LINE + line and said in text for number, text in problems), problems
