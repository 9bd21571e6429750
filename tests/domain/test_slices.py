"""Limits divided between workers: never more than the limit together, and nobody left out."""

from hypothesis import given
from hypothesis import strategies as st

from app.domain.breaker import Outcomes
from app.domain.dependencies import Ask, Dependency, Others, Slice, Standing, renew
from app.domain.slices import Rate, fair_share

WANTS = st.lists(st.integers(0, 50), min_size=1, max_size=8)


@given(st.integers(1, 40), WANTS)
def test_a_fair_share_uses_up_the_limit_and_nobody_gets_less_than_an_even_part(limit: int, wants: list[int]) -> None:
    shares = [fair_share(limit, mine, [*wants[:at], *wants[at + 1 :]]) for at, mine in enumerate(wants)]

    assert sum(shares) <= limit + 1e-6
    assert abs(sum(shares) - min(limit, sum(wants))) < 1e-6
    assert all(share >= min(mine, limit / len(wants)) - 1e-6 for share, mine in zip(shares, wants, strict=True))


class _Worker:
    """A worker as it behaves: it lowers what it holds at once, and gives it up when its calls have ended."""

    def __init__(self) -> None:
        self.at_once = 0
        self.in_use = 0
        self.slice = Slice("")


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 12), st.booleans()), max_size=60), st.integers(1, 10))
def test_workers_never_run_more_calls_together_than_the_limit(turns: list[tuple[int, int, bool]], limit: int) -> None:
    dependency = Dependency("llm", concurrency=limit)
    workers = [_Worker() for _ in range(4)]
    standing, now = Standing(), 0.0
    for number, wanted, ends in turns:
        now += 0.1
        worker = workers[number]
        if ends:
            worker.in_use = 0
        keeps = max(worker.in_use, worker.at_once)
        ask = Ask("", keeps=keeps, wanted=max(wanted, worker.in_use), waiting=wanted)
        others = Others(tuple(one.slice for one in workers if one is not worker))
        renewal = renew(dependency, standing, others, [ask], outcomes=Outcomes(), probing=0, now=now, kept_seconds=2.0)
        standing, worker.slice = renewal.standing, renewal.slices[0]
        at_once = renewal.grants[0].at_once
        assert at_once is not None
        worker.at_once = at_once
        worker.in_use = max(worker.in_use, min(wanted, at_once))

        assert sum(one.in_use for one in workers) <= limit
        assert sum(one.slice.held for one in workers) <= limit


@given(st.integers(1, 5000), st.lists(st.floats(0, 20), max_size=200))
def test_no_minute_sees_more_requests_than_the_limit(per_minute: int, pauses: list[float]) -> None:
    dependency = Dependency("llm", requests_per_minute=per_minute)
    standing, now, given_out = Standing(), 1000.0, list[tuple[float, int]]()
    for pause in pauses:
        now += pause
        ask = Ask("", requests=per_minute, waiting=1, wanted=1)
        renewal = renew(
            dependency, standing, Others(), [ask], outcomes=Outcomes(), probing=0, now=now, kept_seconds=2.0
        )
        standing = renewal.standing
        given_out.append((now, renewal.grants[0].requests or 0))

    for start, _ in given_out:
        # What was given up to two seconds before may be used in the minute.
        assert sum(count for at, count in given_out if start - 2.0 < at < start + 59.9) <= per_minute


def test_a_rate_keeps_nearly_all_of_its_limit() -> None:
    assert Rate.of(600, 2.0, 0.05).per_second * 60 > 0.9 * 600
    assert Rate.of(1, 2.0, 0.05).burst == 1


def test_a_reserve_is_taken_by_its_class_alone_and_the_rest_by_all() -> None:
    dependency = Dependency("llm", concurrency=10, requests_per_minute=60, reserve={"critical": 0.2})

    parts = dependency.parts()

    assert (parts["critical"].concurrency, parts[""].concurrency) == (2, 8)
    assert (parts["critical"].requests_per_minute, parts[""].requests_per_minute) == (12, 48)
    assert dependency.pools_of("critical") == ("critical", "")
    assert dependency.pools_of("common") == ("",)


def test_what_a_call_used_beyond_its_estimate_is_paid_back_before_the_next() -> None:
    dependency = Dependency("llm", tokens_per_minute=6000)
    ask = Ask("", wanted=1, waiting=1, tokens=100, largest=100)
    first = renew(dependency, Standing(), Others(), [ask], outcomes=Outcomes(), probing=0, now=0, kept_seconds=2.0)
    assert first.grants[0].tokens == 100

    late = Ask("", wanted=1, waiting=1, tokens=100, largest=100, tokens_back=-3000)
    second = renew(
        dependency, first.standing, Others(), [late], outcomes=Outcomes(), probing=0, now=1, kept_seconds=2.0
    )

    assert second.grants[0].tokens == 0
    assert second.grants[0].next_in_seconds > 20
    assert second.standing.saturated


def test_a_call_larger_than_the_burst_goes_when_the_bucket_is_full() -> None:
    dependency = Dependency("llm", tokens_per_minute=6000)
    ask = Ask("", wanted=1, waiting=1, tokens=2000, largest=2000)

    renewal = renew(dependency, Standing(), Others(), [ask], outcomes=Outcomes(), probing=0, now=0, kept_seconds=2.0)

    assert renewal.grants[0].tokens == 2000
