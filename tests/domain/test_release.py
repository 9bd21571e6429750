"""The release plan: single decisions, and what holds for any situation."""

from collections import Counter
from dataclasses import replace
from time import process_time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.domain.capacity import Capacity, Pool, Seats, seat_book
from app.domain.fairness import TenantHeads
from app.domain.policy import Limit, LimitKind, Policy
from app.domain.release import Demand, Plan, SeatKind, Waiting, plan_release
from tests.domain.policies import a_class, a_head, a_policy, a_tenant, four_classes, one_pool


def by_class(plan: Plan) -> dict[str, int]:
    return dict(Counter(release.priority_class for release in plan.releases))


def by_seat(plan: Plan) -> dict[SeatKind, int]:
    return dict(Counter(release.seat for release in plan.releases))


def test_one_task_on_an_idle_system_goes_at_once() -> None:
    policy = four_classes()

    for name in policy.by_name:
        for seats in (1, 2, 3, 10):
            plan = plan_release(one_pool(policy, seats), Demand({name: [a_tenant("acme", 1)]}), policy)
            assert by_class(plan) == {name: 1}
            assert plan.waiting == {}
            assert plan.passed_over == {}


def test_all_classes_at_once_fill_their_reserves_and_rank_takes_the_rest() -> None:
    policy = four_classes()
    demand = Demand({name: [a_tenant("acme", 200)] for name in policy.by_name})

    plan = plan_release(one_pool(policy, 100), demand, policy)

    assert by_class(plan) == {"critical": 65, "short_deadline": 10, "common": 20, "deferrable": 5}
    assert by_seat(plan) == {SeatKind.NOMINAL: 55, SeatKind.SHARED: 45}


def test_a_lone_class_with_short_tasks_uses_every_seat() -> None:
    policy = four_classes()

    plan = plan_release(one_pool(policy, 100), Demand({"common": [a_tenant("a", 300, timeout_seconds=10)]}), policy)

    assert by_class(plan) == {"common": 100}
    assert by_seat(plan) == {SeatKind.NOMINAL: 20, SeatKind.SHARED: 45, SeatKind.BORROWED: 35}


@pytest.mark.parametrize(("timeout_seconds", "expected"), [(10, 100), (120, 80), (3_600, 70), (7_200, 65)])
def test_who_would_leave_too_late_does_not_borrow(timeout_seconds: float, expected: int) -> None:
    policy = four_classes()
    demand = Demand({"common": [a_tenant("a", 300, timeout_seconds=timeout_seconds)]})

    assert by_class(plan_release(one_pool(policy, 100), demand, policy)) == {"common": expected}


def test_a_preemptible_task_borrows_from_who_may_preempt_it() -> None:
    heads = [a_head(f"t{n}", preemptible=True, timeout_seconds=9_999, age_seconds=-n) for n in range(20)]
    demand = Demand({"low": [TenantHeads("acme", 0, 1, heads)]})
    strict = a_policy(a_class("high", nominal=0.5), a_class("low", nominal=0))
    preempting = a_policy(a_class("high", nominal=0.5, may_preempt=frozenset({"low"})), a_class("low", nominal=0))

    assert len(plan_release(one_pool(strict, 10), demand, strict).releases) == 5
    assert len(plan_release(one_pool(preempting, 10), demand, preempting).releases) == 10


def test_only_the_lendable_part_is_lent() -> None:
    policy = a_policy(a_class("high", nominal=0.5, lendable=0.4), a_class("low", nominal=0))
    demand = Demand({"low": [a_tenant("acme", 20, timeout_seconds=1)]})

    assert len(plan_release(one_pool(policy, 10), demand, policy).releases) == 7


def test_a_class_that_waits_for_its_own_seat_lends_nothing() -> None:
    policy = a_policy(a_class("high", nominal=0.5), a_class("low", nominal=0))
    demand = Demand({"high": [a_tenant("one", 9)], "low": [a_tenant("two", 20, timeout_seconds=1)]})

    plan = plan_release(one_pool(policy, 10, {"low": 10}), demand, policy)
    after = plan_release(one_pool(policy, 10, {"low": 8}), demand, policy)

    assert by_class(plan) == {}
    assert by_class(after) == {"high": 2}


def test_a_class_at_its_maximum_leaves_the_rest_to_others() -> None:
    policy = a_policy(a_class("high", nominal=0.2, maximum=0.6), a_class("low", nominal=0.2))
    demand = Demand({"high": [a_tenant("one", 99)], "low": [a_tenant("two", 99)]})

    assert by_class(plan_release(one_pool(policy, 10), demand, policy)) == {"high": 6, "low": 4}


