"""Reading policies: the shipped one, and every kind of mistake with its line."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.policy import LimitKind, OnSaturation
from app.domain.policy_file import PolicyError, parse_policy

SHIPPED = Path(__file__).parents[2] / "policy.toml"
GOOD = """\
version = "1"
owner = "ops"
default_class = "low"
[[class]]
name = "high"
owner = "desk"
start_within = "5s"
nominal = 0.3
maximum = 0.6
reclaim_within = "10s"
[[class]]
name = "low"
owner = "desk"
start_within = "1m"
nominal = 0.2
reclaim_within = "5m"
[[rule]]
reason_code = "SLA"
class = "high"
when = "process.sla <= 900"
[[limit]]
on = "type:audit"
concurrency = 4
"""


def problems_of(text: str) -> list[tuple[int, str]]:
    with pytest.raises(PolicyError) as caught:
        parse_policy(text)
    return caught.value.problems


def test_the_shipped_policy_is_good_and_leaves_room_for_every_class() -> None:
    policy = parse_policy(SHIPPED.read_text(encoding="utf-8"))

    assert [one.rank for one in policy.classes] == [0, 1, 2, 3]
    assert policy.default_class in policy.by_name
    assert sum(one.nominal for one in policy.classes) < 1
    assert all(one.nominal > 0 for one in policy.classes)
    assert all(rule.priority_class in policy.by_name for rule in policy.rules)


def test_everything_that_a_policy_says_is_read() -> None:
    policy = parse_policy(
        GOOD.replace(
            'reclaim_within = "5m"',
            """reclaim_within = "5m"
