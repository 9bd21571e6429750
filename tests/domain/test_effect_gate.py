"""Effect rules of the policy: the first that matches decides, and a broken one stays shut."""

from datetime import UTC, datetime

import pytest

from app.domain.effect_gate import EffectFacts, Refused, decide_gate
from app.domain.policy_file import PolicyError, parse_policy
from app.domain.task_types import TaskTypeSpec
from tests.support.world import ONE_CLASS

NOW = datetime(2026, 11, 30, 23, tzinfo=UTC)


def _refused(rules: str, effect_type: str = "send_email", tenant_id: str = "acme", **process: object) -> str | None:
    spec = TaskTypeSpec("mailer", process=process)
    answer = decide_gate(parse_policy(ONE_CLASS + rules), EffectFacts(effect_type, tenant_id, spec, "common", 1, NOW))
    assert answer is None or answer == Refused(answer.reason_code, "test.1")
    return None if answer is None else answer.reason_code


def _rule(code: str, *lines: str, allow: bool = False) -> str:
    return "\n".join(["", "[[effect]]", f'reason_code = "{code}"', f"allow = {str(allow).lower()}", *lines, ""])


def test_what_no_rule_matches_is_allowed() -> None:
    assert _refused("") is None
    assert _refused(_rule("R", 'type = "refund"')) is None
    assert _refused(_rule("R", 'tenants = ["other"]')) is None


def test_the_first_rule_that_matches_decides() -> None:
    rules = _rule("OURS", 'tenants = ["acme"]', 'type = ["send_email", "x"]', allow=True) + _rule("NOBODY_ELSE")

    assert _refused(rules) is None
    assert _refused(rules, tenant_id="rival") == "NOBODY_ELSE"
    assert _refused(rules, effect_type="refund") == "NOBODY_ELSE"


def test_conditions_see_the_effect_the_task_and_its_process() -> None:
    rules = _rule("NIGHT", """when = 'now.getHours() >= 22 && effect.type == "send_email" && tenant.id == "acme"'""")
    facts = _rule("UNSAFE", "when = 'process.safe == false && task.priority_class == \"common\" && task.attempt == 1'")

    assert _refused(rules) == "NIGHT"
    assert _refused(facts, safe=False) == "UNSAFE"
    assert _refused(facts, safe=True) is None
    assert _refused(facts) is None, "a fact that is not there does not match"


def test_a_condition_that_fails_refuses_and_does_not_allow() -> None:
    broken = "when = 'process.level > 3'"

    assert _refused(_rule("SHUT", broken), level="high") == "SHUT"
    assert _refused(_rule("OPEN", broken, allow=True) + _rule("REST"), level="high") == "REST"


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        (_rule("R", 'type = "Not Good"'), "no effect type"),
        (_rule("R", "type = []"), "a name, or a list of names"),
        (_rule("R", "when = 'claims.x == 1'"), "unknown name 'claims'"),
        (_rule("R", "when = 'effect.kind == 1'"), "unknown fact effect.kind"),
        (_rule("R", 'typo = "x"'), "unknown key 'typo'"),
        (_rule("R") + _rule("R"), "already used"),
        ('\n[[effect]]\nreason_code = "R"\n', "'allow' is missing"),
        ('\n[[effect]]\nreason_code = "R"\nallow = "no"\n', "true or false"),
    ],
)
def test_a_rule_that_cannot_be_used_is_refused_with_its_line(rule: str, expected: str) -> None:
    with pytest.raises(PolicyError, match=r"line \d+: ") as refused:
        parse_policy(ONE_CLASS + rule)

    assert expected in str(refused.value)