def test_workers_that_serve_one_class_are_of_no_use_to_another() -> None:
    policy = a_policy(a_class("high", nominal=0.25), a_class("low", nominal=0.25))
    pools = (Pool(frozenset({"high"}), 2), Pool(frozenset({"high", "low"}), 4))
    many = [a_tenant("acme", 50, timeout_seconds=1)]

    assert by_class(plan_release(Capacity(pools), Demand({"low": many}), policy)) == {"low": 4}
    assert by_class(plan_release(Capacity(pools), Demand({"high": many}), policy)) == {"high": 6}
    assert by_class(plan_release(Capacity(pools), Demand({"high": many, "low": many}), policy)) == {"high": 5, "low": 1}


def test_a_class_without_workers_says_so() -> None:
    policy = a_policy()
    capacity = Capacity((Pool(frozenset({"high"}), 3),))

    plan = plan_release(capacity, Demand({"low": [a_tenant("acme", 3)]}), policy)

    assert plan.releases == ()
    assert plan.waiting["low"].reasons == {Waiting.NO_CONSUMERS: 3}


def test_what_was_put_off_has_typed_reasons() -> None:
    policy = a_policy(a_class("only", nominal=0))
    tenants = [a_tenant("a", 3), a_tenant("b", 3, virtual_time=5.0)]

    plan = plan_release(one_pool(policy, 1), Demand({"only": tenants}), policy)

    put_off = plan.waiting["only"]
    assert [release.task_id for release in plan.releases] == ["a-00000"]
    assert put_off.reasons == {Waiting.NO_SEAT: 1, Waiting.TENANTS_TURN: 4}
    assert (put_off.reach, put_off.maximum, put_off.load, put_off.next_start) == (1, 1, 1.0, 1.0)


def test_virtual_times_and_clocks_hold_what_changed() -> None:
    policy = a_policy(a_class("only", nominal=0))
    tenants = [a_tenant("a", 3), a_tenant("b", 3, virtual_time=9.0)]

    plan = plan_release(one_pool(policy, 2), Demand({"only": tenants}, clocks={"only": 4.0}), policy)

    assert plan.virtual_times == {("only", "a"): 6.0}
    assert plan.clocks == {"only": 5.0}


def test_the_window_holds_several_short_tasks_per_seat() -> None:
    policy = a_policy(a_class("only", nominal=0))

    plan = plan_release(one_pool(policy, 2, {"only": 5}, {"only": 10.0}), Demand({"only": [a_tenant("a", 99)]}), policy)

    assert len(plan.releases) == 15


def test_a_round_ends_at_its_maximum_and_still_serves_every_class() -> None:
    policy = four_classes()
    demand = Demand({name: [a_tenant("acme", 200)] for name in policy.by_name}, max_releases=8)

    plan = plan_release(one_pool(policy, 100), demand, policy)

    assert len(plan.releases) == 8
    assert plan.capped
    assert set(by_class(plan)) == set(policy.by_name)


def test_nothing_waiting_gives_an_empty_plan() -> None:
    policy = four_classes()

    assert plan_release(one_pool(policy, 4), Demand({}), policy) == Plan((), {}, {}, {}, {}, (), False)


def test_a_class_that_the_policy_no_longer_has_is_left_alone() -> None:
    policy = a_policy()

    assert plan_release(one_pool(policy, 4), Demand({"gone": [a_tenant("acme", 3)]}), policy).releases == ()


def test_very_short_tasks_do_not_keep_the_last_seat_from_a_higher_class() -> None:
    policy = a_policy(a_class("high", nominal=0), a_class("low", nominal=0))
    demand = Demand({"high": [a_tenant("one", 1)], "low": [a_tenant("two", 99)]})

    in_flight, rounds = 25, 0
    while not (plan := plan_release(one_pool(policy, 1, {"low": in_flight}, {"low": 25.0}), demand, policy)).releases:
        in_flight, rounds = in_flight - 5, rounds + 1

    assert by_class(plan) == {"high": 1}
    assert rounds == 5


_NAMES = ("c0", "c1", "c2", "c3")