lendable = 0.5
republish_after = "12s"
valid_for = "30m"
approve_within = "2h"
max_attempts = 8
on_saturation = "defer"
contingency = "call the desk"
aging = { after = "15m", or_due_share = 0.8, to = "high", only_if_remaining = "1m", share = 0.25 }""",
        ).replace('reclaim_within = "10s"', 'reclaim_within = "10s"\nmay_preempt = ["low"]')
    )

    high, low = policy.classes
    assert (high.name, high.rank, high.nominal, high.maximum, high.may_preempt) == ("high", 0, 0.3, 0.6, {"low"})
    assert (low.lendable, low.republish_after_seconds, low.valid_for_seconds) == (0.5, 12, 1800)
    assert (low.approve_within_seconds, high.approve_within_seconds) == (7200, None)
    assert (low.max_attempts, low.on_saturation, low.contingency) == (8, OnSaturation.DEFER, "call the desk")
    assert low.aging is not None
    assert (low.aging.after_seconds, low.aging.to, low.aging.share) == (900, "high", 0.25)
    assert (policy.rules[0].reason_code, policy.rules[0].priority_class) == ("SLA", "high")
    assert (policy.limits[0].kind, policy.limits[0].on, policy.limits[0].concurrency) == (
        LimitKind.TYPE, "type:audit", 4,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("old", "new", "line", "said"),
    [
        ('version = "1"\n', "", 1, "'version' is missing"),
        ('version = "1"', "version = 7", 1, "'version' is '7'; it must be a text"),
        ('owner = "ops"', 'ownr = "ops"', 2, "unknown key 'ownr'; did you mean 'owner'?"),
        ('default_class = "low"', 'default_class = "lo"', 3, "unknown class 'lo'; it must be one of high, low"),
        ('name = "low"', 'name = "high"', 12, "there twice"),
        ('name = "low"', 'name = "Low!"', 12, "lower-case letters"),
        ('start_within = "1m"', 'start_within = "soon"', 14, "is not a duration"),
        ('start_within = "1m"', 'start_within = "0s"', 14, "above zero"),
        ('start_within = "1m"', "start_within = 60", 14, "such as"),
        ("nominal = 0.2", "nominal = 0.9", 4, "add up to 1.2; together they may be at most 1"),
        ("nominal = 0.2", "nominal = -1", 15, "a number from 0 to 1"),
        ("nominal = 0.2", "nominal = nan", 15, "a number from 0 to 1"),
        ("nominal = 0.2", "nominal = true", 15, "a number from 0 to 1"),
        ("nominal = 0.3", "nominal = 0.7", 8, "nominal 0.7 is above maximum 0.6"),
        ("maximum = 0.6", "maximum = 0", 9, "nothing of this class would ever run"),
        ("maximum = 0.6", "maximun = 0.6", 9, "did you mean 'maximum'?"),
        ("maximum = 0.6", 'on_saturation = "panic"', 9, "one of refuse, defer, downgrade"),
        ("maximum = 0.6", "max_attempts = 0", 9, "from 1 to 1000"),
        ("maximum = 0.6", 'may_preempt = ["nope"]', 9, "unknown class 'nope'"),
        ('reclaim_within = "5m"', 'reclaim_within = "5m"\nmay_preempt = ["high"]', 17, "does not rank below"),
        ("maximum = 0.6", 'aging = { after = "1m", to = "low" }', 9, "ranks below"),
        ("maximum = 0.6", 'aging = { after = "1m", to = "high" }', 9, "aging loops: high → high"),
        ("maximum = 0.6", 'aging = { after = "1m", to = "nope" }', 9, "unknown class 'nope'"),
        ("maximum = 0.6", 'aging = { after = "1m", to = "low", x = 1 }', 9, "unknown key 'x'"),
        ("maximum = 0.6", "aging = 5", 9, "it must be a table"),
        ('reason_code = "SLA"', 'reason_code = "sla"', 18, "capitals"),
        ('reason_code = "SLA"', 'reason_code = "DEFAULT"', 18, "kept for tasks that no rule matches"),
        ('class = "high"', 'class = "hgih"', 19, "unknown class 'hgih'"),
        ("process.sla <= 900", "process.sla <=", 20, "not valid CEL"),
        ("process.sla <= 900", "process.sla / 0 <= 900", 20, "division by zero"),
        ("process.sla <= 900", "claims.urgent == true", 20, "claims.urgent is what the requester says"),
        ("process.sla <= 900", "claims != {}", 20, "name the claim"),
        ('class = "high"', 'class = "high"\ntrusts = ["claims.x"]', 20, "trusted but not read"),
        ('on = "type:audit"', 'on = "colour:blue"', 22, "type:name, tenant:name, group:name, dependency:name"),
        ('on = "type:audit"', 'on = "type:"', 22, "not something to limit"),
        ("concurrency = 4", "concurrency = 0", 23, "from 1 to 1000000"),
        ("concurrency = 4", "concurrency = true", 23, "from 1 to 1000000"),
        ("[[limit]]", "[limit]", 21, "written as [[limit]] tables"),
        ("[[limit]]", "[[limt]]", 21, "did you mean 'limit'?"),
        ("[[limit]]", "[[limit", 21, "not valid TOML"),
    ],
)
def test_a_mistake_is_named_with_its_line(old: str, new: str, line: int, said: str) -> None:
    assert old in GOOD

    found = problems_of(GOOD.replace(old, new, 1) if old != 'name = "low"' else GOOD.replace(old, new))

    assert any(said in text and at == line for at, text in found), found


def test_every_problem_is_listed_at_once_in_the_order_of_the_file() -> None:
    text = GOOD.replace('owner = "ops"', "").replace("nominal = 0.3", "nominal = 3").replace("process.sla", "sla")

    found = problems_of(text)

    assert len(found) >= 3
    assert found == sorted(found)
    with pytest.raises(PolicyError, match=r"(?s)line \d+: .*\nline \d+: "):
        parse_policy(text)


def test_two_classes_that_age_into_each_other_are_a_loop() -> None:
    text = GOOD.replace('name = "high"', 'name = "high"\naging = { after = "1m", to = "low" }').replace(
        'name = "low"', 'name = "low"\naging = { after = "1m", to = "high" }'
    )

    assert [text for _, text in problems_of(text) if "aging loops" in text] == [
        "class 'high': aging loops: high → low → high; let it lead to a class of higher rank",
        "class 'low': aging loops: low → high → low; let it lead to a class of higher rank",
    ]


def test_a_reason_code_is_used_once() -> None:
    again = '[[rule]]\nreason_code = "SLA"\nclass = "low"\nwhen = "true"\n'

    assert problems_of(GOOD + again) == [(25, "rule 'SLA': SLA is already used in line 18; each rule has its own")]


def test_a_limit_is_given_once() -> None:
    assert problems_of(GOOD + '[[limit]]\non = "type:audit"\nconcurrency = 1\n')[0][0] == 25


def test_a_policy_has_one_to_ten_classes() -> None:
    more = "".join(
        f'[[class]]\nname = "c{n}"\nowner = "o"\nstart_within = "1s"\nnominal = 0\nreclaim_within = "1s"\n'
        for n in range(9)
    )

    assert any("11 classes" in text for _, text in problems_of(GOOD + more))
    assert any("0 classes" in text for _, text in problems_of('version="1"\nowner="o"\ndefault_class="x"\n'))


@given(st.text(max_size=200))
def test_no_text_leads_to_another_error(text: str) -> None:
    with pytest.raises(PolicyError):
        parse_policy(text)
    with pytest.raises(PolicyError):
        parse_policy(GOOD + "\n[[rule]]\n" + text.replace("\n", " ") + "\n= ")


RULE = '[[rule]]\nreason_code = "{code}"\nclass = "high"\nwhen = {when!r}\n'
EFFECT = '[[effect]]\nreason_code = "E"\nallow = false\nwhen = {when!r}\n'


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (RULE.format(code="A", when="false"), "never holds, whatever the facts are"),
        (RULE.format(code="A", when="true") + RULE.format(code="B", when="process.x == 1"), "always holds"),
        (RULE.format(code="A", when="process.x==1") + RULE.format(code="B", when="process.x == 1"), "same condition"),
        (RULE.format(code="OVERRIDE", when="process.x == 1"), "kept for classes that people give"),
        (EFFECT.format(when="task.priority_class == 'hgih'"), "unknown class 'hgih'; it must be one of"),
        (EFFECT.format(when="1 > 2"), "never holds"),
    ],
)
def test_what_can_never_decide_is_refused_with_its_line(more: str, said: str) -> None:
    found = problems_of(f"{GOOD}\n{more}")

    (problem,) = found
    assert said in problem[1]
    assert problem[0] > len(GOOD.splitlines())


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a = " + "1" * 5000, "too many digits"),
        ("#" * 300_000, "at most 262144"),
        (GOOD + '\n[[limit]]\non = "type:x"\nconcurrency = 1\n' * 600, "at most 500"),
        ("a = " + "[" * 5000, "line 1"),
    ],
)
def test_a_huge_policy_is_refused_before_it_costs_anything(text: str, said: str) -> None:
    with pytest.raises(PolicyError, match=said):
        parse_policy(text)
