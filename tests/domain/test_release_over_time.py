"""The release plan round after round, in virtual time: nobody starves, reserves come back, tenants share."""

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import pairwise
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.domain.capacity import seat_book
from app.domain.fairness import Head, TenantHeads
from app.domain.policy import Policy
from app.domain.release import Demand, Release, SeatKind, plan_release
from tests.domain.policies import NOW, a_class, a_policy, four_classes, one_pool


@dataclass
class Shop:
    """One pool of seats that runs what the plan releases; a task runs for exactly its timeout."""

    policy: Policy
    seats: int
    now: float = 0.0
    waiting: dict[tuple[str, str], list[Head]] = field(default_factory=lambda: defaultdict(list))
    running: list[tuple[float, str, str]] = field(default_factory=list)
    starts: list[tuple[float, Release]] = field(default_factory=list)
    arrived: dict[str, float] = field(default_factory=dict)
    started: dict[str, float] = field(default_factory=dict)
    virtual_times: dict[tuple[str, str], float] = field(default_factory=dict)
    clocks: dict[str, float] = field(default_factory=dict)
    passed_over: dict[str, int] = field(default_factory=dict)
    count: int = 0

    def submit(self, name: str, count: int = 1, seconds: float = 1.0, tenant: str = "acme") -> list[str]:
        ids = []
        for _ in range(count):
            self.count += 1
            task_id = f"{self.count:06}"
            head = Head(task_id, "a_type", "", NOW + timedelta(seconds=self.now), 1.0, seconds)
            self.waiting[name, tenant].append(head)
            self.arrived[task_id] = self.now
            ids.append(task_id)
        return ids

    def release(self) -> list[Release]:
        heads: dict[str, list[TenantHeads]] = defaultdict(list)
        for (name, tenant), tasks in self.waiting.items():
            if tasks:
                time = self.virtual_times.get((name, tenant), 0.0)
                heads[name].append(TenantHeads(tenant, time, 1.0, tasks[: self.seats + 1]))
        in_flight = Counter(name for _, name, _ in self.running)
        demand = Demand(heads, self.clocks, passed_over=self.passed_over)
        plan = plan_release(one_pool(self.policy, self.seats, dict(in_flight)), demand, self.policy)
        self.virtual_times |= plan.virtual_times
        self.clocks |= plan.clocks
        self.passed_over = dict(plan.passed_over)
        for release in plan.releases:
            line = self.waiting[release.priority_class, release.tenant_id]
            head = next(one for one in line if one.task_id == release.task_id)
            line.remove(head)
            self.running.append((self.now + head.timeout_seconds, release.priority_class, release.task_id))
            self.started[release.task_id] = self.now
            self.starts.append((self.now, release))
        assert len(self.running) <= self.seats
        return list(plan.releases)

    def advance(self) -> None:
        """Go to the next moment in which a task ends, and end it."""
        self.running.sort()
        self.now, _, _ = self.running.pop(0)

    def held(self, name: str) -> int:
        return sum(1 for _, one, _ in self.running if one == name)


def test_a_late_tenant_starts_within_two_more_starts_per_seat() -> None:
    shop = Shop(a_policy(a_class("only", nominal=0)), seats=4)
    shop.submit("only", 1_000, tenant="big")
    for _ in range(30):
        shop.release()
        shop.advance()
    before = len(shop.starts)

    (late,) = shop.submit("only", 1, tenant="small")
    while late not in shop.started:
        shop.release()
        shop.advance()

    position = next(at for at, (_, release) in enumerate(shop.starts) if release.task_id == late)
    assert position - before < 8