@st.composite
def situations(draw: st.DrawFn) -> tuple[Capacity, Demand, Policy]:
    count = draw(st.integers(1, 4))
    shares = [draw(st.sampled_from([0.0, 0.05, 0.1, 0.2, 0.25])) for _ in range(count)]
    classes = [
        a_class(
            name,
            nominal=share,
            maximum=max(share, draw(st.sampled_from([0.3, 0.6, 1.0]))),
            lendable=draw(st.sampled_from([0.0, 0.5, 1.0])),
            reclaim_within_seconds=draw(st.sampled_from([1.0, 10.0, 100.0])),
        )
        for name, share in zip(_NAMES, shares, strict=False)
    ]
    names = [one.name for one in classes]
    limits = [Limit(LimitKind.TYPE, "x", draw(st.integers(1, 5)))] if draw(st.booleans()) else []
    limits += [Limit(LimitKind.TENANT, "t0", draw(st.integers(1, 5)))] if draw(st.booleans()) else []
    pools = draw(
        st.lists(
            st.tuples(st.frozensets(st.sampled_from(names), min_size=1), st.integers(0, 12)), min_size=1, max_size=3
        )
    )
    in_flight = {name: draw(st.integers(0, 5)) for name in names}
    stretch = {name: draw(st.sampled_from([1.0, 1.0, 3.0, 10.0])) for name in names}
    heads = {}
    for name in names:
        tenants = []
        for number in range(draw(st.integers(0, 3))):
            tasks = [
                a_head(
                    f"{name}-{number}-{at}",
                    draw(st.sampled_from(["x", "y"])),
                    age_seconds=draw(st.integers(0, 3)),
                    timeout_seconds=draw(st.sampled_from([1.0, 10.0, 100.0, 1000.0])),
                )
                for at in range(draw(st.integers(0, 6)))
            ]
            tenants.append(TenantHeads(f"t{number}", draw(st.floats(0, 5)), draw(st.sampled_from([1.0, 3.0])), tasks))
        heads[name] = tenants
    paused = frozenset(draw(st.sets(st.sampled_from(["type:y", "tenant:t1", "class:c1"]), max_size=1)))
    busy = {"type:x": draw(st.integers(0, 6)), "tenant:t0": draw(st.integers(0, 6))}
    passed = {name: draw(st.integers(0, 200)) for name in names}
    demand = Demand(heads, {}, busy, paused, passed, draw(st.sampled_from([0, 1, 5, 1000])))
    capacity = Capacity(tuple(Pool(classes, seats) for classes, seats in pools), in_flight, stretch)
    return capacity, demand, a_policy(*classes, limits=limits)


def tasks_of(demand: Demand) -> dict[str, tuple[str, str, str, float]]:
    return {
        head.task_id: (name, tenant.tenant_id, head.task_type, head.timeout_seconds)
        for name, tenants in demand.heads.items()
        for tenant in tenants
        for head in tenant.heads
    }


@settings(max_examples=300, deadline=None)
@given(situations())
def test_whatever_the_situation_the_plan_keeps_its_promises(situation: tuple[Capacity, Demand, Policy]) -> None:
    capacity, demand, policy = situation
    plan = plan_release(capacity, demand, policy)
    book = seat_book(policy, capacity.pools)
    seats = Seats(policy, capacity)
    tasks = tasks_of(demand)

    released = by_class(plan)
    for name, count in released.items():
        seats.take(name, count)
        assert seats.in_flight[name] <= book.allotments[name].maximum * seats.stretch[name] + 1e-9, "above its maximum"
        for constraint in book.constraints[name]:
            assert sum(seats.load(one) for one in constraint.members) <= constraint.seats + 1e-6, "above the places"

    ids = [release.task_id for release in plan.releases]
    assert len(ids) == len(set(ids)), "released twice"
    assert len(ids) <= demand.max_releases
    for release in plan.releases:
        assert tasks[release.task_id][:2] == (release.priority_class, release.tenant_id)
        name, tenant, task_type, _ = tasks[release.task_id]
        assert not {f"class:{name}", f"tenant:{tenant}", f"type:{task_type}"} & demand.paused, "paused"

    used = Counter(f"type:{tasks[one][2]}" for one in ids) + Counter(f"tenant:{tasks[one][1]}" for one in ids)
    for limit in policy.limits:
        if used[limit.on]:
            assert demand.in_flight[limit.on] + used[limit.on] <= limit.concurrency, "above a limit"

    waiting = Counter(name for name, *_ in tasks.values())
    for name, put_off in plan.waiting.items():
        assert sum(put_off.reasons.values()) == waiting[name] - released.get(name, 0), "a task without a reason"


