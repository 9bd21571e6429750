"""What arrives: each submission gets its class by the policy's rules, as at the door of the service."""

from dataclasses import dataclass
from datetime import timedelta

from app.domain.fairness import Head
from app.domain.policy import PriorityClass
from app.domain.priority import Facts, decide_class
from app.domain.simulation.hooks import Arrived, Defer, Downgrade, Refuse
from app.domain.simulation.load import Arrivals, drawn
from app.domain.simulation.tasks import State, Task
from app.domain.simulation.world import World
from app.domain.task_types import COST_WEIGHTS


@dataclass(slots=True)
class Stream:
    """One entry of the load as it goes on."""

    source: Arrivals
    number: int
    made: int = 0


def begin(world: World) -> None:
    """Let every entry of the load begin."""
    for number, source in enumerate(world.load.arrivals):
        world.at(source.at_seconds, _arrive, world, Stream(source, number))


def _arrive(world: World, stream: Stream) -> None:
    source = stream.source
    for _ in range(source.count):
        _submit(world, stream)
    if source.every_seconds is not None:
        following = world.now + drawn(source.every_seconds, source.spread, world.draw)
        if source.until_seconds is None or following < source.until_seconds:
            world.at(following, _arrive, world, stream)


def _submit(world: World, stream: Stream) -> None:
    task = _task(world, stream)
    saturated = None
    if world.hooks.saturate is not None:
        of = world.record.classes[task.class_name]
        rate = len(of.waits) / world.now if of.waits and world.now > 0 else None
        ahead = world.lines[task.class_name].count
        valid = None if task.valid_until is None else world.moment(task.valid_until)
        saturated = world.hooks.saturate(world.policy, Arrived(task.chosen, world.moment(), valid, ahead, rate))
    match saturated:
        case Refuse():
            world.record.arrived(task)
            world.record.count(task, "refused")
            return
        case Defer(seconds=seconds):
            task.ready_at = max(task.ready_at, world.now + seconds)
            world.record.count(task, "deferred")
        case Downgrade(to=name) if name in world.policy.by_name:
            world.record.count(task, "downgraded")
            task.chosen = world.policy.by_name[name]
        case _:
            pass
    world.record.arrived(task)
    world.live[task.task_id] = task
    world.enter(task)


def _task(world: World, stream: Stream) -> Task:
    source, now = stream.source, world.now
    tenant = world.load.tenants[source.tenants[stream.made % len(source.tenants)]]
    stream.made += 1
    work = world.load.work[source.task_type]
    spec = work.spec
    due = None if source.due_in_seconds is None else now + source.due_in_seconds
    valid = None if source.valid_for_seconds is None else now + source.valid_for_seconds
    chosen = _class_of(world, source, tenant.name, due, valid)
    if valid is None and chosen.valid_for_seconds is not None:
        valid = now + chosen.valid_for_seconds
    ready_at = now + source.not_before_seconds
    order_at = world.moment(due if due is not None else ready_at + chosen.start_within_seconds)
    task_id = f"{stream.number:03}-{stream.made:07}"
    head = Head(
        task_id, spec.name, source.group, order_at, COST_WEIGHTS[spec.cost_class], spec.timeout_seconds,
        spec.preemptible, spec.depends_on,
    )  # fmt: skip
    closes = source.source_closes_after_seconds
    run = drawn(source.run_seconds or work.run_seconds, work.spread, world.draw)
    asks = bool(work.asks_approval) and world.draw.random() < work.asks_approval
    attempts = min(spec.max_attempts, chosen.max_attempts or 100)
    return Task(
        task_id, work, tenant, source.group, now, ready_at, due, valid, None if closes is None else now + closes,
        run, asks, chosen, head, attempts, State.ENDED,
    )  # fmt: skip


def _class_of(
    world: World, source: Arrivals, tenant_name: str, due: float | None, valid: float | None
) -> PriorityClass:
    """Decide the class. What the system of record says counts only where the version in hand reads it."""
    tenant, spec, now = world.load.tenants[tenant_name], world.load.work[source.task_type].spec, world.moment()
    facts = Facts(
        process=spec.process,
        tenant={"service_class": tenant.service_class, "weight": tenant.weight},
        task={
            "type": spec.name,
            "cost_class": spec.cost_class.value,
            "submitted_at": now,
            "due_at": None if due is None else world.load.start_at + timedelta(seconds=due),
            "valid_until": None if valid is None else world.load.start_at + timedelta(seconds=valid),
            "group": source.group or None,
        },
        now=now,
        source=source.source if world.hooks.revalidate is not None else {},
        claims=source.claims,
        may_claim=tenant.may_claim,
    )
    return world.policy.by_name[decide_class(world.policy, facts).priority_class]
