"""The class of a submission: the policy's decision, remembered where only standing facts can have led to it.

Most submissions have no due_at, no valid_until and no claims; then the decision depends on the type, the tenant and the
group alone, as long as no rule that could hold looks at the clock. It is the same decision with the same facts; making
it anew costs 20 µs a task.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

import msgspec

from app.domain.policy import Policy, PriorityClass
from app.domain.priority import Facts, decide_class
from app.domain.task_types import TaskTypeSpec

_encode = msgspec.json.Encoder().encode
_MOST = 10_000
_CLOCKED = frozenset({("now", None), ("now", ""), ("task", None), ("task", "submitted_at")})
_OFTEN_ABSENT = frozenset({("task", "due_at"), ("task", "valid_until")})


@dataclass(frozen=True, slots=True)
class Classified:
    """A class with its reason, and the facts it was decided from as JSON text."""

    chosen: PriorityClass
    reason_code: str
    policy_version: str
    facts: str


@dataclass(frozen=True, slots=True)
class Asked:
    """What a submission brings to the decision, beside its type. Times are aware."""

    service_class: str
    weight: float
    group: str | None
    due_at: datetime | None
    valid_until: datetime | None
    claims: Mapping[str, object] | None
    may_claim: bool


class Classifier:
    """Decides by one version of the policy."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self._remembers = not any(_may_hold_by_the_clock(policy, index) for index in range(len(policy.rules)))
        self._known: dict[tuple[str, str, float, str | None, bool], Classified] = {}

    def classify(self, spec: TaskTypeSpec, asked: Asked, now: datetime) -> Classified:
        """Decide the class of a submission of type `spec`."""
        standing = asked.due_at is None and asked.valid_until is None and not asked.claims
        if not (standing and self._remembers):
            return self._decide(spec, asked, now)
        key = (spec.name, asked.service_class, asked.weight, asked.group, asked.may_claim)
        known = self._known.get(key)
        if known is None:
            if len(self._known) >= _MOST:
                self._known.clear()
            known = self._known[key] = self._decide(spec, asked, now)
        return known

    def _decide(self, spec: TaskTypeSpec, asked: Asked, now: datetime) -> Classified:
        decision = decide_class(
            self.policy,
            Facts(
                process=spec.process,
                tenant={"service_class": asked.service_class, "weight": asked.weight},
                task={
                    "type": spec.name,
                    "cost_class": spec.cost_class.value,
                    "submitted_at": now,
                    "due_at": asked.due_at,
                    "valid_until": asked.valid_until,
                    "group": asked.group,
                },
                claims=asked.claims or {},
                may_claim=asked.may_claim,
                now=now,
            ),
        )
        facts: dict[str, object] = {"used": decision.facts_used}
        if decision.skipped:
            facts["skipped"] = {skipped.reason_code: skipped.why for skipped in decision.skipped}
        if asked.claims:
            facts["claims_made"] = sorted(asked.claims)
        chosen = self.policy.by_name[decision.priority_class]
        return Classified(chosen, decision.reason_code, decision.policy_version, _encode(facts).decode())


def _may_hold_by_the_clock(policy: Policy, index: int) -> bool:
    """Say whether a rule can hold for a submission without times and claims, and looks at the clock to find out."""
    condition = policy.rules[index].condition
    lacking = any(fact in _OFTEN_ABSENT or fact[0] == "claims" for fact in condition.required)
    return not lacking and any((read.root, read.field) in _CLOCKED for read in condition.reads)