@settings(max_examples=300, deadline=None)
@given(situations())
def test_no_reserve_is_denied(situation: tuple[Capacity, Demand, Policy]) -> None:
    capacity, demand, policy = situation
    capacity, demand = replace(capacity, in_flight={}), replace(demand, max_releases=1_000)

    plan = plan_release(capacity, demand, policy)

    seats = Seats(policy, capacity)
    for name, count in by_class(plan).items():
        seats.take(name, count)
    for name, put_off in plan.waiting.items():
        could_go = put_off.reasons.get(Waiting.NO_SEAT, 0) + put_off.reasons.get(Waiting.TENANTS_TURN, 0)
        if could_go:
            assert seats.below(name, put_off.reserve) == 0, "it waits although its reserve is not full"


@settings(max_examples=300, deadline=None)
@given(situations())
def test_no_seat_stays_empty_that_a_waiting_task_may_have(situation: tuple[Capacity, Demand, Policy]) -> None:
    capacity, demand, policy = situation
    demand = replace(demand, max_releases=1_000, passed_over={})
    plan = plan_release(capacity, demand, policy)
    seats = Seats(policy, capacity)
    for name, count in by_class(plan).items():
        seats.take(name, count)

    waiting = [
        name
        for name, put_off in plan.waiting.items()
        if put_off.next_start is not None and seats.below(name, put_off.maximum) > 0
    ]
    if waiting:
        first = min(waiting, key=lambda name: policy.by_name[name].rank)
        assert seats.places(first, seats.room(first)) == 0


@settings(max_examples=200, deadline=None)
@given(situations(), st.randoms(use_true_random=False))
def test_a_plan_is_deterministic_and_indifferent_to_the_order_of_its_input(
    situation: tuple[Capacity, Demand, Policy], shuffle: object
) -> None:
    capacity, demand, policy = situation
    mixed = {
        name: [replace(tenant, heads=tuple(reversed(tenant.heads))) for tenant in reversed(tenants)]
        for name, tenants in reversed(demand.heads.items())
    }

    assert plan_release(capacity, demand, policy) == plan_release(capacity, replace(demand, heads=mixed), policy)


def test_fifty_thousand_seats_a_second_with_ten_thousand_tenants_waiting() -> None:
    policy = four_classes()
    tenants = [a_tenant(f"t{number:05}", 2, virtual_time=number % 7, timeout_seconds=5) for number in range(10_000)]
    demand = Demand({"common": tenants}, max_releases=5_000)
    capacity = one_pool(policy, 5_000)

    rates = []
    for _ in range(3):
        begun = process_time()
        plan = plan_release(capacity, demand, policy)
        rates.append(len(plan.releases) / (process_time() - begun))

    assert len(plan.releases) == 5_000
    assert max(rates) >= 50_000


def test_very_short_tasks_of_a_higher_class_give_way_to_a_class_whose_turn_has_come() -> None:
    policy = a_policy(a_class("high", nominal=0), a_class("low", nominal=0.2))
    demand = Demand({"high": [a_tenant("one", 99)], "low": [a_tenant("two", 1)]}, passed_over={"low": 5})

    waits = plan_release(one_pool(policy, 1, {"high": 5}, {"high": 25.0}), demand, policy)
    goes = plan_release(one_pool(policy, 1, {"high": 0}, {"high": 25.0}), demand, policy)

    assert by_class(waits) == {}, "what is free is kept for it until it makes a whole seat"
    assert by_class(goes) == {"low": 1}


def test_a_borrower_stays_below_its_maximum_too() -> None:
    policy = a_policy(a_class("high", nominal=0.8), a_class("low", nominal=0, maximum=0.5))
    demand = Demand({"low": [a_tenant("acme", 20, timeout_seconds=1)]})

    assert by_class(plan_release(one_pool(policy, 10), demand, policy)) == {"low": 5}


def test_what_went_past_a_class_is_counted_until_it_releases_something() -> None:
    policy = a_policy(a_class("high", nominal=0), a_class("low", nominal=0.2))
    demand = Demand({"high": [a_tenant("one", 99)], "low": [a_tenant("two", 1)]}, passed_over={"low": 1})

    plan = plan_release(one_pool(policy, 1, {}, {"high": 3.0}), demand, policy)

    assert by_class(plan) == {"high": 3}
    assert plan.passed_over == {"low": 4}


def test_with_one_release_a_round_the_class_that_waited_longest_for_its_reserve_goes_first() -> None:
    policy = a_policy(a_class("high", nominal=0.3), a_class("low", nominal=0.3))
    heads = {"high": [a_tenant("one", 99)], "low": [a_tenant("two", 99)]}

    first = plan_release(one_pool(policy, 10), Demand(heads, max_releases=1), policy)
    later = plan_release(one_pool(policy, 10), Demand(heads, passed_over={"low": 4}, max_releases=1), policy)

    assert (by_class(first), by_class(later)) == ({"high": 1}, {"low": 1})
