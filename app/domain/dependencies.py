"""Dependencies: what a policy says of one, how it stands, and how its limits are divided between workers.

A limit has pools: one of each class that has a reserve, and one that all share (`SHARED`). A class takes from its own
pool first. Workers hold *slices* of pools for a moment; `renew` decides what one worker gets next, from what all hold
and want. Whoever has less than before keeps what it has until its own calls have ended, and only then can others have
it: together they never hold more than the limit. Times are seconds of one clock, the database's.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil, floor

import msgspec

from app.domain import breaker
from app.domain.breaker import Breaker, BreakerPolicy, Outcomes, Phase
from app.domain.slices import Bucket, Rate, fair_share, whole_share

SHARED = ""
REQUEST_BURST = 0.05
TOKEN_BURST = 0.1


@dataclass(frozen=True, slots=True)
class Part:
    """One pool's part of the limits; None where there is no limit."""

    concurrency: int | None = None
    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None


@dataclass(frozen=True, slots=True)
class Dependency:
    """What the policy says of a dependency. One that it does not name has no limits and the usual breaker."""

    name: str
    concurrency: int | None = None
    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    reserve: Mapping[str, float] = field(default_factory=dict)
    breaker: BreakerPolicy = field(default_factory=BreakerPolicy)

    def parts(self) -> dict[str, Part]:
        """Divide the limits: the reserves in whole numbers, rounded up, and the rest for all."""
        whole = (self.concurrency, self.requests_per_minute, self.tokens_per_minute)
        parts = {
            name: tuple(None if limit is None else ceil(limit * share - 1e-9) for limit in whole)
            for name, share in self.reserve.items()
            if share > 0
        }
        rest = tuple(
            None if limit is None else limit - sum(part[at] or 0 for part in parts.values())
            for at, limit in enumerate(whole)
        )
        return {name: Part(*part) for name, part in {**parts, SHARED: rest}.items()}

    def pools_of(self, priority_class: str) -> tuple[str, ...]:
        """Name the pools that a class may take from, its own first."""
        return (priority_class, SHARED) if self.reserve.get(priority_class, 0) > 0 else (SHARED,)


class Standing(msgspec.Struct, frozen=True):
    """How a dependency stands, as it is kept. `saturated` says until when calls are known to wait for a pool."""

    breaker: Breaker = Breaker()
    requests: dict[str, Bucket] = {}
    tokens: dict[str, Bucket] = {}
    saturated: dict[str, float] = {}


class Slice(msgspec.Struct, frozen=True):
    """One worker's slice of one pool.

    `held` calls at once are its own, `wanted` is what it could use; `requests` and `tokens` are what it asks for.
    """

    pool: str
    held: int = 0
    wanted: int = 0
    requests: float = 0
    tokens: float = 0


class Ask(msgspec.Struct, frozen=True):
    """What a worker wants of one pool, and gives back.

    `keeps` is how many calls at once it holds from here on at the most, should it get nothing; `wanted` how many it
    could use, `waiting` how many of them wait. Requests and tokens: those that it asks for, and those that it returns
    (below zero: used beyond the estimate). `largest` is the estimate of its largest call.
    """

    pool: str
    keeps: int = 0
    wanted: int = 0
    waiting: int = 0
    requests: int = 0
    tokens: float = 0
    requests_back: int = 0
    tokens_back: float = 0
    largest: float = 0


class Granted(msgspec.Struct, frozen=True):
    """What a worker may use of one pool until its slice ends; None means without limit.

    `next_in_seconds` is when more of a rate that was short can be had.
    """

    pool: str
    at_once: int | None = None
    requests: int | None = None
    tokens: float | None = None
    next_in_seconds: float = 0.0


class Renewal(msgspec.Struct, frozen=True):
    """The answer to one worker: the new standing, its slices as they are to be kept, and its grants."""

    standing: Standing
    slices: tuple[Slice, ...]
    probes: int
    grants: tuple[Granted, ...]


class Others(msgspec.Struct, frozen=True):
    """What the other live workers hold: their slices, and the probes that they have under way."""

    slices: tuple[Slice, ...] = ()
    probes: int = 0


def renew(
    dependency: Dependency,
    standing: Standing,
    others: Others,
    asks: Sequence[Ask],
    *,
    outcomes: Outcomes,
    probing: int,
    now: float,
    kept_seconds: float,
) -> Renewal:
    """Take in a worker's report and decide its slices for the next `kept_seconds`. Pure.

    `probing` are the probes that it has under way. The answer's `probes` are those under way and those that it may
    start.
    """
    state = breaker.report(dependency.breaker, standing.breaker, outcomes, now)
    phase = breaker.phase_at(state, now)
    bound = breaker.ceiling(dependency.breaker, state, now) if phase is Phase.CLOSED else 0
    probes = probing
    if phase is Phase.HALF_OPEN:
        waiting = sum(ask.waiting for ask in asks)
        free = dependency.breaker.probes - state.probed - others.probes - probing
        probes += max(0, min(free, waiting))
    parts = dependency.parts()
    total = sum(one.held for one in others.slices)
    requests, tokens = dict(standing.requests), dict(standing.tokens)
    saturated = {pool: until for pool, until in standing.saturated.items() if until > now and pool in parts}
    slices, grants = [], []
    for ask in asks:
        part = parts.get(ask.pool)
        if part is None:  # the policy has changed: what is under way ends, nothing new begins
            slices.append(Slice(ask.pool, held=ask.keeps))
            grants.append(Granted(ask.pool, at_once=0))
            continue
        rivals = [one for one in others.slices if one.pool == ask.pool]
        at_once, held = _at_once(part, bound, ask, rivals, total)
        total += held
        given, given_tokens, next_in = _rates(part, requests, tokens, ask, rivals, now, kept_seconds, phase)
        slices.append(Slice(ask.pool, held, ask.wanted, ask.requests, ask.tokens))
        grants.append(Granted(ask.pool, at_once, given, given_tokens, next_in))
        if ask.waiting and phase is Phase.CLOSED and _is_short(ask, at_once, given, given_tokens):
            saturated[ask.pool] = now + kept_seconds
    kept = Standing(state, requests, tokens, saturated)
    return Renewal(kept, tuple(slices), probes, tuple(grants))


