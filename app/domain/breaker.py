"""The circuit breaker of one dependency as a state machine: closed → open → half-open → closed, and a ramp after that.

*Closed*: calls pass and are counted in a window. *Open*: none pass until a time; a Retry-After opens it just as many
failures do, because what one call was told holds for all of them. *Half-open*: a few probes pass; as many successes
close it, one failure opens it again for longer. After closing, the number of calls at once doubles in steps until the
ramp is over, so that what waited does not come back as a herd. Times are seconds of one clock, the database's.
"""

from dataclasses import dataclass
from enum import StrEnum

import msgspec

RAMP_STEPS = 6


class Phase(StrEnum):
    """Where the breaker stands."""

    CLOSED = "closed"
    HALF_OPEN = "half_open"
    OPEN = "open"


@dataclass(frozen=True, slots=True)
class BreakerPolicy:
    """When to open, when to probe, how to come back.

    It opens when `open_after` calls in a row failed, or when so many did within `window_seconds` and they are at least
    `failure_ratio` of all. Probes start after `probe_after_seconds`, which grows by `growth` up to `maximum_seconds`
    while they fail.
    """

    open_after: int = 5
    failure_ratio: float = 0.5
    window_seconds: float = 30.0
    probe_after_seconds: float = 5.0
    growth: float = 2.0
    maximum_seconds: float = 120.0
    probes: int = 2
    ramp_seconds: float = 30.0

    def interval_seconds(self, openings: int) -> float:
        """Say how long the `openings`th opening in a row lasts; finite for any number."""
        seconds = self.probe_after_seconds
        for _ in range(min(openings - 1, 64)):
            if seconds >= self.maximum_seconds:
                break
            seconds *= self.growth
        return min(seconds, self.maximum_seconds)


class Outcomes(msgspec.Struct, frozen=True):
    """What came of calls: those of probes apart. `in_a_row` are the failures since the last success.

    `retry_after_seconds` is the longest that a failed one was told.
    """

    succeeded: int = 0
    failed: int = 0
    probes_succeeded: int = 0
    probes_failed: int = 0
    in_a_row: int = 0
    retry_after_seconds: float = 0.0

    @property
    def is_empty(self) -> bool:
        """Say whether there is nothing to report."""
        return not (
            self.succeeded or self.failed or self.probes_succeeded or self.probes_failed or self.retry_after_seconds
        )

    def plus(self, later: "Outcomes") -> "Outcomes":
        """Add what came later."""
        has_success = later.succeeded or later.probes_succeeded
        return Outcomes(
            self.succeeded + later.succeeded,
            self.failed + later.failed,
            self.probes_succeeded + later.probes_succeeded,
            self.probes_failed + later.probes_failed,
            later.in_a_row if has_success else self.in_a_row + later.in_a_row,
            max(self.retry_after_seconds, later.retry_after_seconds),
        )


class Breaker(msgspec.Struct, frozen=True):
    """The breaker as it is kept. `openings` counts openings that no quiet ramp came between."""

    phase: Phase = Phase.CLOSED
    since: float = 0.0
    until: float = 0.0
    openings: int = 0
    probed: int = 0
    window_at: float = 0.0
    succeeded: int = 0
    failed: int = 0
    succeeded_before: int = 0
    failed_before: int = 0
    in_a_row: int = 0
    told: bool = False
    """Whether a Retry-After gave `until`."""


def phase_at(breaker: Breaker, now: float) -> Phase:
    """Say where the breaker stands now: an opening whose time is over is half-open without anybody writing it."""
    if breaker.phase is Phase.OPEN and now >= breaker.until:
        return Phase.HALF_OPEN
    return breaker.phase


