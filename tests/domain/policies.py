"""Small builders for policies, capacity and demand, with defaults that a test overrides where it matters."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from app.domain.capacity import Capacity, Pool
from app.domain.fairness import Head, TenantHeads
from app.domain.policy import Limit, Policy, PriorityClass

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)


def a_class(
    name: str,
    nominal: float = 0.2,
    maximum: float = 1.0,
    lendable: float = 1.0,
    reclaim_within_seconds: float = 10.0,
    may_preempt: frozenset[str] = frozenset(),
) -> PriorityClass:
    return PriorityClass(
        name, 0, "an-owner", 5.0, nominal, maximum, lendable, reclaim_within_seconds, 30.0, may_preempt=may_preempt
    )


def a_policy(*classes: PriorityClass, limits: Sequence[Limit] = ()) -> Policy:
    given = classes or (a_class("high"), a_class("low"))
    ranked = [replace(one, rank=rank) for rank, one in enumerate(given)]
    return Policy("1", "an-owner", ranked[-1].name, tuple(ranked), limits=tuple(limits))


def four_classes() -> Policy:
    return a_policy(
        a_class("critical", nominal=0.2, maximum=0.8, reclaim_within_seconds=10),
        a_class("short_deadline", nominal=0.1, maximum=0.8, reclaim_within_seconds=120),
        a_class("common", nominal=0.2, reclaim_within_seconds=300),
        a_class("deferrable", nominal=0.05, reclaim_within_seconds=3600),
    )


def one_pool(
    policy: Policy, seats: int, in_flight: dict[str, int] | None = None, stretch: dict[str, float] | None = None
) -> Capacity:
    return Capacity((Pool(frozenset(policy.by_name), seats),), in_flight or {}, stretch or {})


def a_head(
    task_id: str = "task-1",
    task_type: str = "a_type",
    group: str = "",
    age_seconds: float = 0.0,
    cost: float = 1.0,
    timeout_seconds: float = 600.0,
    preemptible: bool = False,
    depends_on: tuple[str, ...] = (),
    attempt: int = 1,
) -> Head:
    order_at = NOW - timedelta(seconds=age_seconds)
    return Head(task_id, task_type, group, order_at, cost, timeout_seconds, preemptible, depends_on, attempt)


def a_tenant(
    tenant_id: str = "acme",
    count: int = 1,
    virtual_time: float = 0.0,
    weight: float = 1.0,
    timeout_seconds: float = 600.0,
    task_type: str = "a_type",
) -> TenantHeads:
    heads = [
        a_head(f"{tenant_id}-{number:05}", task_type, age_seconds=-number, timeout_seconds=timeout_seconds)
        for number in range(count)
    ]
    return TenantHeads(tenant_id, virtual_time, weight, heads)
