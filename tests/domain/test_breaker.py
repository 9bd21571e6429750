"""The circuit breaker in virtual time: when it opens, how it probes, how it comes back."""

import pytest

from app.domain.breaker import Breaker, BreakerPolicy, Outcomes, Phase, ceiling, phase_at, report

POLICY = BreakerPolicy()
FAILS = Outcomes(failed=1, in_a_row=1)
WORKS = Outcomes(succeeded=1)


def opened(at: float = 100.0) -> Breaker:
    return report(POLICY, Breaker(), Outcomes(failed=5, in_a_row=5), at)


def test_so_many_failures_in_a_row_open_it_whatever_went_well_before() -> None:
    breaker = report(POLICY, Breaker(), Outcomes(succeeded=1000), 99.0)
    for _ in range(POLICY.open_after - 1):
        breaker = report(POLICY, breaker, FAILS, 100.0)
    assert breaker.phase is Phase.CLOSED

    breaker = report(POLICY, breaker, FAILS, 100.0)

    assert breaker.phase is Phase.OPEN
    assert breaker.until == 105.0
    assert ceiling(POLICY, breaker, 104.9) == 0


def test_a_success_between_failures_keeps_it_closed_until_their_share_is_too_much() -> None:
    breaker = Breaker()
    for second in range(20):
        breaker = report(POLICY, breaker, Outcomes(succeeded=2, failed=1, in_a_row=1), 100.0 + second)
    assert breaker.phase is Phase.CLOSED

    for second in range(20):
        breaker = report(POLICY, breaker, Outcomes(succeeded=1, failed=3, in_a_row=1), 120.0 + second)

    assert breaker.phase is Phase.OPEN


def test_a_retry_after_of_one_call_opens_it_for_exactly_that_long() -> None:
    breaker = report(POLICY, Breaker(), Outcomes(failed=1, in_a_row=1, retry_after_seconds=7), 100.0)

    assert (breaker.phase, breaker.until, breaker.told) == (Phase.OPEN, 107.0, True)
    later = report(POLICY, breaker, Outcomes(failed=1, retry_after_seconds=20), 101.0)
    assert later.until == 121.0
    assert report(POLICY, later, Outcomes(failed=9, in_a_row=9), 102.0) == later


def test_only_probes_decide_while_it_is_half_open() -> None:
    breaker = opened()
    assert phase_at(breaker, 105.0) is Phase.HALF_OPEN
    assert report(POLICY, breaker, Outcomes(succeeded=50), 106.0) == breaker
    assert report(POLICY, breaker, Outcomes(failed=50, in_a_row=50), 106.0) == breaker

    once = report(POLICY, breaker, Outcomes(probes_succeeded=1), 106.0)
    assert phase_at(once, 106.0) is Phase.HALF_OPEN
    assert report(POLICY, once, Outcomes(probes_succeeded=1), 107.0).phase is Phase.CLOSED
    again = report(POLICY, once, Outcomes(probes_failed=1, in_a_row=1), 107.0)
    assert (again.phase, again.until) == (Phase.OPEN, 117.0)


def test_it_comes_back_in_steps_and_grows_on_when_it_fails_again_soon() -> None:
    closed = report(POLICY, opened(), Outcomes(probes_succeeded=2), 105.0)

    steps = [ceiling(POLICY, closed, 105.0 + seconds) for seconds in (0, 5, 10, 15, 20, 25, 30)]

    assert steps == [2, 4, 8, 16, 32, 64, None]
    soon = report(POLICY, closed, Outcomes(failed=5, in_a_row=5), 110.0)
    assert soon.until == 120.0
    late = report(POLICY, closed, Outcomes(failed=5, in_a_row=5), 140.0)
    assert late.until == 145.0


@pytest.mark.parametrize("openings", [1, 2, 10, 64, 1100, 10**6])
def test_the_wait_between_probes_is_finite_and_grows_up_to_its_maximum(openings: int) -> None:
    assert POLICY.interval_seconds(openings) <= POLICY.interval_seconds(openings + 1) <= POLICY.maximum_seconds


def test_ten_minutes_of_outage_see_few_probes_and_no_herd_afterwards() -> None:
    """A thousand tasks want to call at once, each call takes a tenth of a second; the provider is away for ten minutes.

    Time goes in steps of a tenth of a second; as many calls are made in each as the breaker allows for.
    """
    breaker, waiting, requests, failed_unprobed = Breaker(), 1000, dict[int, int](), 0
    down, up, now = 5.0, 605.0, 0.0
    slots = 10
    while waiting and now < 1200:
        bound = ceiling(POLICY, breaker, now)
        is_half_open = phase_at(breaker, now) is Phase.HALF_OPEN
        calls = min(waiting, slots if bound is None else min(bound, slots))
        requests[int(now)] = requests.get(int(now), 0) + calls
        is_down = down <= now < up
        works, fails = (0, calls) if is_down else (calls, 0)
        waiting -= works
        if is_half_open:
            outcomes = Outcomes(probes_succeeded=works, probes_failed=fails, in_a_row=fails)
        else:
            outcomes = Outcomes(succeeded=works, failed=fails, in_a_row=fails)
            failed_unprobed += fails
        now = round(now + 0.1, 1)
        breaker = report(POLICY, breaker, outcomes, now)

    during = sum(count for second, count in requests.items() if down + 1 <= second < up)
    assert waiting == 0
    assert requests[1] == 100, "before"
    assert failed_unprobed <= slots, "only what was under way fails before it opens"
    assert during <= 2 * 12, "probes alone, ever further apart"
    back = next(second for second, count in requests.items() if second >= up and count)
    assert back <= up + POLICY.maximum_seconds
    assert [requests[back + after] <= most for after, most in ((0, 22), (1, 20), (4, 22), (6, 40))] == [True] * 4
    assert WORKS.plus(FAILS).in_a_row == 1 and FAILS.plus(WORKS).in_a_row == 0
