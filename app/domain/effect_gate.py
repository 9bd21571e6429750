"""Whether the policy lets a tenant's task have an effect at all: the first rule that matches says so."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

import cel

from app.domain.policy import EffectRule, Policy
from app.domain.task_types import TaskTypeSpec


@dataclass(frozen=True, slots=True)
class EffectFacts:
    """What effect rules may look at: the effect's type, whose task it is, and what kind of task. `now` is aware."""

    effect_type: str
    tenant_id: str
    spec: TaskTypeSpec
    priority_class: str
    attempt: int
    now: datetime


@dataclass(frozen=True, slots=True)
class Refused:
    """The rule that does not allow it."""

    reason_code: str
    policy_version: str


def decide_gate(policy: Policy, facts: EffectFacts) -> Refused | None:
    """Ask the rules in their order; what no rule matches is allowed.

    A rule over a fact that is not there does not match, as everywhere in the policy. One whose condition fails for
    another reason matches where it refuses and does not where it allows: a gate that breaks stays shut.
    """
    for rule in policy.effects:
        if _matches(rule, facts):
            return None if rule.allow else Refused(rule.reason_code, policy.version)
    return None


def _matches(rule: EffectRule, facts: EffectFacts) -> bool:
    if rule.types and facts.effect_type not in rule.types:
        return False
    if rule.tenants and facts.tenant_id not in rule.tenants:
        return False
    if rule.condition is None:
        return True
    known: dict[str, Mapping[str, object]] = {
        "effect": {"type": facts.effect_type},
        "tenant": {"id": facts.tenant_id},
        "task": {
            "type": facts.spec.name,
            "cost_class": facts.spec.cost_class.value,
            "priority_class": facts.priority_class,
            "attempt": facts.attempt,
        },
        "process": {name: value for name, value in facts.spec.process.items() if value is not None},
        "now": {},
    }
    if rule.condition.lacks(known) is not None:
        return False
    try:
        return rule.condition.holds(cel.Context({**known, "now": facts.now.astimezone(UTC)}))
    except KeyError:
        return False
    except Exception:
        return not rule.allow
