"""Turns between tenants."""

from collections import Counter
from datetime import timedelta
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.fairness import Head, TenantHeads, Turns
from tests.domain.policies import NOW, a_head, a_tenant


def ids(taken: list[tuple[str, Head]]) -> list[str]:
    return [head.task_id for _, head in taken]


def test_inside_a_tenant_the_oldest_goes_first_and_ties_go_by_id() -> None:
    heads = [a_head("b", age_seconds=1), a_head("c", age_seconds=5), a_head("a", age_seconds=1)]

    taken = Turns([TenantHeads("acme", 0, 1, heads)], 0).take(3)

    assert ids(taken) == ["c", "a", "b"]


def test_tenants_take_turns_whatever_their_backlog() -> None:
    turns = Turns([a_tenant("big", 1_000), a_tenant("small", 2)], 0)

    assert [tenant for tenant, _ in turns.take(5)] == ["big", "small", "big", "small", "big"]


def test_a_new_tenant_starts_within_its_first_turn() -> None:
    turns = Turns([a_tenant("big", 1_000, virtual_time=500.0), a_tenant("new", 1, virtual_time=0.0)], 499.0)

    assert [tenant for tenant, _ in turns.take(2)] == ["new", "big"]


def test_a_tenant_that_was_away_has_no_credit() -> None:
    turns = Turns([a_tenant("steady", 50, virtual_time=100.0), a_tenant("back", 50, virtual_time=3.0)], 100.0)

    assert Counter(tenant for tenant, _ in turns.take(20)) == {"steady": 10, "back": 10}
    assert turns.virtual_times == {"steady": 110.0, "back": 110.0}
    assert turns.clock == 109.0


def test_weight_and_cost_make_the_share() -> None:
    light = TenantHeads("light", 0, 1, [a_head(f"l{number:03}", cost=1, age_seconds=-number) for number in range(90)])
    heavy = TenantHeads("heavy", 0, 3, [a_head(f"h{number:03}", cost=1, age_seconds=-number) for number in range(90)])
    costly = TenantHeads("costly", 0, 1, [a_head(f"c{number:03}", cost=5, age_seconds=-number) for number in range(90)])

    counts = Counter(tenant for tenant, _ in Turns([light, heavy, costly], 0).take(84))

    assert counts == {"light": 20, "heavy": 60, "costly": 4}


def test_tasks_that_do_not_fit_are_passed_over_and_stay() -> None:
    heads = [a_head("long", timeout_seconds=100, age_seconds=2), a_head("short", timeout_seconds=1)]
    turns = Turns([TenantHeads("acme", 0, 1, heads)], 0)

    assert ids(turns.take(5, lambda head: head.timeout_seconds < 10)) == ["short"]
    assert ids(turns.take(5)) == ["long"]


def test_a_cost_of_nothing_still_moves_the_tenant_on() -> None:
    free = TenantHeads("free", 0, 1, [a_head(f"f{number}", cost=0) for number in range(9)])

    assert {tenant for tenant, _ in Turns([free, a_tenant("other", 9)], 0).take(2)} == {"free", "other"}


@pytest.mark.parametrize("weight", [0.0, -1.0, float("nan")])
def test_a_weight_that_is_not_above_zero_is_refused(weight: float) -> None:
    with pytest.raises(ValueError, match="must be above 0"):
        Turns([a_tenant("acme", weight=weight)], 0)


@given(
    st.lists(st.tuples(st.floats(0.25, 8), st.floats(0, 50)), min_size=2, max_size=6),
    st.integers(0, 2**32),
    st.integers(10, 200),
)
def test_service_per_weight_differs_by_at_most_a_task_of_each(
    tenants: list[tuple[float, float]], seed: int, count: int
) -> None:
    draw = Random(seed)
    most = 4.0
    given_tenants = [
        TenantHeads(
            f"t{number}",
            time,
            weight,
            [a_head(f"{number}-{at:03}", cost=draw.uniform(0.1, most), age_seconds=-at) for at in range(count)],
        )
        for number, (weight, time) in enumerate(tenants)
    ]
    turns = Turns(given_tenants, clock=50.0)

    served = dict.fromkeys((tenant.tenant_id for tenant in given_tenants), 0.0)
    weights = {tenant.tenant_id: tenant.weight for tenant in given_tenants}
    for _ in range(count):
        for tenant, head in turns.take(1):
            served[tenant] += head.cost / weights[tenant]

    for one in served:
        for other in served:
            bound = most / weights[one] + most / weights[other]
            assert abs(served[one] - served[other]) <= bound + 1e-6


@given(st.permutations(list(range(8))))
def test_the_order_in_which_tenants_and_tasks_come_in_is_irrelevant(order: list[int]) -> None:
    tenants = [
        TenantHeads(f"t{n}", n % 3, 1, [Head(f"{n}{at}", "x", "", NOW + timedelta(seconds=at % 2)) for at in order[:4]])
        for n in order
    ]
    plain = [
        TenantHeads(
            f"t{n}", n % 3, 1, [Head(f"{n}{at}", "x", "", NOW + timedelta(seconds=at % 2)) for at in sorted(order[:4])]
        )
        for n in range(8)
    ]

    assert Turns(tenants, 1).take(20) == Turns(plain, 1).take(20)
