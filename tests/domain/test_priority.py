"""Deciding a task's class from facts."""

import json
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path

import pytest

from app.domain.policy import Policy
from app.domain.policy_file import parse_policy
from app.domain.priority import Facts, decide_class
from tests.domain.policies import NOW

CLASSES = """
version = "7"
owner = "ops"
default_class = "low"
[[class]]
name = "high"
owner = "o"
start_within = "5s"
nominal = 0.3
reclaim_within = "10s"
[[class]]
name = "low"
owner = "o"
start_within = "5s"
nominal = 0.3
reclaim_within = "10s"
"""


def a_policy_with(*rules: tuple[str, str, str], trusts: str = "[]") -> Policy:
    text = "".join(
        f"[[rule]]\nreason_code = '{code}'\nclass = '{name}'\nwhen = '''{when}'''\ntrusts = {trusts}\n"
        for code, name, when in rules
    )
    return parse_policy(CLASSES + text)


def facts(
    process: Mapping[str, object] | None = None,
    task: Mapping[str, object] | None = None,
    claims: Mapping[str, object] | None = None,
    service_class: str = "standard",
    may_claim: bool = False,
) -> Facts:
    tenant = {"service_class": service_class, "weight": 1.0}
    return Facts(process or {}, tenant, {"type": "a_type", **(task or {})}, NOW, {}, claims or {}, may_claim)


def test_the_first_rule_that_holds_decides() -> None:
    policy = a_policy_with(("A", "low", "process.x > 5"), ("B", "high", "process.x > 1"), ("C", "low", "true"))

    decision = decide_class(policy, facts({"x": 3}))

    assert (decision.priority_class, decision.reason_code, decision.policy_version) == ("high", "B", "7")
    assert decision.facts_used == {"process": {"x": 3}}


def test_without_a_match_the_default_class_is_taken() -> None:
    decision = decide_class(a_policy_with(("A", "high", "process.x > 5")), facts({"x": 3}))

    assert (decision.priority_class, decision.reason_code) == ("low", "DEFAULT")


@pytest.mark.parametrize(
    ("when", "process", "why"),
    [
        ("process.x > 5", {}, "process.x is not known"),
        ("process.x > 5", {"x": None}, "process.x is not known"),
        ("process.x > 5 || process.y > 5", {"y": 1}, "x is not known"),
        ("process.x > 5", {"x": "many"}, "overload"),
        ("process.x / process.y > 5", {"x": 1, "y": 0}, "division by zero"),
        ("process.x", {"x": "yes"}, "gives str, not true or false"),
        ("process.x + 1 > 5", {"x": 2**63 - 1}, "overflow"),
        ("process.x > 5", {"x": object()}, "x is not known"),
    ],
)
def test_a_rule_that_cannot_be_asked_does_not_match_and_says_why(
    when: str, process: dict[str, object], why: str
) -> None:
    decision = decide_class(a_policy_with(("A", "high", when), ("B", "low", "true")), facts(process))

    assert decision.reason_code == "B"
    assert [skip.reason_code for skip in decision.skipped] == ["A"]
    assert why.lower() in decision.skipped[0].why.lower()
    assert decision.skipped[0].why


def test_a_claim_decides_only_when_the_rule_trusts_it_and_the_key_may_claim() -> None:
    policy = a_policy_with(("CLAIMED", "high", "claims.incident == true"), trusts='["claims.incident"]')
    claims = {"incident": True}

    assert decide_class(policy, facts(claims=claims, may_claim=True)).priority_class == "high"
    refused = decide_class(policy, facts(claims=claims, may_claim=False))

    assert (refused.priority_class, refused.reason_code) == ("low", "DEFAULT")
    assert refused.skipped[0].why == "the key may not make claims"


def test_the_same_values_of_other_types_are_other_values() -> None:
    policy = a_policy_with(("A", "high", "process.x == true"))

    assert decide_class(policy, facts({"x": True})).reason_code == "A"
    assert decide_class(policy, facts({"x": 1})).reason_code == "DEFAULT"
    assert decide_class(policy, facts({"x": 1.0})).reason_code == "DEFAULT"
    assert decide_class(policy, facts({"x": True})).reason_code == "A"


def test_remembered_answers_stay_bounded() -> None:
    policy = a_policy_with(("A", "high", "process.x > 10"))

    answers = [decide_class(policy, facts({"x": x})).reason_code for x in range(3_000)]

    assert answers == ["DEFAULT"] * 11 + ["A"] * 2_989
    assert len(policy.rules[0].condition.answers) <= 1_024


def test_times_are_facts_and_the_record_is_json() -> None:
    policy = a_policy_with(("SOON", "high", 'has(task.due_at) && task.due_at - now < duration("2h")'))

    soon = decide_class(policy, facts(task={"due_at": NOW + timedelta(hours=1)}))
    later = decide_class(policy, facts(task={"due_at": NOW + timedelta(hours=3)}))
    never = decide_class(policy, facts(task={"due_at": None}))

    assert [one.reason_code for one in (soon, later, never)] == ["SOON", "DEFAULT", "DEFAULT"]
    assert json.loads(json.dumps(soon.facts_used)) == {
        "task": {"due_at": "2026-11-30T13:00:00Z"},
        "now": "2026-11-30T12:00:00Z",
    }


@pytest.mark.parametrize(
    ("process", "service_class", "expected"),
    [
        ({}, "standard", "DEFAULT"),
        ({"contract_sla_seconds": 600}, "batch", "CONTRACT_SLA"),
        ({"contract_sla_seconds": 86_400}, "standard", "DEFAULT"),
        ({"continuity_obligation": True}, "standard", "CONTINUITY"),
        ({"reversible": False, "manual_route": False}, "standard", "IRREVERSIBLE"),
        ({"reversible": False}, "standard", "DEFAULT"),
        ({}, "premium", "TENANT_SERVICE"),
        ({"deferrable": True}, "standard", "CAN_WAIT"),
        ({}, "batch", "TENANT_BATCH"),
    ],
)
def test_the_shipped_rules_say_what_their_comments_say(
    process: dict[str, object], service_class: str, expected: str
) -> None:
    policy = parse_policy((Path(__file__).parents[2] / "policy.toml").read_text(encoding="utf-8"))

    assert decide_class(policy, facts(process, service_class=service_class)).reason_code == expected


def test_urgent_words_of_the_requester_change_nothing() -> None:
    policy = parse_policy((Path(__file__).parents[2] / "policy.toml").read_text(encoding="utf-8"))

    decision = decide_class(policy, facts(claims={"priority": "critical", "vip": True}, may_claim=True))

    assert (decision.priority_class, decision.reason_code) == (policy.default_class, "DEFAULT")
