"""One worker's door to one dependency: what its slices let through now, who waits, and what to ask for next.

No I/O and no clock of its own: times are seconds of the loop's clock, which come in as arguments.
"""

import asyncio
from dataclasses import dataclass, field
from heapq import heappop, heappush

import msgspec

from app.domain.breaker import Outcomes, Phase, phase_at
from app.domain.dependencies import SHARED, Ask, Dependency, Granted, Renewal


@dataclass(slots=True)
class Permit:
    """One call that may begin, from `pool`; `estimated_tokens` were taken for it."""

    pool: str
    is_probe: bool
    estimated_tokens: float


@dataclass(slots=True)
class _Pool:
    """What this worker has of one pool; None means without limit. `started` and `used` are since the last report."""

    at_once: int | None = 0
    requests: int | None = 0
    tokens: float | None = 0.0
    in_use: int = 0
    started: int = 0
    used: float = 0.0


@dataclass(order=True, slots=True)
class Waiter:
    """A call that waits for a permit (None: there is none); the higher class first, then who came first."""

    rank: int
    number: int
    priority_class: str = field(compare=False)
    estimated_tokens: float = field(compare=False)
    permit: "asyncio.Future[Permit | None]" = field(compare=False)


class DependencyGate:
    """The local state of one dependency. Without a slice nothing passes."""

    def __init__(self, dependency: Dependency) -> None:
        self.dependency = dependency
        self.phase = Phase.CLOSED
        self.closed_until = 0.0
        self.next_in_seconds = 0.0
        self._slice_until = 0.0
        self._pools: dict[str, _Pool] = {}
        self._waiting: list[Waiter] = []
        self._number = 0
        self._probes = 0
        self._probing = 0
        self._outcomes = Outcomes()
        self._reported = Outcomes()

    @property
    def in_use(self) -> int:
        """How many calls are under way."""
        return self._probing + sum(pool.in_use for pool in self._pools.values())

    @property
    def waiting(self) -> int:
        """How many calls wait."""
        return sum(not waiter.permit.done() for waiter in self._waiting)

    @property
    def probing(self) -> int:
        """How many probes are under way."""
        return self._probing

    @property
    def is_idle(self) -> bool:
        """Whether nothing is under way, waits, or was done since the last report."""
        return (
            not self.in_use
            and not self.waiting
            and self._outcomes.is_empty
            and not any(pool.started or pool.used for pool in self._pools.values())
        )

    @property
    def has_failures(self) -> bool:
        """Whether there are failures that nobody else knows of yet, or probes that ended."""
        told = self._outcomes
        return bool(told.failed or told.probes_failed or told.probes_succeeded or told.retry_after_seconds)

    @property
    def _is_suspect(self) -> bool:
        """Whether this worker alone saw enough to open the breaker: nothing begins before its report is answered."""
        told = self._reported.plus(self._outcomes)
        return told.in_a_row >= self.dependency.breaker.open_after or told.retry_after_seconds > 0

    def phase_now(self, now: float) -> Phase:
        """Say where the breaker stands, as far as this worker knows."""
        if self.phase is Phase.OPEN and now >= self.closed_until:
            return Phase.HALF_OPEN
        return self.phase

    def has_slice(self, now: float) -> bool:
        """Say whether the slice still lasts."""
        return now < self._slice_until

    def enter(self, priority_class: str, estimated_tokens: float, now: float) -> Permit | None:
        """Take a permit if there is one now."""
        if not self.has_slice(now):
            return None
        match self.phase_now(now):
            case Phase.OPEN:
                return None
            case Phase.HALF_OPEN:
                return self._probe(estimated_tokens)
            case Phase.CLOSED:
                return None if self._is_suspect else self._from_pools(priority_class, estimated_tokens)

    def wait(self, rank: int, priority_class: str, estimated_tokens: float) -> Waiter:
        """Stand in line."""
        self._number += 1
        permit = asyncio.get_running_loop().create_future()
        waiter = Waiter(rank, self._number, priority_class, estimated_tokens, permit)
        heappush(self._waiting, waiter)
        return waiter

    def serve(self, now: float) -> None:
        """Give permits to those who wait, a class that can go before one that cannot; None to all while it is open."""
        if self.has_slice(now) and self.phase_now(now) is Phase.OPEN:
            for waiter in self._waiting:
                if not waiter.permit.done():
                    waiter.permit.set_result(None)
            self._waiting.clear()
            return
        left: list[Waiter] = []
        blocked: set[str] = set()
        while self._waiting:
            waiter = heappop(self._waiting)
            if waiter.permit.done():
                continue
            if waiter.priority_class in blocked:
                left.append(waiter)
                continue
            permit = self.enter(waiter.priority_class, waiter.estimated_tokens, now)
            if permit is not None:
                waiter.permit.set_result(permit)
            else:
                blocked.add(waiter.priority_class)
                left.append(waiter)
        self._waiting = left  # popped in order, so it is a heap

    def leave(self, permit: Permit, *, used_tokens: float | None) -> None:
        """Give a permit back; what was used beyond the estimate, or less, goes into the next report."""
        if permit.is_probe:
            self._probing -= 1
        else:
            self._pools[permit.pool].in_use -= 1
        pool = self._pools.get(permit.pool)
        if used_tokens is not None and pool is not None and pool.tokens is not None:
            pool.tokens += permit.estimated_tokens - used_tokens

    def record(self, permit: Permit, failed: bool, retry_after_seconds: float = 0.0) -> None:
        """Note how a call ended, for the next report."""
        self._outcomes = self._outcomes.plus(
            Outcomes(
                succeeded=int(not permit.is_probe and not failed),
                failed=int(not permit.is_probe and failed),
                probes_succeeded=int(permit.is_probe and not failed),
                probes_failed=int(permit.is_probe and failed),
                in_a_row=int(failed),
                retry_after_seconds=retry_after_seconds,
            )
        )

    def report(self) -> tuple[list[Ask], Outcomes]:
        """Say what is wanted and given back. Rates are given back whole until the answer comes (`apply`)."""
        waiting = [waiter for waiter in self._waiting if not waiter.permit.done()]
        asks = []
        for name in {*self.dependency.parts(), *self._pools}:
            pool = self._pools.setdefault(name, _Pool())
            mine = [waiter for waiter in waiting if name in self.dependency.pools_of(waiter.priority_class)]
            tokens = sum(max(1.0, waiter.estimated_tokens) for waiter in mine)
            asks.append(
                Ask(
                    name,
                    keeps=max(pool.in_use, pool.at_once or 0),
                    wanted=pool.in_use + len(mine),
                    waiting=len(mine),
                    requests=len(mine) + pool.started,
                    tokens=tokens + pool.used,
                    requests_back=pool.requests or 0,
                    tokens_back=pool.tokens or 0.0,
                    largest=max((max(1.0, waiter.estimated_tokens) for waiter in mine), default=0.0),
                )
            )
            pool.requests = None if pool.requests is None else 0
            pool.tokens = None if pool.tokens is None else 0.0
            pool.started, pool.used = 0, 0.0
        self._reported, self._outcomes = self._outcomes, Outcomes()
        return asks, self._reported

    def apply(self, renewal: Renewal, database_now: float, *, asked_at: float, kept_seconds: float, now: float) -> None:
        """Take in an answer to a report made at `asked_at`, and serve those who wait."""
        state = renewal.standing.breaker
        self._reported = Outcomes()
        self.phase = phase_at(state, database_now)
        self.closed_until = asked_at + max(0.0, state.until - database_now)
        self._slice_until = asked_at + kept_seconds
        self._probes = max(0, renewal.probes - self._probing)
        self.next_in_seconds = 0.0
        for granted in renewal.grants:
            self._grant(granted)
        self.serve(now)

    def not_reported(self) -> None:
        """Keep outcomes whose report failed for the next one."""
        self._outcomes, self._reported = self._reported.plus(self._outcomes), Outcomes()

    def give_up(self) -> None:
        """Forget the slice, as an idle worker does after its last report."""
        self._slice_until = 0.0
        for pool in self._pools.values():
            pool.at_once, pool.requests, pool.tokens = 0, 0, 0.0

    def rest(self, asks: list[Ask]) -> list[Ask]:
        """Make a report the last one of an idle worker: it wants nothing and gives everything back."""
        self.give_up()
        return [msgspec.structs.replace(ask, keeps=0, wanted=0, requests=0, tokens=0) for ask in asks]

    def _grant(self, granted: Granted) -> None:
        pool = self._pools.setdefault(granted.pool, _Pool())
        pool.at_once = granted.at_once
        # A call that ended while the answer was on its way may have corrected its tokens.
        pool.requests = granted.requests
        pool.tokens = None if granted.tokens is None else granted.tokens + (pool.tokens or 0.0)
        self.next_in_seconds = max(self.next_in_seconds, granted.next_in_seconds)

    def _probe(self, estimated_tokens: float) -> Permit | None:
        if self._probes <= 0:
            return None
        self._probes -= 1
        self._probing += 1
        pool = self._pools.setdefault(SHARED, _Pool())
        self._take(pool, estimated_tokens)
        return Permit(SHARED, True, estimated_tokens)

    def _from_pools(self, priority_class: str, estimated_tokens: float) -> Permit | None:
        for name in self.dependency.pools_of(priority_class):
            pool = self._pools.get(name)
            if pool is None or (pool.at_once is not None and pool.in_use >= pool.at_once):
                continue
            if (pool.requests is not None and pool.requests < 1) or (
                pool.tokens is not None and pool.tokens < max(1.0, estimated_tokens)
            ):
                continue
            pool.in_use += 1
            self._take(pool, estimated_tokens)
            return Permit(name, False, estimated_tokens)
        return None

    def _take(self, pool: _Pool, estimated_tokens: float) -> None:
        pool.started += 1
        pool.used += estimated_tokens
        if pool.requests is not None:
            pool.requests -= 1
        if pool.tokens is not None:
            pool.tokens -= estimated_tokens
