"""Why a class and no other: each rule with what it read and why it did not match; and a decision made again."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum

from app.domain.conditions import Read
from app.domain.policy import Policy
from app.domain.priority import NO_CLAIMS, ClassDecision, Facts, Skipped, decide_class, plain

_TIMES = {"task": ("submitted_at", "due_at", "valid_until")}


class Outcome(StrEnum):
    """What came of a rule."""

    MATCHED = "matched"
    DOES_NOT_HOLD = "does_not_hold"
    NOT_ASKED = "not_asked"
    """It lacks a fact, may not use a claim, or its evaluation failed."""
    COMES_LATER = "comes_later"
    """An earlier rule matched."""


@dataclass(frozen=True, slots=True)
class Tried:
    """One rule, what came of it and why. `read` has the facts that it looks at, as far as they are known."""

    reason_code: str
    priority_class: str
    when: str
    outcome: Outcome
    why: str | None
    read: Mapping[str, object]


def tried(policy: Policy, decision: ClassDecision, facts: Facts) -> list[Tried]:
    """Tell what came of every rule of `policy` in a decision that it made of `facts`."""
    skipped = {one.reason_code: one.why for one in decision.skipped}
    told: list[Tried] = []
    over = False
    for rule in policy.rules:
        why = None
        if over:
            outcome = Outcome.COMES_LATER
        elif rule.reason_code == decision.reason_code:
            outcome, over = Outcome.MATCHED, True
        elif rule.reason_code in skipped:
            outcome, why = Outcome.NOT_ASKED, skipped[rule.reason_code]
        else:
            outcome, why = Outcome.DOES_NOT_HOLD, "its condition is false for these facts"
        read = _read(rule.condition.reads, facts) if outcome is not Outcome.COMES_LATER else {}
        told.append(Tried(rule.reason_code, rule.priority_class, rule.when, outcome, why, read))
    return told


def _read(reads: Iterable[Read], facts: Facts) -> dict[str, object]:
    found: dict[str, object] = {}
    for read in reads:
        if read.root == "now":
            found["now"] = plain(facts.now)
        else:
            known: Mapping[str, object] = getattr(facts, read.root)
            found[str(read)] = plain(known if read.field is None else known.get(read.field))
    return found


def facts_again(used: Mapping[str, object], *, now: datetime, may_claim: bool) -> Facts:
    """Make facts of those that were recorded with a decision; `now` is used where the decision did not look at it."""

    def root(name: str) -> dict[str, object]:
        found = used.get(name)
        values = dict(found) if isinstance(found, Mapping) else {}
        for time in _TIMES.get(name, ()):
            if isinstance(text := values.get(time), str):
                values[time] = _instant(text)
        return values

    recorded = used.get("now")
    return Facts(
        process=root("process"),
        tenant=root("tenant"),
        task=root("task"),
        source=root("source"),
        claims=root("claims"),
        may_claim=may_claim,
        now=_instant(recorded) if isinstance(recorded, str) else now,
    )


def derive_again(policy: Policy, recorded: Mapping[str, object], now: datetime) -> tuple[ClassDecision, Facts]:
    """Repeat a decision from what was stored with it (`used`, `skipped`): the same policy gives the same class.

    Rules that could not be asked are not asked again: what made them fail was not recorded.
    """
    used, skipped = recorded.get("used"), recorded.get("skipped")
    before = skipped if isinstance(skipped, Mapping) else {}
    facts = facts_again(used if isinstance(used, Mapping) else {}, now=now, may_claim=NO_CLAIMS not in before.values())
    asked = replace(policy, rules=tuple(rule for rule in policy.rules if rule.reason_code not in before))
    decision = decide_class(asked, facts)
    kept = tuple(Skipped(str(code), str(why)) for code, why in before.items())
    return replace(decision, skipped=(*kept, *decision.skipped)), facts


def _instant(text: str) -> datetime:
    return datetime.fromisoformat(text).astimezone(UTC)
