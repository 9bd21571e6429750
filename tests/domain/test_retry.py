"""Backoff: bounded, spread, never too soon."""

from collections import Counter
from math import inf, isfinite, nan
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.failure import Failure
from app.domain.retry import Ending, Exhausted, RetryAfter, RetryPolicy, decide

DEFAULT = RetryPolicy()


def a_failure(retryable: bool = True, retry_after_seconds: float | None = None, spent: bool = True) -> Failure:
    return Failure("timeout", "it took too long", retryable, retry_after_seconds, spent)


def delay(attempt: int, jitter: float = 0.5, failure: Failure | None = None, policy: RetryPolicy = DEFAULT) -> float:
    decision = decide(failure or a_failure(), attempt, 10**9, policy, jitter)
    assert isinstance(decision, RetryAfter)
    return decision.seconds


@pytest.mark.parametrize("jitter", [0.0, 0.5, 0.999999])
def test_delays_grow_to_the_cap_and_stay_finite(jitter: float) -> None:
    delays = [delay(attempt, jitter) for attempt in (0, 1, 2, 3, 10, 64, 1_100, 10**6)]

    assert all(isfinite(one) for one in delays)
    assert all(DEFAULT.base_seconds <= one <= DEFAULT.cap_seconds for one in delays)
    assert delays == sorted(delays)


def test_two_hundred_failures_of_one_second_come_back_spread() -> None:
    for seed in range(50):
        draw = Random(seed).random
        returns = [draw() + delay(1, draw()) for _ in range(200)]

        assert max(Counter(int(one) for one in returns).values()) <= 30
        assert min(returns) >= DEFAULT.base_seconds


@given(
    attempt=st.integers(-5, 10**6),
    jitter=st.floats(0, 1, exclude_max=True),
    base=st.floats(0.001, 1e5),
    times=st.floats(1, 1e5),
    factor=st.floats(1.0001, 1e6),
)
def test_any_policy_keeps_between_base_and_cap(
    attempt: int, jitter: float, base: float, times: float, factor: float
) -> None:
    policy = RetryPolicy(base, base * times, factor)

    assert base <= delay(attempt, jitter, policy=policy) <= policy.cap_seconds * (1 + 1e-9)
    assert policy.envelope_seconds(attempt) <= policy.envelope_seconds(attempt + 1)


@given(asked=st.floats(0, 86_400), jitter=st.floats(0, 1, exclude_max=True), attempt=st.integers(1, 50))
def test_retry_after_is_never_undercut_and_hardly_exceeded(asked: float, jitter: float, attempt: int) -> None:
    seconds = delay(attempt, jitter, a_failure(retry_after_seconds=asked))

    assert asked <= seconds <= asked + max(1, min(60, asked / 10))


@pytest.mark.parametrize(
    ("asked", "least", "most"), [(7, 7, 8), (1, 1, 2), (3_600, 3_600, 3_660), (10**9, 86_400, 86_460)]
)
def test_retry_after_wins_over_backoff_and_cap_up_to_a_day(asked: float, least: float, most: float) -> None:
    assert least <= delay(1, 0.0, a_failure(retry_after_seconds=asked))
    assert delay(1, 0.999, a_failure(retry_after_seconds=asked)) <= most


def test_a_herd_that_was_told_one_time_does_not_return_in_one_instant() -> None:
    returns = {delay(1, number / 100, a_failure(retry_after_seconds=7)) for number in range(100)}

    assert len(returns) == 100


@pytest.mark.parametrize("asked", [nan, inf, -1.0])
def test_an_impossible_retry_after_falls_back_to_the_backoff(asked: float) -> None:
    assert delay(1, 0.0, a_failure(retry_after_seconds=asked)) == DEFAULT.base_seconds


def test_what_cannot_be_retried_is_given_up_at_the_first_attempt() -> None:
    assert decide(a_failure(retryable=False), 1, 5, DEFAULT, 0.5) == Exhausted(Ending.NOT_RETRYABLE)


@pytest.mark.parametrize(("attempt", "given_up"), [(1, False), (4, False), (5, True), (6, True)])
def test_attempts_are_bounded(attempt: int, given_up: bool) -> None:
    decision = decide(a_failure(), attempt, 5, DEFAULT, 0.5)

    assert isinstance(decision, Exhausted) is given_up


def test_an_attempt_that_is_not_spent_does_not_end_the_task() -> None:
    assert isinstance(decide(a_failure(spent=False), 5, 5, DEFAULT, 0.5), RetryAfter)


@pytest.mark.parametrize(
    ("base", "cap", "factor", "said"),
    [
        (0, 10, 2, "base_seconds"),
        (nan, 10, 2, "base_seconds"),
        (5, 4, 2, "cap_seconds"),
        (5, inf, 2, "cap_seconds"),
        (5, 10, 1, "factor"),
    ],
)
def test_a_policy_that_makes_no_sense_is_refused(base: float, cap: float, factor: float, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        RetryPolicy(base, cap, factor)
