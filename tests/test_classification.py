"""The remembered decision is the policy's own, and only where no clock and no claim can change it."""

from datetime import UTC, datetime, timedelta

import pytest

from app.classification import Asked, Classifier
from app.domain.policy_file import parse_policy
from app.domain.task_types import TaskTypeSpec

NOW = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)
POLICY = """
version = "1"
owner = "ops"
default_class = "common"

[[class]]
name = "critical"
owner = "ops"
start_within = "5s"
nominal = 0.2
maximum = 1.0
reclaim_within = "10s"

[[class]]
name = "common"
owner = "ops"
start_within = "15m"
nominal = 0.2
maximum = 1.0
reclaim_within = "10s"

[[rule]]
reason_code = "PREMIUM"
class = "critical"
when = 'tenant.service_class == "premium"'

[[rule]]
reason_code = "DUE_SOON"
class = "critical"
when = 'has(task.due_at) && task.due_at - now < duration("2h")'
"""
CLOCKED = """
[[rule]]
reason_code = "AFTER_NOON"
class = "critical"
when = 'now > timestamp("2026-11-30T12:30:00Z")'
"""


def asked(service_class: str = "standard", due_at: datetime | None = None) -> Asked:
    return Asked(service_class, 1.0, None, due_at, None, None, False)


def test_the_same_standing_facts_give_the_same_decision_without_asking_again() -> None:
    classifier = Classifier(parse_policy(POLICY))
    spec = TaskTypeSpec("audit")

    first = classifier.classify(spec, asked(), NOW)
    later = classifier.classify(spec, asked(), NOW + timedelta(days=1))

    assert (first.chosen.name, first.reason_code) == ("common", "DEFAULT")
    assert later is first
    assert classifier.classify(spec, asked("premium"), NOW).reason_code == "PREMIUM"


def test_a_due_time_is_decided_by_the_clock_every_time() -> None:
    classifier = Classifier(parse_policy(POLICY))
    spec = TaskTypeSpec("audit")
    due_at = NOW + timedelta(hours=3)

    early = classifier.classify(spec, asked(due_at=due_at), NOW)
    late = classifier.classify(spec, asked(due_at=due_at), NOW + timedelta(hours=2))

    assert (early.reason_code, late.reason_code) == ("DEFAULT", "DUE_SOON")


@pytest.mark.parametrize(("minutes", "reason"), [(0, "DEFAULT"), (31, "AFTER_NOON")])
def test_a_rule_that_only_looks_at_the_clock_is_asked_every_time(minutes: int, reason: str) -> None:
    classifier = Classifier(parse_policy(POLICY + CLOCKED))
    spec = TaskTypeSpec("audit")
    classifier.classify(spec, asked(), NOW)

    assert classifier.classify(spec, asked(), NOW + timedelta(minutes=minutes)).reason_code == reason
