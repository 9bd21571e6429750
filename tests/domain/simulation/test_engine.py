"""A policy in virtual time: what holds for any load, and what each kind of trouble does to the figures."""

from dataclasses import replace
from random import Random
from time import process_time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.domain.capacity import Pool, seat_book
from app.domain.policy import Limit, LimitKind
from app.domain.simulation.engine import simulate
from app.domain.simulation.load import Arrivals, Change, Happening, Load, Reviewers, SeatPool, Spread, Tenant, Work
from app.domain.task_types import TaskTypeSpec
from tests.domain.policies import a_class, a_policy, four_classes
from tests.domain.simulation.loads import full, run, shipped

ENDS = ("done", "expired", "refused", "superseded", "dead_lettered", "denied")
STAYS = ("waiting", "running", "awaiting_approval")

_kinds = {"critical": {"contract_sla_seconds": 60}, "common": {}, "deferrable": {"deferrable": True}}


@st.composite
def loads(draw: st.DrawFn) -> Load:
    """Any mixture of what the load file can say."""
    work = {
        name: Work(
            TaskTypeSpec(name, max_attempts=draw(st.integers(1, 4)), timeout_seconds=draw(st.sampled_from([5.0, 60.0])),
                         process=process, depends_on=draw(st.sampled_from([(), ("crm",)]))),
            draw(st.sampled_from([0.5, 4.0, 20.0])), draw(st.sampled_from(list(Spread))),
            fails=draw(st.sampled_from([0.0, 0.3])), asks_approval=draw(st.sampled_from([0.0, 0.5])),
        )
        for name, process in _kinds.items()
    }  # fmt: skip
    arrivals = [
        Arrivals(
            draw(st.sampled_from(list(work))), draw(st.sampled_from([("a",), ("a", "b", "c")])),
            draw(st.sampled_from([0.0, 60.0])), draw(st.integers(1, 15)), draw(st.sampled_from([None, 12.0, 60.0])),
            spread=draw(st.sampled_from(list(Spread))), valid_for_seconds=draw(st.sampled_from([None, 30.0])),
            not_before_seconds=draw(st.sampled_from([0.0, 45.0])),
        )
        for _ in range(draw(st.integers(1, 4)))
    ]  # fmt: skip
    changes = [
        Change(at, what, name, count)
        for at, what, name, count in draw(
            st.lists(
                st.sampled_from([
                    (30.0, Happening.DIE, "main", 2), (120.0, Happening.SEATS, "main", 0),
                    (180.0, Happening.SEATS, "main", 9), (60.0, Happening.PAUSE, "class:common", 0),
                    (90.0, Happening.RESUME, "class:common", 0), (70.0, Happening.REVIEWERS, "", 3),
                ]), max_size=4, unique=True,
            )
        )
    ]  # fmt: skip
    pools = draw(
        st.sampled_from([
            (SeatPool("main", 5),),
            (SeatPool("main", 3), SeatPool("quick", 2, frozenset({"critical"}))),
            (SeatPool("main", 1),),
        ])
    )  # fmt: skip
    tenants = {"a": Tenant("a"), "b": Tenant("b", 2.0), "c": Tenant("c", 0.5)}
    return Load(
        "any", 0.07, tenants, work, pools, tuple(arrivals), tuple(changes), Reviewers(draw(st.integers(0, 2)), 20)
    )


@settings(max_examples=25, deadline=None)
@given(load=loads(), seed=st.integers(0, 1000))
def test_every_arrival_ends_or_waits_and_no_class_passes_its_maximum(load: Load, seed: int) -> None:
    policy = full()

    result = simulate(policy, load, Random(seed))

    total = result.total
    assert total["arrived"] == sum(total[name] or 0 for name in (*ENDS, *STAYS))
    every = frozenset(policy.by_name)
    pools = [tuple(Pool(pool.classes or every, pool.seats) for pool in load.pools)]
    pools.append((Pool(every, 9), *pools[0][1:]))
    for name, figures in result.classes.items():
        assert all(value is None or value >= 0 for value in figures.values())
        most = max(seat_book(policy, one).allotments[name].maximum for one in pools)
        assert (figures["most_seats"] or 0) <= most
        assert figures["seat_share"] == pytest.approx(
            sum(figures[kind] or 0 for kind in ("nominal_share", "shared_share", "borrowed_share"))
        )


