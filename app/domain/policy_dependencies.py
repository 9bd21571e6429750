"""Reading `[[dependency]]` and `[[budget]]` of the policy file."""

import re
from collections.abc import Sequence
from decimal import Decimal

from app.domain.breaker import BreakerPolicy
from app.domain.budgets import ALL, DEFAULT_MARGIN, Budget, BudgetKind
from app.domain.dependencies import SHARED, Dependency
from app.domain.policy_section import Section

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:-]{0,63}")
_MOST = 1_000_000_000
_USUAL = BreakerPolicy()


def read_dependencies(sections: Sequence[Section], classes: Sequence[str]) -> list[Dependency]:
    """Read the dependencies, noting every problem; `classes` are those that may have a reserve."""
    found: dict[str, Dependency] = {}
    for section in sections:
        name = section.matching("name", _NAME, "letters, digits, _, ., : and -, at most 64, such as 'llm'")
        concurrency = section.integer("concurrency", at_most=1_000_000, required=False)
        requests = section.integer("requests_per_minute", at_most=_MOST, required=False)
        tokens = section.integer("tokens_per_minute", at_most=_MOST, required=False)
        reserve = _reserve(section, classes)
        breaker = _breaker(section)
        section.finish()
        if name is None:
            continue
        if name in found:
            section.problem("name", f"the dependency {name!r} is there twice; each has one table")
            continue
        found[name] = Dependency(name, concurrency, requests, tokens, reserve, breaker)
        _leaves_some(section, found[name])
    return list(found.values())


def _reserve(section: Section, classes: Sequence[str]) -> dict[str, float]:
    inner = section.table("reserve")
    if inner is None:
        return {}
    shares: dict[str, float] = {}
    for name in inner.values:
        share = inner.share(name)
        if name not in classes:
            inner.problem("reserve", f"unknown class {name[:64]!r}; it must be one of {', '.join(classes) or 'none'}")
        elif share is not None:
            shares[name] = share
    if sum(shares.values()) >= 1:
        inner.problem("reserve", "the reserves add up to 1 or more; leave a part for the other classes")
        return {}
    return shares


def _leaves_some(section: Section, dependency: Dependency) -> None:
    """Note a problem where the reserves, rounded up, leave nothing of a limit for the other classes."""
    rest = dependency.parts()[SHARED]
    for key in ("concurrency", "requests_per_minute", "tokens_per_minute"):
        left = getattr(rest, key)
        if left is not None and left < 1:
            section.problem(key, f"{key!r} leaves nothing beside the reserves, rounded up; raise it or lower those")


def _breaker(section: Section) -> BreakerPolicy:
    inner = section.table("breaker")
    if inner is None:
        return _USUAL
    open_after = inner.integer("open_after", at_most=1_000_000, required=False)
    ratio = inner.share("failure_ratio", default=_USUAL.failure_ratio)
    window = inner.duration("window", default=_USUAL.window_seconds)
    probe_after = inner.duration("probe_after", default=_USUAL.probe_after_seconds)
    growth = inner.number("growth", 1, 100, default=_USUAL.growth)
    longest = inner.duration("maximum", required=False)
    probes = inner.integer("probes", at_most=1000, required=False)
    ramp = inner.duration("ramp", default=_USUAL.ramp_seconds)
    inner.finish()
    if probe_after is None or ratio is None or window is None or growth is None or ramp is None:
        return _USUAL
    if longest is not None and longest < probe_after:
        inner.problem("maximum", "'maximum' is shorter than 'probe_after', which grows up to it; give at least that")
    return BreakerPolicy(
        open_after=open_after or _USUAL.open_after,
        failure_ratio=ratio,
        window_seconds=window,
        probe_after_seconds=probe_after,
        growth=growth,
        maximum_seconds=longest or max(_USUAL.maximum_seconds, probe_after),
        probes=probes or _USUAL.probes,
        ramp_seconds=ramp,
    )


def read_budgets(sections: Sequence[Section]) -> list[Budget]:
    """Read the budgets, noting every problem."""
    found: dict[str, Budget] = {}
    kinds = ", ".join([*(f"{kind}:name" for kind in BudgetKind), ALL])
    for section in sections:
        on = section.text("on")
        cost = section.amount("cost_usd_per_day")
        tokens = section.integer("tokens_per_day", at_most=10**15, required=False)
        margin = section.share("retry_margin", default=DEFAULT_MARGIN)
        section.finish()
        kind, _, name = (on or "").partition(":")
        if on is None:
            continue
        if on != ALL and (kind not in list(BudgetKind) or not name):
            section.problem("on", f"{on[:64]!r} is not something to give a budget; write one of {kinds}")
        elif on in found:
            section.problem("on", f"{on[:64]!r} has two budgets; keep one")
        elif "cost_usd_per_day" not in section.values and "tokens_per_day" not in section.values:
            section.problem("on", "it limits nothing; give 'cost_usd_per_day', 'tokens_per_day' or both")
        elif margin is not None:
            if margin >= 1:
                section.problem("retry_margin", "'retry_margin' is 1, which leaves nothing for first attempts")
            found[on] = Budget(on, Decimal(cost) if cost is not None else None, tokens, margin)
    return list(found.values())
