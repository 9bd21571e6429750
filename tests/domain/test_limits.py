"""Running caps and pauses."""

from dataclasses import replace

import pytest

from app.domain.dependencies import Dependency, DependencyGate
from app.domain.fairness import TenantHeads
from app.domain.limits import ClassGate, Limits
from app.domain.policy import Limit, LimitKind
from app.domain.release import Demand, Waiting, plan_release
from tests.domain.policies import a_class, a_head, a_policy, a_tenant, one_pool

HEAD = a_head("t", "audit", "finance", depends_on=("llm", "crm"))


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (LimitKind.TYPE, "audit"),
        (LimitKind.TENANT, "acme"),
        (LimitKind.GROUP, "finance"),
        (LimitKind.DEPENDENCY, "llm"),
        (LimitKind.DEPENDENCY, "crm"),
    ],
)
def test_a_limit_lets_its_number_through_and_no_more(kind: LimitKind, name: str) -> None:
    limits = Limits(a_policy(limits=[Limit(kind, name, 3)]), {f"{kind}:{name}": 1}, frozenset())
    gate = ClassGate(limits)

    passed = 0
    while passed < 10 and not gate.stops("acme", HEAD):
        gate.pass_through("acme", HEAD)
        passed += 1

    assert passed == 2
    assert limits.full() == (f"{kind}:{name}",)
    assert gate.stopped == {"limit": 1}
    assert not gate.stops("other", a_head("o", "other"))


@pytest.mark.parametrize("name", ["type:audit", "tenant:acme", "group:finance", "dependency:crm"])
def test_a_pause_stops_what_it_names(name: str) -> None:
    gate = ClassGate(Limits(a_policy(), {}, frozenset({name})))

    assert gate.stops("acme", HEAD)
    assert not gate.stops("other", a_head("o", "other"))
    assert gate.stopped == {"paused": 1}


def test_a_limit_that_is_overdrawn_lets_nothing_through() -> None:
    limits = Limits(a_policy(limits=[Limit(LimitKind.TYPE, "audit", 3)]), {"type:audit": 9}, frozenset())

    assert ClassGate(limits).stops("acme", HEAD)


def test_a_blocked_type_does_not_block_the_tenants_other_types() -> None:
    policy = a_policy(a_class("only", nominal=0), limits=[Limit(LimitKind.TYPE, "audit", 1)])
    heads = [*(a_head(f"a{n}", "audit", age_seconds=9) for n in range(3)), a_head("b", "other"), a_head("c", "other")]
    demand = Demand({"only": [TenantHeads("acme", 0, 1, heads)]})

    plan = plan_release(one_pool(policy, 10), demand, policy)

    assert [release.task_id for release in plan.releases] == ["a0", "b", "c"]
    assert plan.waiting["only"].reasons == {Waiting.LIMIT: 2}
    assert plan.waiting["only"].next_start is None
    assert plan.limits_full == ("type:audit",)


def test_a_limit_holds_across_classes_and_the_higher_rank_goes_first() -> None:
    policy = a_policy(
        a_class("high", nominal=0), a_class("low", nominal=0), limits=[Limit(LimitKind.TYPE, "a_type", 3)]
    )
    demand = Demand({"high": [a_tenant("one", 2)], "low": [a_tenant("two", 5)]})

    plan = plan_release(one_pool(policy, 10), demand, policy)

    assert [release.priority_class for release in plan.releases] == ["high", "high", "low"]


def test_a_closed_dependency_stops_its_tasks_and_a_probing_one_lets_a_few_through() -> None:
    policy = a_policy(a_class("only", nominal=0))
    heads = [*(a_head(f"a{n}", "ask", age_seconds=9, depends_on=("llm",)) for n in range(5)), a_head("b", "other")]

    def released(left: int | None) -> list[str]:
        gate = DependencyGate(Dependency("llm"), left, frozenset())
        demand = Demand({"only": [TenantHeads("acme", 0, 1, heads)]}, dependencies={"llm": gate})
        return [one.task_id for one in plan_release(one_pool(policy, 10), demand, policy).releases]

    assert released(0) == ["b"]
    assert released(2) == ["a0", "a1", "b"]
    assert released(None) == ["a0", "a1", "a2", "a3", "a4", "b"]


def test_calls_that_wait_hold_back_their_classes_and_not_the_one_with_a_reserve() -> None:
    policy = a_policy(a_class("high", nominal=0), a_class("low", nominal=0))
    gate = DependencyGate(Dependency("llm", concurrency=5, reserve={"high": 0.2}), None, frozenset({""}))
    head = a_head("t", "ask", depends_on=("llm",))
    demand = Demand(
        {"high": [TenantHeads("one", 0, 1, [head])], "low": [TenantHeads("two", 0, 1, [replace(head, task_id="u")])]},
        dependencies={"llm": gate},
    )

    plan = plan_release(one_pool(policy, 10), demand, policy)

    assert [one.priority_class for one in plan.releases] == ["high"]
    assert plan.waiting["low"].reasons == {Waiting.DEPENDENCY_LIMIT: 1}


def test_a_paused_class_releases_nothing_and_lends_its_reserve() -> None:
    policy = a_policy(a_class("high", nominal=0.5), a_class("low", nominal=0.5))
    demand = Demand(
        {"high": [a_tenant("one", 5)], "low": [a_tenant("two", 20, timeout_seconds=5)]},
        paused=frozenset({"class:high"}),
    )

    plan = plan_release(one_pool(policy, 10), demand, policy)

    assert {release.priority_class for release in plan.releases} == {"low"}
    assert len(plan.releases) == 10
    assert plan.waiting["high"].reasons == {Waiting.PAUSED: 5}