@settings(max_examples=4, deadline=None)
@given(load=loads(), seed=st.integers(0, 1000))
def test_the_same_seed_gives_the_same_figures(load: Load, seed: int) -> None:
    assert simulate(shipped(), load, Random(seed)) == simulate(shipped(), load, Random(seed))


@settings(max_examples=12, deadline=None)
@given(seats=st.integers(4, 20), run_seconds=st.floats(1, 20), count=st.integers(50, 300), seed=st.integers(0, 1000))
def test_no_reserve_is_denied_beyond_the_longest_borrower(
    seats: int, run_seconds: float, count: int, seed: int
) -> None:
    policy = four_classes()
    work = {
        "flood": Work(TaskTypeSpec("flood", timeout_seconds=600.0), 60.0, Spread.UNIFORM),
        "late": Work(TaskTypeSpec("late", timeout_seconds=30.0), run_seconds),
    }
    policy = replace(policy, default_class="deferrable")
    load = Load(
        "flood", 0.5, {"a": Tenant("a")}, work, (SeatPool("main", seats),), (Arrivals("flood", ("a",), count=count),)
    )

    result = simulate(policy, load, Random(seed))

    reserve = seat_book(policy, (Pool(frozenset(policy.by_name), seats),)).allotments["critical"].reserve
    assert (result.classes["deferrable"]["most_seats"] or 0) <= seats - reserve


def test_urgent_work_starts_at_once_behind_a_backlog() -> None:
    result = run(
        '[[arrivals]]\ntype = "usual"\ncount = 3000\n[[arrivals]]\ntype = "urgent"\nat = "10m"\nevery = "1m"\n'
    )

    assert result.classes["critical"]["wait_max_seconds"] == 0
    assert (result.classes["common"]["starvation_seconds"] or 0) <= 10


def test_a_lent_reserve_is_given_back_and_measured() -> None:
    tables = """
[[type]]
name = "short"
run = "6s"
timeout = "9s"
[[arrivals]]
type = "short"
count = 5000
[[arrivals]]
type = "urgent"
at = "10m1s"
every = "1m"
count = 2
"""
    critical = run(tables).classes["critical"]

    assert critical["give_backs"] and (critical["lent_share"] or 0) > 0.05
    assert (critical["give_back_max_seconds"] or 0) <= 6


def test_what_expires_while_it_waits_never_runs() -> None:
    result = run('[[arrivals]]\ntype = "usual"\ncount = 300\nvalid_for = "1m"\n', seats=2)

    common = result.classes["common"]
    assert (common["wait_max_seconds"] or 0) <= 60
    assert common["expired"] and common["expired"] + (common["started"] or 0) == 300
    assert common["waiting"] == 0


def test_a_failing_type_is_tried_again_and_then_dead_lettered() -> None:
    tables = """
[[type]]
name = "broken"
run = "1s"
fails = 1.0
max_attempts = 3
[[arrivals]]
type = "broken"
count = 10
"""
    common = run(tables).classes["common"]

    assert (common["retried"], common["dead_lettered"], common["done"]) == (20, 10, 0)


def test_a_type_that_runs_longer_than_its_timeout_never_ends_well() -> None:
    tables = '[[type]]\nname = "slow"\nrun = "1m"\ntimeout = "10s"\nmax_attempts = 2\n[[arrivals]]\ntype = "slow"\n'

    common = run(tables).classes["common"]

    assert (common["retried"], common["dead_lettered"]) == (1, 1)


def test_dead_workers_lose_their_tasks_and_no_attempt() -> None:
    tables = """
[[type]]
name = "once"
run = "5m"
max_attempts = 1
[[arrivals]]
type = "once"
count = 8
[[change]]
at = "1m"
what = "die"
name = "main"
count = 5
"""
    common = run(tables).classes["common"]

    assert common["workers_lost"] and common["dead_lettered"] == 0
    assert common["done"] == 8


def test_a_pause_stops_its_class_alone_and_shows_as_starvation() -> None:
    tables = """
[[arrivals]]
type = "usual"
every = "30s"
[[arrivals]]
type = "urgent"
every = "30s"
[[change]]
at = "10m"
what = "pause"
name = "class:common"
[[change]]
at = "20m"
what = "resume"
name = "class:common"
"""
    classes = run(tables).classes

    assert 570 <= (classes["common"]["starvation_seconds"] or 0) <= 600
    assert classes["critical"]["wait_max_seconds"] == 0


