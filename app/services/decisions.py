"""Classes explained: what a submission would get and why, and a stored task's decision made again."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Row
from sqlalchemy.ext.asyncio import AsyncConnection

from app.domain.explanation import Tried, derive_again, facts_again, tried
from app.domain.overrides import CLASS_GONE_REASON, OVERRIDE_REASON
from app.domain.policy import Policy
from app.domain.policy_file import PolicyError, parse_policy
from app.domain.priority import NO_CLAIMS, ClassDecision, Facts, decide_class
from app.domain.task_types import TaskTypeSpec
from app.runtime import Runtime
from app.services.actors import Actor, check_seen
from app.services.errors import FieldError, Invalid, NotFound
from app.services.submission import TenantFacts
from app.store import policies

_MOVED = frozenset({OVERRIDE_REASON, CLASS_GONE_REASON})


@dataclass(frozen=True, slots=True)
class Question:
    """A submission that is not made; times are aware."""

    type: str
    group: str | None
    due_at: datetime | None
    valid_until: datetime | None
    claims: Mapping[str, object] | None
    requested_class: str | None


@dataclass(frozen=True, slots=True)
class Answer:
    """A class with its reason, the facts that were used, and what came of every rule."""

    decision: ClassDecision
    rules: list[Tried]


@dataclass(frozen=True, slots=True)
class Explained:
    """A stored task: the class it has, what the rules gave it, and whether its stored facts give that again.

    `again` is None where its version of the policy cannot be read any more. `now` is what the policy in force would
    give it, from its stored facts and those of its type and tenant as they are now.
    """

    task: Row[Any]
    derived_class: str
    derived_reason_code: str
    again: Answer | None
    now: Answer

    @property
    def agrees(self) -> bool | None:
        """Say whether the decision made again is the one that was stored; None where it cannot be made."""
        if self.again is None:
            return None
        found = self.again.decision
        return (found.priority_class, found.reason_code) == (self.derived_class, self.derived_reason_code)


def evaluate(runtime: Runtime, tenant: TenantFacts, may_claim: bool, asked: Question) -> Answer:
    """Decide the class of a submission without making it. Raises Invalid for a type that is not known here."""
    task_type = runtime.registry.get(asked.type)
    if task_type is None:
        raise Invalid(
            [FieldError("#/type", "no such task type here: GET /v1/task-types lists those there are")],
            code="unknown_task_type",
            detail="There is no such task type.",
        )
    now = runtime.now()
    facts = Facts(
        process=task_type.spec.process,
        tenant={"service_class": tenant.service_class, "weight": tenant.weight},
        task={
            "type": task_type.spec.name,
            "cost_class": task_type.spec.cost_class.value,
            "submitted_at": now,
            "due_at": asked.due_at,
            "valid_until": asked.valid_until,
            "group": asked.group,
        },
        claims=asked.claims or {},
        may_claim=may_claim,
        now=now,
    )
    return _answer(runtime.policy.current, facts)


async def explain(runtime: Runtime, actor: Actor, task_id: str) -> Explained:
    """Make the decision about a stored task again, from its facts and by its version of the policy. Raises NotFound."""

    async def read(connection: AsyncConnection) -> tuple[Row[Any] | None, Row[Any] | None]:
        row = await policies.decided_task(connection, task_id)
        return row, (await policies.get(connection, row.policy_version) if row is not None else None)

    task, version = await runtime.database.run(read)
    if task is None:
        raise NotFound
    check_seen(actor, task_id, task.tenant_id)
    again = None
    if (policy := _readable(version)) is not None:
        decision, facts = derive_again(policy, json.loads(task.facts), task.submitted_at)
        again = Answer(decision, tried(policy, decision, facts))
    task_type = runtime.registry.get(task.type)
    now = _answer(runtime.policy.current, facts_of_task(task, task_type.spec if task_type is not None else None))
    return Explained(task, *given_at_first(task), again, now)


def _readable(version: Row[Any] | None) -> Policy | None:
    if version is None:
        return None
    try:
        return parse_policy(version.document)
    except PolicyError:
        return None


def _answer(policy: Policy, facts: Facts) -> Answer:
    decision = decide_class(policy, facts)
    return Answer(decision, tried(policy, decision, facts))


def given_at_first(row: Row[Any]) -> tuple[str, str]:
    """Tell the class and code that the rules gave a task, whatever class it has been given since."""
    if row.reason_code in _MOVED and row.moved is not None:
        moved = json.loads(row.moved)
        return moved["from"], moved["from_reason_code"]
    return row.priority_class, row.reason_code


def facts_of_task(row: Row[Any], spec: TaskTypeSpec | None) -> Facts:
    """Put together what is known of a stored task: what its decision recorded counts, the rest is as it is now."""
    recorded = json.loads(row.facts)
    used = recorded.get("used", {})
    may_claim = NO_CLAIMS not in recorded.get("skipped", {}).values()
    before = facts_again(used, now=row.submitted_at, may_claim=may_claim)
    task = {
        "type": row.type,
        "cost_class": row.cost_class,
        "submitted_at": row.submitted_at,
        "due_at": row.due_at,
        "valid_until": row.valid_until,
        "group": row.task_group,
    }
    return Facts(
        process={**(spec.process if spec is not None else {}), **before.process},
        tenant={"service_class": row.service_class, "weight": row.weight, **before.tenant},
        task={**task, **before.task},
        source=before.source,
        claims=before.claims,
        may_claim=may_claim,
        now=before.now,
    )
