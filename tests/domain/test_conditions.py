"""CEL conditions: what they read, what is refused, and that skipping the evaluation changes no answer."""

from datetime import timedelta

import cel
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.domain.conditions import ConditionError, compile_condition
from tests.domain.policies import NOW


@pytest.mark.parametrize(
    ("when", "reads", "required"),
    [
        ("process.sla <= 900", {"process.sla"}, {"process.sla"}),
        ('process["sla"] <= 900', {"process.sla"}, {"process.sla"}),
        ("has(task.due_at)", {"task.due_at"}, set()),
        ("!has(task.due_at)", {"task.due_at"}, set()),
        ("has(process.a) && process.b > 1", {"process.a", "process.b"}, {"process.b"}),
        ("process.a == 1 || process.b == 1", {"process.a", "process.b"}, set()),
        ("!(process.a == 1 && process.b == 1)", {"process.a", "process.b"}, set()),
        ("process.list.exists(i, i > process.b)", {"process.list", "process.b"}, set()),
        ('"sla" in process', {"process"}, set()),
        ("now.getHours() < 6", {"now"}, set()),
        ('task.type == "task.group" // process.sla', {"task.type"}, {"task.type"}),
    ],
)
def test_the_facts_that_a_condition_reads_are_known(when: str, reads: set[str], required: set[str]) -> None:
    condition = compile_condition(when)

    assert {str(read) for read in condition.reads} == reads
    assert {f"{root}.{name}" for root, name in condition.required} == required


@pytest.mark.parametrize(
    ("when", "said"),
    [
        ("process.sla <=", "not valid CEL"),
        ("", "not valid CEL"),
        ("urgent == true", "unknown name 'urgent'"),
        ('tenant.servce_class == "x"', "unknown fact tenant.servce_class; tenant has service_class, weight"),
        ("has(task.due)", "unknown fact task.due"),
        ("shout(task.type)", "unknown function 'shout'"),
        ("process.a / 0 > 1", "division by zero"),
        ("process.a % 0u > 1u", "division by zero"),
        ("process.a / 0.0 > 1.0", "division by zero"),
        ('now - task.due_at < duration("2 hours")', "cannot be read; write it like"),
        ('now < timestamp("tomorrow")', "cannot be read; write it like"),
        ("task.type", "gives str; it must give true or false"),
        ("task.submitted_at > 5", "fails on ordinary facts"),
        ("true" + " && true" * 500, "at most 2000"),
        ("(" * 30 + "true" + ")" * 30, "at most 20 levels"),
    ],
)
def test_a_mistake_is_named_when_the_policy_is_read(when: str, said: str) -> None:
    with pytest.raises(ConditionError) as caught:
        compile_condition(when)

    assert said in str(caught.value)


def test_every_mistake_of_one_condition_is_named() -> None:
    with pytest.raises(ConditionError) as caught:
        compile_condition("foo == 1 && task.x == 2 && process.y / 0 == 1")

    assert len(caught.value.problems) == 3


_LEAF = st.sampled_from(
    [
        "process.a == 1",
        "process.b > 2",
        "has(process.a)",
        "!has(process.b)",
        'tenant.service_class == "gold"',
        "task.due_at - now < duration('2h')",
        "has(task.due_at)",
        "process.list.exists(i, i == process.a)",
        "process.flag",
        "true",
        "false",
    ]
)
_CONDITION = st.recursive(
    _LEAF,
    lambda inner: st.one_of(
        st.tuples(inner, inner).map(lambda two: f"{two[0]} && {two[1]}"),
        st.tuples(inner, inner).map(lambda two: f"({two[0]}) || ({two[1]})"),
        st.tuples(inner, inner).map(lambda two: f"(({two[0]}) == ({two[1]}))"),
        inner.map(lambda one: f"!({one})"),
        st.tuples(inner, inner, inner).map(lambda three: f"(({three[0]}) ? ({three[1]}) : ({three[2]}))"),
    ),
    max_leaves=5,
)
_FACTS = st.fixed_dictionaries(
    {},
    optional={
        "a": st.sampled_from([1, 2, 1.0, True, "1"]),
        "b": st.sampled_from([1, 3, "x"]),
        "flag": st.booleans(),
        "list": st.just([1, 2]),
    },
)


@settings(max_examples=400, deadline=None)
@given(_CONDITION, st.lists(st.tuples(_FACTS, st.booleans()), min_size=1, max_size=4))
def test_look_ups_instead_of_evaluations_change_no_answer(
    when: str, cases: list[tuple[dict[str, object], bool]]
) -> None:
    condition = compile_condition(when)
    for process, due in cases:
        task = {"due_at": NOW + timedelta(hours=1)} if due else {}
        facts = {"process": process, "tenant": {"service_class": "gold"}, "task": task, "source": {}, "claims": {}}
        context = cel.Context({**facts, "now": NOW})
        try:
            expected = cel.compile(when).execute(context) is True
        except (KeyError, TypeError, RuntimeError, ValueError):
            expected = False

        known = {**facts, "now": {}}
        key = condition.key(known)
        try:
            remembered = condition.answers.get(key) if key is not None else None
            answer = condition.holds(context, key) if remembered is None else remembered
        except (KeyError, TypeError, RuntimeError, ValueError):
            answer = False

        assert answer is expected
        assert not (condition.lacks(known) and expected), "a rule that could match was passed over"


@pytest.mark.parametrize(
    ("when", "said"),
    [
        ("process.x / (1 - 1) > 1", "division by zero"),
        ("process.x % int('0') == 1", "division by zero"),
        ("process.x / -0 > 1", "division by zero"),
        ("process.a.all(i, process.b.exists(j, j > i))", "nested 2 deep"),
    ],
)
def test_what_divides_by_zero_or_costs_a_power_of_its_facts_is_refused(when: str, said: str) -> None:
    with pytest.raises(ConditionError, match=said):
        compile_condition(when)


@pytest.mark.parametrize(
    ("when", "always"),
    [
        ("true", True),
        ("1 == 2", False),
        ("task.type == 'a' || 1 < 2", True),
        ("task.type == 'a' && false", False),
        ("(task.type == 'a') && ('b' == task.type)", False),
        ("true ? false : true", False),
        ("task.type == 'a' && task.group == 'b'", None),
        ("task.type == 'a' ? true : true || false", None),
        ("has(task.due_at)", None),
    ],
)
def test_a_condition_knows_what_it_gives_whatever_the_facts_are(when: str, always: bool | None) -> None:
    assert compile_condition(when).constant is always