def test_common_work_goes_on_while_critical_work_arrives_faster_than_it_can_be_done() -> None:
    shop = Shop(four_classes(), seats=10)
    shop.submit("common", 20)

    while shop.waiting["common", "acme"]:
        shop.submit("critical", 12 - len(shop.waiting["critical", "acme"]) // 100)
        shop.release()
        shop.advance()

    assert shop.now <= 12.0, "two of ten seats are reserved for it, so 20 tasks of one second take ten seconds"
    assert max(Counter(time for time, one in shop.starts if one.priority_class == "critical").values()) >= 5


@pytest.mark.parametrize("seats", [1, 2, 3])
def test_with_very_few_seats_every_class_keeps_starting(seats: int) -> None:
    policy = four_classes()
    shop = Shop(policy, seats)
    for name in policy.by_name:
        shop.submit(name, 400)

    for _ in range(300):
        shop.release()
        shop.advance()

    counts = Counter(release.priority_class for _, release in shop.starts)
    assert set(counts) == set(policy.by_name)
    assert counts["critical"] == max(counts.values())
    assert counts["deferrable"] >= 300 // (20 + 4)


@settings(max_examples=60, deadline=None)
@given(
    shares=st.lists(st.sampled_from([0.0, 0.05, 0.1, 0.2, 0.3]), min_size=2, max_size=5).filter(lambda s: sum(s) <= 1),
    seats=st.integers(1, 6),
    seed=st.integers(0, 2**32),
)
def test_no_class_without_a_reserve_is_passed_over_beyond_its_bound(shares: list[float], seats: int, seed: int) -> None:
    names = [f"c{number}" for number in range(len(shares))]
    policy = a_policy(*(a_class(name, nominal=share) for name, share in zip(names, shares, strict=True)))
    book = seat_book(policy, one_pool(policy, seats).pools)
    draw = Random(seed)
    shop = Shop(policy, seats)
    for name in names:
        for _ in range(150):
            shop.submit(name, seconds=draw.choice([20.0, 30.0, 50.0]))

    for _ in range(140):
        shop.release()
        shop.advance()

    poor = [name for name in names if book.allotments[name].reserve == 0]
    shared = [release.priority_class for _, release in shop.starts if release.seat is SeatKind.SHARED]
    everything = [release.priority_class for _, release in shop.starts]
    for name in poor:
        turn = book.allotments[name].turn
        own = [-1, *(at for at, one in enumerate(shared) if one == name), len(shared)]
        longest = max(later - earlier - 1 for earlier, later in pairwise(own))
        assert longest <= turn + len(poor), f"{name} was passed over {longest} times on shared seats"
    for name in set(names) - set(poor):
        assert name in everything[: seats * 2], "a class with a reserve starts at once"


@settings(max_examples=60, deadline=None)
@given(seats=st.integers(4, 12), seed=st.integers(0, 2**32))
def test_a_lent_reserve_is_back_in_the_time_that_the_lender_asks_for(seats: int, seed: int) -> None:
    policy = a_policy(
        a_class("high", nominal=0.3, reclaim_within_seconds=10),
        a_class("middle", nominal=0.2, reclaim_within_seconds=60),
        a_class("low", nominal=0.1),
    )
    reserves = {name: one.reserve for name, one in seat_book(policy, one_pool(policy, seats).pools).allotments.items()}
    draw = Random(seed)
    shop = Shop(policy, seats)
    for name in ("low", "middle"):
        for _ in range(200):
            shop.submit(name, seconds=draw.choice([1.0, 5.0, 10.0, 40.0, 60.0, 300.0]))
    for _ in range(draw.randrange(40)):
        shop.release()
        shop.advance()

    wanted = shop.submit("high", reserves["high"], seconds=1_000.0)
    asked = shop.now
    while not all(task in shop.started for task in wanted):
        shop.release()
        shop.advance()

    assert max(shop.started[task] for task in wanted) - asked <= 10.0


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32), tenants=st.integers(2, 6), seats=st.integers(1, 8))
def test_busy_tenants_get_the_same_over_any_stretch_of_time(seed: int, tenants: int, seats: int) -> None:
    draw = Random(seed)
    shop = Shop(a_policy(a_class("only", nominal=0)), seats)
    names = [f"t{number}" for number in range(tenants)]
    for name in names:
        for _ in range(120):
            shop.submit("only", seconds=draw.uniform(0.5, 3.0), tenant=name)
    for _ in range(80):
        shop.release()
        shop.advance()

    order = [release.tenant_id for _, release in shop.starts]
    for begin in range(0, len(order), 7):
        counts = Counter(dict.fromkeys(names, 0))
        for tenant in order[begin:]:
            counts[tenant] += 1
            assert max(counts.values()) - min(counts.values()) <= 2


def test_critical_work_gets_its_reserve_at_once_though_a_batch_came_first() -> None:
    shop = Shop(four_classes(), seats=10)
    shop.submit("common", 500, seconds=100.0)
    shop.release()
    assert shop.held("common") == 8

    urgent = shop.submit("critical", 2, seconds=5.0)
    shop.release()

    assert [shop.started.get(task) for task in urgent] == [0.0, 0.0]
