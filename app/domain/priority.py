"""Which class a task gets, and why: the first rule that holds over facts that can be checked."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache

import cel

from app.domain.conditions import Read
from app.domain.policy import DEFAULT_REASON, Policy

_NOTHING: Mapping[str, object] = {}
NO_CLAIMS = "the key may not make claims"
Recorded = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Facts:
    """What rules may look at. A value of None counts as absent; times are aware.

    `process` holds the registered facts of the task type, `source` what the system of record said, `claims` what the
    requester said: usable only where a rule trusts the claim and `may_claim` (the key has the scope) holds.
    """

    process: Mapping[str, object]
    tenant: Mapping[str, object]
    task: Mapping[str, object]
    now: datetime
    source: Mapping[str, object] = field(default_factory=lambda: _NOTHING)
    claims: Mapping[str, object] = field(default_factory=lambda: _NOTHING)
    may_claim: bool = False


@dataclass(frozen=True, slots=True)
class Skipped:
    """A rule that could not be asked, with the reason."""

    reason_code: str
    why: str


@dataclass(frozen=True, slots=True)
class ClassDecision:
    """The class of a task with what it was decided from; `facts_used` is JSON-able (times in RFC 3339, UTC)."""

    priority_class: str
    reason_code: str
    policy_version: str
    facts_used: Recorded
    skipped: tuple[Skipped, ...] = ()


def decide_class(policy: Policy, facts: Facts) -> ClassDecision:
    """Take the first rule that holds, else the policy's default class; never raises for what the facts hold."""
    known = {
        "process": facts.process,
        "tenant": facts.tenant,
        "task": facts.task,
        "source": facts.source,
        "claims": facts.claims,
        "now": {},
    }
    context: cel.Context | None = None
    skipped: list[Skipped] = []
    used: dict[str, object] = {}
    for rule in policy.rules:
        condition = rule.condition
        why = NO_CLAIMS if rule.trusts and not facts.may_claim else condition.lacks(known)
        if why is not None:
            skipped.append(_skip(rule.reason_code, why))
            continue
        key = condition.key(known)
        try:
            holds = condition.answers.get(key) if key is not None else None
            if holds is None:
                context = context or _context(facts, known)
                holds = condition.holds(context, key)
        except Exception as error:
            skipped.append(_skip(rule.reason_code, _reason(error)))
            continue
        _record(used, condition.reads, known, facts.now)
        if holds:
            return ClassDecision(rule.priority_class, rule.reason_code, policy.version, used, tuple(skipped))
    return ClassDecision(policy.default_class, DEFAULT_REASON, policy.version, used, tuple(skipped))


def _context(facts: Facts, known: Mapping[str, Mapping[str, object]]) -> cel.Context:
    present = {root: _present(found) for root, found in known.items()}
    try:
        return cel.Context({**present, "now": facts.now})
    except ValueError:  # a value that CEL cannot hold: its rule does not match, the others are not concerned
        usable = {root: {n: v for n, v in found.items() if _is_usable(v)} for root, found in present.items()}
        return cel.Context({**usable, "now": facts.now})


def _is_usable(value: object) -> bool:
    try:
        cel.Context({"value": value})
    except ValueError:
        return False
    return True


def _present(facts: Mapping[str, object]) -> Mapping[str, object]:
    """Leave out what is None, so that `has(task.due_at)` says what it means."""
    if not facts:
        return _NOTHING
    return {name: value for name, value in facts.items() if value is not None}


@lru_cache(maxsize=1024)
def _skip(reason_code: str, why: str) -> Skipped:
    return Skipped(reason_code, why if " " in why else f"{why} is not known")


def _reason(error: Exception) -> str:
    if isinstance(error, KeyError):
        return f"{str(error.args[0])[:64]} is not known"
    return (str(error).splitlines() or [""])[0][:200] or type(error).__name__


def _record(
    used: dict[str, object], reads: Iterable[Read], known: Mapping[str, Mapping[str, object]], now: datetime
) -> None:
    """Add the facts that a rule read to `used`, as plain JSON values."""
    for read in reads:
        if read.root == "now":
            used["now"] = plain(now)
            continue
        found = known[read.root]
        recorded = used.setdefault(read.root, {})
        if isinstance(recorded, dict):
            names = found if read.field is None else (read.field,)
            recorded.update({name: plain(found[name]) for name in names if found.get(name) is not None})


def plain(value: object) -> object:
    """Make a JSON value of a fact; times become RFC 3339 in UTC."""
    match value:
        case datetime():
            return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
        case Mapping():
            return {str(name): plain(one) for name, one in value.items()}
        case list() | tuple():
            return [plain(one) for one in value]
        case None | bool() | int() | float() | str():
            return value
        case _:
            return str(value)