def _at_once(part: Part, bound: int | None, ask: Ask, rivals: Sequence[Slice], total: int) -> tuple[int | None, int]:
    """Say how many calls at once the worker may have, and how many are kept as its own."""
    limits = [limit for limit in (part.concurrency, bound) if limit is not None]
    if not limits:
        return None, ask.keeps
    share = whole_share(min(limits), ask.wanted, [one.wanted for one in rivals])
    free = min(limits) - sum(one.held for one in rivals)
    if bound is not None:
        free = min(free, bound - total)
    at_once = max(0, min(share, free))
    return at_once, max(ask.keeps, at_once)


def _rates(
    part: Part,
    requests: dict[str, Bucket],
    tokens: dict[str, Bucket],
    ask: Ask,
    rivals: Sequence[Slice],
    now: float,
    kept_seconds: float,
    phase: Phase,
) -> tuple[int | None, float | None, float]:
    """Take what is given back, and give what is asked for as far as it is there and is the worker's share."""
    given: int | None = None
    given_tokens: float | None = None
    next_in = 0.0
    if part.requests_per_minute is not None:
        rate = Rate.of(part.requests_per_minute, kept_seconds, REQUEST_BURST)
        bucket = rate.at(requests.get(ask.pool), now)
        level = min(rate.burst, bucket.level + ask.requests_back)
        share = ceil(fair_share(max(0.0, level), ask.requests, [one.requests for one in rivals]) - 1e-9)
        given = 0 if phase is Phase.OPEN else max(0, min(share, ask.requests, floor(level + 1e-9)))
        requests[ask.pool] = Bucket(level - given, bucket.at)
        if given == 0 and ask.requests:
            next_in = rate.seconds_until(level, 1.0)
    if part.tokens_per_minute is not None:
        rate = Rate.of(part.tokens_per_minute, kept_seconds, TOKEN_BURST)
        bucket = rate.at(tokens.get(ask.pool), now)
        level = min(rate.burst, bucket.level + ask.tokens_back)
        given_tokens = 0.0
        if phase is not Phase.OPEN and ask.tokens > 0:
            given_tokens = min(ask.tokens, fair_share(max(0.0, level), ask.tokens, [one.tokens for one in rivals]))
            needed = min(ask.largest, rate.burst)
            if given_tokens < needed <= level:
                given_tokens = needed
            if ask.largest > rate.burst and level >= rate.burst - 1e-6:
                given_tokens = ask.largest  # a call larger than the burst goes when the bucket is full, on debt
        tokens[ask.pool] = Bucket(level - given_tokens, bucket.at)
        if given_tokens < ask.largest:
            next_in = max(next_in, rate.seconds_until(level, max(1.0, ask.largest)))
    return given, given_tokens, next_in


def _is_short(ask: Ask, at_once: int | None, requests: int | None, tokens: float | None) -> bool:
    return (
        (at_once is not None and at_once < ask.wanted)
        or (requests is not None and requests < ask.waiting)
        or (tokens is not None and tokens < ask.largest)
    )


@dataclass(frozen=True, slots=True)
class DependencyGate:
    """A dependency as a release plan meets it: how many more tasks may go, and for which pools calls wait."""

    dependency: Dependency
    left: int | None
    saturated: frozenset[str]

    @property
    def lets_all(self) -> bool:
        """Say whether nothing is stopped."""
        return self.left is None and not self.saturated

    def is_saturated(self, priority_class: str) -> bool:
        """Say whether calls of the class have to wait already."""
        return all(pool in self.saturated for pool in self.dependency.pools_of(priority_class))


def gate_of(
    dependency: Dependency, standing: Standing, now: float, *, in_flight: int, probes_released: int
) -> DependencyGate:
    """Say what a plan may release on a dependency; `probes_released` counts since it became half-open."""
    policy, state = dependency.breaker, standing.breaker
    saturated = frozenset(pool for pool, until in standing.saturated.items() if until > now)
    match breaker.phase_at(state, now):
        case Phase.OPEN:
            return DependencyGate(dependency, 0, saturated)
        case Phase.HALF_OPEN:
            more = breaker.probe_tasks(policy, state, now) - probes_released
            return DependencyGate(dependency, max(0, more), saturated)
        case Phase.CLOSED:
            bound = breaker.ceiling(policy, state, now)
            return DependencyGate(dependency, None if bound is None else max(0, bound - in_flight), saturated)


def closed_names(gates: Iterable[DependencyGate]) -> frozenset[str]:
    """Name the dependencies on which nothing goes right now."""
    return frozenset(gate.dependency.name for gate in gates if gate.left == 0)