def test_a_limit_is_never_passed() -> None:
    policy = replace(shipped(), version="limited", limits=(Limit(LimitKind.TYPE, "usual", 2),))

    common = run('[[arrivals]]\ntype = "usual"\ncount = 100\n', policy=policy).classes["common"]

    assert common["most_seats"] == 2
    assert common["done"] == 100


def test_the_breaker_opens_and_its_way_back_lets_everything_through() -> None:
    tables = """
[[type]]
name = "calls"
run = "2s"
depends_on = ["crm"]
max_attempts = 20
[[arrivals]]
type = "calls"
every = "2s"
until = "30m"
[[change]]
at = "5m"
what = "dependency"
name = "crm"
health = "down"
[[change]]
at = "10m"
what = "dependency"
name = "crm"
health = "up"
"""
    common = run(tables, policy=full()).classes["common"]

    assert common["retried"] and common["retried"] < 60, "an open breaker spends few attempts in five minutes"
    assert (common["starvation_seconds"] or 0) >= 20
    assert common["waiting"] == 0 and common["dead_lettered"] == 0


def test_a_class_with_its_own_part_of_a_dependency_does_not_wait_behind_the_others() -> None:
    tables = """
[[type]]
name = "sync"
run = "8s"
timeout = "1m"
depends_on = ["crm"]
[[type]]
name = "look_up"
run = "1s"
timeout = "9s"
depends_on = ["crm"]
process = { contract_sla_seconds = 60 }
[[arrivals]]
type = "sync"
count = 2000
[[arrivals]]
type = "look_up"
at = "5m"
every = "30s"
"""
    classes = run(tables, seats=20, policy=full()).classes

    assert classes["critical"]["wait_max_seconds"] == 0
    assert (classes["common"]["most_seats"] or 0) <= 16


def test_reviewers_take_what_is_due_first() -> None:
    tables = """
[[reviewers]]
count = 1
takes = "1m"
[[type]]
name = "ask"
run = "1s"
asks_approval = 1.0
[[type]]
name = "ask_now"
run = "1s"
asks_approval = 1.0
process = { contract_sla_seconds = 60 }
[[arrivals]]
type = "ask"
count = 100
[[arrivals]]
type = "ask_now"
at = "10m"
"""
    classes = run(tables, hours=2).classes

    assert (classes["critical"]["approval_max_seconds"] or 0) <= 120
    assert (classes["common"]["approval_max_seconds"] or 0) > 5_000


def test_tenants_of_one_class_share_and_nobody_leads_by_more_than_a_few_tasks() -> None:
    tables = """
[[arrivals]]
type = "usual"
tenant = "big"
count = 2000
[[arrivals]]
type = "usual"
tenant = "small"
at = "10m"
count = 20
"""
    result = run(tables)

    assert (result.classes["common"]["tenant_lead_tasks"] or 0) <= 2
    assert (result.tenants["small"]["wait_max_seconds"] or 0) <= 120


def test_a_class_that_no_worker_serves_waits_and_nothing_breaks() -> None:
    policy = a_policy(a_class("high"), a_class("low"))
    load = Load(
        "unserved", 0.1, {"a": Tenant("a")}, {"x": Work(TaskTypeSpec("x"), 1.0)},
        (SeatPool("main", 2, frozenset({"high"})),), (Arrivals("x", ("a",), count=3),),
    )  # fmt: skip

    assert simulate(policy, load, Random(1)).classes["low"]["waiting"] == 3


def test_small_loads_run_thousands_of_hours_a_minute() -> None:
    tables = '[[arrivals]]\ntype = "usual"\nevery = "2m"\nspread = "exponential"\n'
    tables += '[[arrivals]]\ntype = "urgent"\nevery = "4m"\nspread = "exponential"\n'
    began = process_time()

    result = run(tables, hours=30)

    seconds = process_time() - began
    assert (result.total["done"] or 0) > 900
    assert 30 / seconds * 60 > 500, f"30 hours took {seconds:.2f} s of processor time"
