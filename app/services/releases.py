"""From what the store knows to what the planner asks for, and from a plan to a message and a record."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from sqlalchemy.engine import Row

from app.broker.base import TaskMessage
from app.domain.capacity import Pool
from app.domain.fairness import Head, TenantHeads
from app.domain.release import Plan, PutOff, Waiting
from app.store.hot import HotRow
from app.store.lanes import LaneHeads
from app.task_modules import TaskType

_encode = msgspec.json.Encoder().encode


def message_of(row: HotRow | Row[Any]) -> TaskMessage:
    """Make the message of a released row."""
    trace = {} if row.traceparent is None else {"traceparent": row.traceparent}
    if row.tracestate is not None:
        trace["tracestate"] = row.tracestate
    created_at = _encode(row.submitted_at)[1:-1].decode()
    return TaskMessage(row.task_id, row.task_type, row.tenant_id, row.attempt, row.dispatch, created_at, trace)


def pools_of(live: Sequence[Row[Any]]) -> tuple[Pool, ...]:
    """Group live workers that are not draining by the classes they serve."""
    seats: Counter[frozenset[str]] = Counter()
    for worker in live:
        if not worker.draining:
            seats[frozenset(worker.classes)] += worker.slots
    return tuple(Pool(classes, count) for classes, count in sorted(seats.items(), key=lambda item: sorted(item[0])))


def by_limit(counts: Mapping[tuple[str, str, str], int], registry: Mapping[str, TaskType]) -> Counter[str]:
    """Count by the names that limits use: type, tenant, group and dependency."""
    by: Counter[str] = Counter()
    for (task_type, tenant, group), count in counts.items():
        by[f"type:{task_type}"] += count
        by[f"tenant:{tenant}"] += count
        if group:
            by[f"group:{group}"] += count
        known = registry.get(task_type)
        for dependency in known.spec.depends_on if known is not None else ():
            by[f"dependency:{dependency}"] += count
    return by


def tenant_heads(heads: Sequence[LaneHeads], registry: Mapping[str, TaskType]) -> dict[str, list[TenantHeads]]:
    """Gather lanes by class and tenant."""
    grouped: dict[str, dict[str, tuple[float, float, list[Head]]]] = {}
    for lane in heads:
        task_type = registry.get(lane.task_type)
        depends_on = task_type.spec.depends_on if task_type is not None else ()
        tenants = grouped.setdefault(lane.priority_class, {})
        _, _, rows = tenants.setdefault(lane.tenant_id, (lane.virtual_time, lane.weight, []))
        rows.extend(
            Head(
                task_id,
                lane.task_type,
                lane.task_group,
                order_at,
                cost,
                timeout_seconds,
                preemptible,
                depends_on,
                attempt,
            )
            for task_id, order_at, cost, timeout_seconds, preemptible, attempt in zip(
                lane.task_ids,
                lane.order_ats,
                lane.costs,
                lane.timeouts_seconds,
                lane.preemptibles,
                lane.attempts,
                strict=True,
            )
        )
    return {
        name: [TenantHeads(tenant, time_, weight, rows) for tenant, (time_, weight, rows) in tenants.items()]
        for name, tenants in grouped.items()
    }


def figures_of(plan: Plan, in_flight: Mapping[str, int]) -> str:
    """Spell the record of a round: what went on whose seat, and what was put off and why."""
    released: dict[str, Counter[str]] = {}
    for release in plan.releases:
        released.setdefault(release.priority_class, Counter())[release.seat.value] += 1
    waiting = {
        name: {reason.value: count for reason, count in put_off.reasons.items()}
        for name, put_off in plan.waiting.items()
    }
    seats = {
        name: {
            "reach": put_off.reach,
            "reserve": put_off.reserve,
            "maximum": put_off.maximum,
            "load": round(put_off.load, 3),
            "next_start": put_off.next_start,
        }
        for name, put_off in plan.waiting.items()
    }
    return json.dumps(
        {
            "released": released,
            "put_off": waiting,
            "seats": seats,
            "in_flight": dict(in_flight),
            "limits_full": plan.limits_full,
        },
        separators=(",", ":"),
    )


def put_off_in(figures: Mapping[str, Any]) -> dict[str, PutOff]:
    """Read from the record of a round what was put off in each class, and the figures behind it."""
    return {
        name: PutOff({Waiting(reason): count for reason, count in figures["put_off"][name].items()}, **seats)
        for name, seats in figures.get("seats", {}).items()
    }