def report(policy: BreakerPolicy, breaker: Breaker, outcomes: Outcomes, now: float) -> Breaker:
    """Take in what came of calls.

    While it is open nothing counts but a Retry-After; while it is half-open only probes do: what fails then may have
    been called long before.
    """
    told = outcomes.retry_after_seconds
    match phase_at(breaker, now):
        case Phase.CLOSED:
            counted = _counted(policy, breaker, outcomes, now)
            if told > 0 or counted.in_a_row >= policy.open_after or _is_too_much(policy, counted, now):
                return _opened(policy, counted, told, now)
            return counted
        case Phase.OPEN:
            until = now + told
            return msgspec.structs.replace(breaker, until=until, told=True) if until > breaker.until else breaker
        case Phase.HALF_OPEN:
            if outcomes.probes_failed or told > 0:
                return _opened(policy, breaker, told, now)
            probed = breaker.probed + outcomes.probes_succeeded
            if probed >= policy.probes:
                return Breaker(since=now, openings=breaker.openings, window_at=now)
            return msgspec.structs.replace(breaker, probed=probed)


def ceiling(policy: BreakerPolicy, breaker: Breaker, now: float) -> int | None:
    """Say how many calls (or tasks that call) there may be at once; None when the breaker does not bound them."""
    match phase_at(breaker, now):
        case Phase.OPEN:
            return 0
        case Phase.HALF_OPEN:
            return policy.probes
        case Phase.CLOSED:
            passed = now - breaker.since
            if not breaker.openings or passed >= policy.ramp_seconds:
                return None
            step = int(max(0.0, passed) / policy.ramp_seconds * RAMP_STEPS)
            return max(1, policy.probes) << step


def is_ramping(policy: BreakerPolicy, breaker: Breaker, now: float) -> bool:
    """Say whether it has closed and does not let everything through yet."""
    return breaker.phase is Phase.CLOSED and ceiling(policy, breaker, now) is not None


def probe_tasks(policy: BreakerPolicy, breaker: Breaker, now: float) -> int:
    """Say how many tasks may have been released as probes since it became half-open.

    A task may end without a call, or hang: so there are some more for every interval that passes without a verdict.
    """
    return policy.probes * (1 + int(max(0.0, now - breaker.until) / policy.probe_after_seconds))


def _opened(policy: BreakerPolicy, breaker: Breaker, told: float, now: float) -> Breaker:
    quiet = breaker.phase is Phase.CLOSED and now - breaker.since >= policy.ramp_seconds
    openings = 1 if quiet else breaker.openings + 1
    interval = policy.interval_seconds(openings)
    # What the provider said is obeyed as it is; a probe that fails with it is no reason to come sooner than the growth.
    seconds = told if told > 0 and breaker.phase is Phase.CLOSED else max(told, interval)
    since = breaker.since if breaker.phase is Phase.OPEN else now
    return Breaker(phase=Phase.OPEN, since=since, until=now + seconds, openings=openings, told=told >= seconds)


def _counted(policy: BreakerPolicy, breaker: Breaker, outcomes: Outcomes, now: float) -> Breaker:
    succeeded = outcomes.succeeded + outcomes.probes_succeeded
    failed = outcomes.failed + outcomes.probes_failed
    in_a_row = outcomes.in_a_row if succeeded else breaker.in_a_row + outcomes.in_a_row
    age = now - breaker.window_at
    if age < policy.window_seconds:
        return msgspec.structs.replace(
            breaker, succeeded=breaker.succeeded + succeeded, failed=breaker.failed + failed, in_a_row=in_a_row
        )
    is_next = age < 2 * policy.window_seconds
    return msgspec.structs.replace(
        breaker,
        window_at=breaker.window_at + policy.window_seconds if is_next else now,
        succeeded_before=breaker.succeeded if is_next else 0,
        failed_before=breaker.failed if is_next else 0,
        succeeded=succeeded,
        failed=failed,
        in_a_row=in_a_row,
    )


def _is_too_much(policy: BreakerPolicy, breaker: Breaker, now: float) -> bool:
    """Judge the last `window_seconds`: the current window, and the part of the one before that they still cover."""
    covered = max(0.0, 1.0 - (now - breaker.window_at) / policy.window_seconds)
    failed = breaker.failed + breaker.failed_before * covered
    succeeded = breaker.succeeded + breaker.succeeded_before * covered
    return failed >= policy.open_after and failed >= policy.failure_ratio * (failed + succeeded)
