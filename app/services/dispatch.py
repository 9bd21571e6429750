"""The dispatcher's work: one round decides what goes now, moves it in one statement, and publishes it.

Only the leader's rounds move anything: the release statement proves the lease itself. Between rounds the leader keeps
counts in memory, corrected by the workers' tallies in every round and by a full count now and then, so that a round
costs the same whether thousands or millions wait.
"""

import asyncio
import json
import logging
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from sqlalchemy.engine import Row

from app.broker.base import BrokerError, Published, TaskMessage
from app.domain.capacity import Capacity, Pool, Seats
from app.domain.fairness import Head, TenantHeads
from app.domain.release import Demand, Plan, plan_release
from app.runtime import Runtime
from app.store import delayed, flights, lanes, pauses, workers
from app.store.lanes import LaneHead
from app.telemetry.logs import event

log = logging.getLogger("despacho.dispatcher")

MAX_LANES = 64
READ_SHARE = 0.05
"""Full reads (counts, heads from the very start of a lane) take at most this share of the leader's time."""


class LostLead(Exception):
    """The release statement moved nothing: somebody else leads, or the lease ran out."""


@dataclass(slots=True)
class Pace:
    """Spaces an expensive read so that it takes at most READ_SHARE of the time, and at least `every_seconds` apart."""

    every_seconds: float
    next_at: float = 0.0

    def due(self) -> bool:
        """Say whether it may run now."""
        return time.monotonic() >= self.next_at

    def ran(self, started: float) -> None:
        """Note a run that began at `started` (`time.monotonic()`)."""
        now = time.monotonic()
        self.next_at = now + max(self.every_seconds, (now - started) / READ_SHARE)


@dataclass(slots=True)
class _Counts:
    """What is in flight per class, between two full counts."""

    in_flight: Counter[str] = field(default_factory=Counter)
    departed: dict[str, int] = field(default_factory=dict)
    rate: dict[str, float] = field(default_factory=dict)
    rate_at: float = 0.0

    def tallied(self, tallies: Mapping[str, tuple[int, int]]) -> None:
        """Take off what departed since the last look, and learn how many depart per second."""
        now = time.monotonic()
        seconds = now - self.rate_at
        for name, (_, departed) in tallies.items():
            gone = max(0, departed - self.departed.get(name, departed))
            self.departed[name] = departed
            self.in_flight[name] = max(0, self.in_flight[name] - gone)
            self._since[name] += gone
        if seconds >= 0.05:
            keep = 0.5 ** (seconds / 0.25)
            for name in set(self.rate) | set(self._since):
                self.rate[name] = self.rate.get(name, 0.0) * keep + (self._since[name] / seconds) * (1 - keep)
            self._since.clear()
            self.rate_at = now

    _since: Counter[str] = field(default_factory=Counter)


class Dispatcher:
    """The leader's state and its rounds. `volatile` says that the broker forgets its messages with this process."""

    def __init__(self, runtime: Runtime, *, holder: str, volatile: bool = False) -> None:
        self.runtime = runtime
        self.holder = holder
        self.epoch = 0
        self.last_plan: Plan | None = None
        self._volatile = volatile
        self._settings = runtime.settings.dispatcher
        self._reset()

    def _reset(self) -> None:
        self._counts = _Counts()
        self._pools: tuple[Pool, ...] = ()
        self._paused: frozenset[str] = frozenset()
        self._by_limit: Counter[str] = Counter()
        self._passed_over: Mapping[str, int] = {}
        self._clocks: dict[str, float] = {}
        self._floors: dict[int, datetime] = {}
        self._empty_since: dict[int, float] = {}
        self._count_pace = Pace(1.0)
        self._world_pace = Pace(0.2)
        self._full_scan_pace = Pace(0.0)
        self._due_pace = Pace(0.005)
        self._publishing: set[asyncio.Task[None]] = set()
        self._broker_rest_until = 0.0

    async def take_over(self, epoch: int) -> None:
        """Begin to lead under `epoch`: forget what was remembered, count anew."""
        self._reset()
        self.epoch = epoch
        if self._volatile:
            await self._unrelease_all()
        async with self.runtime.database.transaction() as connection:
            self._clocks = await lanes.read_clocks(connection)
        event(log, "leading", holder=self.holder, epoch=epoch)

    async def stand_down(self) -> None:
        """Let what is being published finish."""
        if self._publishing:
            await asyncio.wait(self._publishing)

    async def round(self) -> int:
        """Do one round; returns how many tasks it moved (to the waiting, or to the broker).

        Raises LostLead when another leads, and database errors.
        """
        started = time.monotonic()
        await self._look()
        moved = await self._come_due()
        if not self._can_publish():
            return moved
        plan, heads = await self._plan()
        if plan is None or not plan.releases:
            return moved
        released = await self._release(plan, heads)
        publishing = asyncio.create_task(self._publish(released))
        self._publishing.add(publishing)
        publishing.add_done_callback(self._publishing.discard)
        if len(self._publishing) >= 4:
            await asyncio.wait(self._publishing, return_when=asyncio.FIRST_COMPLETED)
        self.runtime.metrics.release_round(time.monotonic() - started, Counter(row.priority_class for row in released))
        return moved + len(released)

    # --- what the world looks like ---------------------------------------------------------------------------------

    async def _look(self) -> None:
        """Read the tallies; now and then also workers, pauses, the policy, and a full count."""
        world, count = self._world_pace.due(), self._count_pace.due()
        started = time.monotonic()
        async with self.runtime.database.hot.connect() as connection:
            tallies = await workers.tallies(connection)
            self._counts.tallied(tallies)
            if world:
                live = await workers.live(connection)
                self._pools = _pools(live)
                self._paused = await pauses.active(connection)
                await self.runtime.policy.refresh(connection)
            if count:
                counted = await flights.counts(connection)
                self._counts.in_flight = Counter({name: in_flight for name, (in_flight, _) in counted.items()})
                # Read again after the count: a departure in between must not be taken off twice.
                self._counts.departed = {n: d for n, (_, d) in (await workers.tallies(connection)).items()}
            if self.runtime.policy.current.limits and (count or world):
                self._by_limit = _by_limit(await flights.counts_by_name(connection), self.runtime.registry)
        if world:
            self._world_pace.ran(started)
        if count:
            self._count_pace.ran(started)

    async def _come_due(self) -> int:
        if not self._due_pace.due():
            return 0
        started = time.monotonic()
        rows = await delayed.come_due(
            self.runtime.database, holder=self.holder, epoch=self.epoch, limit=self._settings.max_release
        )
        for row in rows:
            floor = self._floors.get(row.lane_id)
            if floor is not None and row.order_at < floor:
                self._floors[row.lane_id] = row.order_at
        self._due_pace.ran(started)
        return len(rows)

    def _can_publish(self) -> bool:
        return self.runtime.broker.connected and time.monotonic() >= self._broker_rest_until

    # --- decide ------------------------------------------------------------------------------------------------------

    async def _plan(self) -> tuple[Plan | None, list[LaneHead]]:
        policy = self.runtime.policy.current
        capacity = Capacity(self._pools, dict(self._counts.in_flight), self._stretch())
        seats = Seats(policy, capacity)
        most = self._settings.max_release
        budgets = {
            name: min(most, places)
            for name, allotment in seats.book.allotments.items()
            if f"class:{name}" not in self._paused and (places := seats.below(name, allotment.maximum)) > 0
        }
        if not budgets:
            return None, []
        heads = await self._heads(budgets)
        if not heads:
            return None, []
        demand = Demand(
            heads=_tenant_heads(heads, self.runtime.registry),
            clocks=self._clocks,
            in_flight=self._by_limit,
            paused=self._paused,
            passed_over=self._passed_over,
            max_releases=most,
        )
        plan = plan_release(capacity, demand, policy)
        self.last_plan = plan
        self._passed_over = plan.passed_over
        return plan, heads

    def _stretch(self) -> dict[str, float]:
        """How many tasks of each class keep one seat busy: so many as start within the window at the measured rate."""
        reach = {one.name: 0 for one in self.runtime.policy.current.classes}
        for pool in self._pools:
            for name in pool.classes & reach.keys():
                reach[name] += pool.seats
        window = self._settings.window_seconds
        return {
            name: 1.0 + self._counts.rate.get(name, 0.0) * window / seats for name, seats in reach.items() if seats > 0
        }

    async def _heads(self, budgets: Mapping[str, int]) -> list[LaneHead]:
        full = self._full_scan_pace.due()
        started = time.monotonic()
        skip = {kind: [] for kind in ("type", "tenant", "group")}  # type: dict[str, list[str]]
        for paused in self._paused:
            kind, _, name = paused.partition(":")
            if kind in skip:
                skip[kind].append(name)
        async with self.runtime.database.hot.connect() as connection:
            heads, empty = await lanes.heads(
                connection,
                budgets=budgets,
                skip_types=skip["type"],
                skip_tenants=skip["tenant"],
                skip_groups=skip["group"],
                floors={} if full else self._floors,
                max_lanes=MAX_LANES,
            )
        if full:
            self._full_scan_pace.ran(started)
            await self._note_empty(empty)
        for head in heads:
            self._empty_since.pop(head.lane_id, None)
        return heads

    async def _note_empty(self, empty: Sequence[int]) -> None:
        """Delete lanes that have been empty for a while: a tenant that submits one by one should not churn its lane."""
        now = time.monotonic()
        for lane_id in empty:
            self._empty_since.setdefault(lane_id, now)
        old = [lane_id for lane_id in empty if now - self._empty_since[lane_id] > 2.0]
        if old:
            async with self.runtime.database.transaction() as connection:
                dropped = await lanes.drop_empty(connection, old)
            for lane_id in dropped:
                self._empty_since.pop(lane_id, None)
                self._floors.pop(lane_id, None)

    # --- do ------------------------------------------------------------------------------------------------------------

    async def _release(self, plan: Plan, heads: Sequence[LaneHead]) -> Sequence[Row[Any]]:
        ids = sorted(release.task_id for release in plan.releases)
        values = {
            "holder": self.holder,
            "epoch": self.epoch,
            "policy_version": self.runtime.policy.current.version,
            "figures": _figures(plan, self._counts.in_flight),
            "ids": ids,
            "turn_classes": [key[0] for key in plan.virtual_times],
            "turn_tenants": [key[1] for key in plan.virtual_times],
            "turn_times": list(plan.virtual_times.values()),
            "clock_classes": list(plan.clocks),
            "clock_times": list(plan.clocks.values()),
        }
        try:
            rows = await self.runtime.database.execute_hot(flights.RELEASE, values, retry_for_seconds=0.0)
        except Exception:
            # The answer may have been lost after the commit: whatever lies in flight unclaimed is published again.
            self._count_pace.next_at = 0.0
            raise
        if not rows:
            raise LostLead
        self._clocks.update(plan.clocks)
        for row in rows:
            self._counts.in_flight[row.priority_class] += 1
        if self.runtime.policy.current.limits:
            self._by_limit.update(
                _by_limit(Counter((r.task_type, r.tenant_id, r.task_group) for r in rows), self.runtime.registry)
            )
        self._move_floors(heads, {row.task_id for row in rows})
        return rows

    def _move_floors(self, heads: Sequence[LaneHead], gone: set[str]) -> None:
        """Remember how far each lane was emptied from its start."""
        stuck: set[int] = set()
        for head in heads:
            if head.lane_id in stuck:
                continue
            self._floors[head.lane_id] = head.order_at
            if head.task_id not in gone:
                stuck.add(head.lane_id)

    async def _publish(self, rows: Sequence[Row[Any]]) -> None:
        """Publish released rows; what could not be published goes back at once, as a new stay in the queue."""
        items = [(row.priority_class, message_of(row)) for row in rows]
        results = await self.runtime.broker.publish(items)
        self.runtime.metrics.published(Counter(result.value for result in results))
        failed = [row for row, result in zip(rows, results, strict=True) if result is not Published.CONFIRMED]
        if not failed:
            self._broker_rest_until = 0.0
            return
        reasons = Counter(result.value for result in results if result is not Published.CONFIRMED)
        event(log, "not_published", level=logging.WARNING, count=len(failed), reasons=dict(reasons))
        self._broker_rest_until = time.monotonic() + 0.25
        back = await flights.hand_back(
            self.runtime.database,
            [(row.task_id, row.dispatch) for row in failed],
            worker_id=self.holder,
            why="not_published",
            retry_for_seconds=self.runtime.settings.database.retry_for_seconds,
        )
        for row in failed:
            if row.task_id in back:
                self._counts.in_flight[row.priority_class] -= 1
        if Published.UNROUTABLE.value in reasons:
            try:
                await self.runtime.broker.declare(tuple(self.runtime.policy.current.by_name))
            except BrokerError as error:
                event(log, "queues_not_declared", level=logging.WARNING, error=error)

    async def _unrelease_all(self) -> None:
        async with self.runtime.database.transaction() as connection:
            rows = await flights.all_unclaimed(connection)
        for start in range(0, len(rows), 1000):
            await flights.hand_back(
                self.runtime.database, rows[start : start + 1000], worker_id=self.holder, why="restart"
            )


def message_of(row: Row[Any]) -> TaskMessage:
    """Make the message of a released row."""
    trace = {} if row.traceparent is None else {"traceparent": row.traceparent}
    if row.tracestate is not None:
        trace["tracestate"] = row.tracestate
    created_at = row.submitted_at.astimezone(UTC).isoformat().replace("+00:00", "Z")
    return TaskMessage(row.task_id, row.task_type, row.tenant_id, row.attempt, row.dispatch, created_at, trace)


def _pools(live: Sequence[Row[Any]]) -> tuple[Pool, ...]:
    seats: Counter[frozenset[str]] = Counter()
    for worker in live:
        if not worker.draining:
            seats[frozenset(worker.classes)] += worker.slots
    return tuple(Pool(classes, count) for classes, count in sorted(seats.items(), key=lambda item: sorted(item[0])))


def _by_limit(counts: Mapping[tuple[str, str, str], int], registry: Mapping[str, Any]) -> Counter[str]:
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


def _tenant_heads(heads: Sequence[LaneHead], registry: Mapping[str, Any]) -> dict[str, list[TenantHeads]]:
    depends = {name: task_type.spec.depends_on for name, task_type in registry.items() if task_type.spec.depends_on}
    grouped: dict[str, dict[str, tuple[float, float, list[Head]]]] = {}
    for head in heads:
        tenants = grouped.setdefault(head.priority_class, {})
        entry = tenants.get(head.tenant_id)
        if entry is None:
            entry = tenants[head.tenant_id] = (head.virtual_time, head.weight, [])
        entry[2].append(
            Head(
                head.task_id, head.task_type, head.task_group, head.order_at, head.cost, head.timeout_seconds,
                head.preemptible, depends.get(head.task_type, ()),
            )
        )  # fmt: skip
    return {
        name: [TenantHeads(tenant, time_, weight, rows) for tenant, (time_, weight, rows) in tenants.items()]
        for name, tenants in grouped.items()
    }


def _figures(plan: Plan, in_flight: Mapping[str, int]) -> str:
    released: dict[str, Counter[str]] = {}
    for release in plan.releases:
        released.setdefault(release.priority_class, Counter())[release.seat.value] += 1
    waiting = {
        name: {reason.value: count for reason, count in put_off.reasons.items()}
        for name, put_off in plan.waiting.items()
    }
    return json.dumps(
        {"released": released, "put_off": waiting, "in_flight": dict(in_flight), "limits_full": plan.limits_full},
        separators=(",", ":"),
    )
