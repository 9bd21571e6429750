"""The dispatcher's work: one round decides what goes now, moves it in one statement, and publishes it.

Only the leader's rounds move anything: the release statement proves the lease itself. Between rounds the leader keeps
counts in memory, corrected by the workers' tallies in every round and by a full count now and then, so that a round
costs the same whether thousands or millions wait.
"""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime

from sqlalchemy.ext.asyncio import AsyncConnection

from app.broker.base import BrokerError, Published
from app.domain.capacity import Capacity, Pool, Seats
from app.domain.release import Demand, Plan, plan_release
from app.runtime import Runtime
from app.services.budgets import PurseKeeper
from app.services.gates import Gates
from app.services.in_flight import InFlight, Pace
from app.services.policies import follow
from app.services.releases import by_limit, figures_of, message_of, pools_of, tenant_heads
from app.store import delayed, flights, lanes, leaders, looks, tallies, workers
from app.store.hot import HotRow
from app.store.lanes import LaneHeads
from app.telemetry.logs import event

log = logging.getLogger("despacho.dispatcher")

MAX_LANES = 64
MOST_FLOORS = 4 * MAX_LANES
ROLE = "dispatcher"


class LostLead(Exception):
    """The release statement moved nothing: somebody else leads, or the lease ran out."""


class Dispatcher:
    """The leader's state and its rounds. `volatile` says that the broker forgets its messages with this process."""

    def __init__(self, runtime: Runtime, *, holder: str, volatile: bool = False) -> None:
        self.runtime = runtime
        self.holder = holder
        self.epoch = 0
        self.last_plan: Plan | None = None
        self._volatile = volatile
        self._settings = runtime.settings.dispatcher
        self._declaring: asyncio.Task[None] | None = None
        self._declared_for = runtime.policy.current.version
        self._reset()

    def _reset(self) -> None:
        self._counts = InFlight()
        self._pools: tuple[Pool, ...] = ()
        self._paused: frozenset[str] = frozenset()
        self._by_limit: Counter[str] = Counter()
        self._counts_by_limit = False
        self._gates = Gates()
        self._purse = PurseKeeper(self.runtime)
        self._passed_over: Mapping[str, int] = {}
        self._clocks: dict[str, float] = {}
        self._floors: dict[int, datetime] = {}
        self._empty: set[int] = set()
        self._count_pace = Pace(1.0)
        self._world_pace = Pace(0.2)
        self._full_scan_pace = Pace(0.0)
        self._due_pace = Pace(0.005)
        self._lane_pace = Pace(1.0)
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
        if self._declaring is not None:
            self._declaring.cancel()
        await self._purse.close()

    async def round(self) -> int:
        """Do one round; returns how many tasks it moved (to the waiting, or to the broker).

        Raises LostLead when another leads, and database errors.
        """
        started = time.monotonic()
        await self._look()
        moved = await self._come_due()
        await self._drop_empty_lanes()
        if not self._can_publish():
            return moved
        plan, heads = await self._plan()
        if plan is None or not plan.releases:
            return moved
        released = await self._release(plan, heads)
        if not released:
            return moved
        publishing = asyncio.create_task(self._publish(released))
        self._publishing.add(publishing)
        publishing.add_done_callback(self._publishing.discard)
        if len(self._publishing) >= 4:
            await asyncio.wait(self._publishing, return_when=asyncio.FIRST_COMPLETED)
        self.runtime.metrics.release_round(time.monotonic() - started, Counter(row.priority_class for row in released))
        return moved + len(released)

    def rest_seconds(self, moved: int) -> float:
        """Tell how long to rest after a round that moved so many: less, the sooner a seat may be free again."""
        settings = self._settings
        if moved:
            return settings.busy_poll_seconds
        shortest = self._counts.shortest_seconds()
        if shortest is None:
            return settings.idle_poll_seconds
        return max(settings.busy_poll_seconds, min(settings.idle_poll_seconds, shortest / 4))

    # --- what the world looks like ---------------------------------------------------------------------------------

    async def _look(self) -> None:
        """Read tallies, pauses and dependencies; now and then also workers, the policy, and a full count."""
        world, count = self._world_pace.due(), self._count_pace.due()
        started = time.monotonic()
        seen = await looks.look(self.runtime.database)
        self._counts.tallied(seen.tallies)
        self._paused = seen.paused
        self._gates.look(self.runtime.policy.current, seen, self._by_limit)
        await self._purse.look()
        is_counted, self._counts_by_limit = self._counts_by_limit, self._limits_something()
        if not (world or count or (self._counts_by_limit and not is_counted)):
            return
        async with self.runtime.database.transaction() as connection:
            if world:
                self._pools = pools_of(await workers.live(connection))
                await self._refresh_policy(connection)
            in_flight = await flights.counts(connection) if count else {}
            if self._counts_by_limit:
                self._by_limit = by_limit(await flights.counts_by_name(connection), self.runtime.registry)
                self._gates.look(self.runtime.policy.current, seen, self._by_limit)
        if count:
            self._counts.counted(in_flight, await tallies.read(self.runtime.database))
        if world:
            self._world_pace.ran(started)
        if count:
            self._count_pace.ran(started)

    def _limits_something(self) -> bool:
        return bool(self.runtime.policy.current.limits or self._gates.now)

    async def _refresh_policy(self, connection: AsyncConnection) -> None:
        """Follow the policy, and have the queues of its classes exist before anything is sent there."""
        await follow(self.runtime, connection)
        version = self.runtime.policy.current.version
        if version != self._declared_for and (self._declaring is None or self._declaring.done()):
            self._declared_for = version
            self._declaring = asyncio.create_task(self._declare(), name="declare queues")

    async def _declare(self) -> None:
        try:
            await self.runtime.broker.declare(tuple(self.runtime.policy.current.by_name))
        except BrokerError as error:  # a broker that is away gets them when it is back
            event(log, "queues_not_declared", level=logging.WARNING, error=error)

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

    async def _plan(self) -> tuple[Plan | None, list[LaneHeads]]:
        policy = self.runtime.policy.current
        capacity = Capacity(self._pools, dict(self._counts.count), self._stretch())
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
            heads=tenant_heads(heads, self.runtime.registry),
            clocks=self._clocks,
            in_flight=self._by_limit,
            paused=self._paused,
            dependencies=self._gates.now,
            purse=self._purse.purse,
            passed_over=self._passed_over,
            max_releases=most,
        )
        plan = plan_release(capacity, demand, policy)
        self.last_plan = plan
        self._passed_over = plan.passed_over
        return plan, heads

    def _stretch(self) -> dict[str, float]:
        window_seconds = self._settings.window_seconds
        return {name: self._counts.stretch(name, window_seconds) for name in self.runtime.policy.current.by_name}

    async def _heads(self, budgets: Mapping[str, int]) -> list[LaneHeads]:
        full = self._full_scan_pace.due()
        started = time.monotonic()
        skip = {kind: [] for kind in ("type", "tenant", "group")}  # type: dict[str, list[str]]
        for paused in self._paused:
            kind, _, name = paused.partition(":")
            if kind in skip:
                skip[kind].append(name)
        class_types = self._gates.stopped(self.runtime.policy.current, self.runtime.registry, self._paused)
        tenant_types, firsts = self._purse.tenant_types()
        heads = await lanes.heads(
            self.runtime.database,
            budgets=budgets,
            skip_types=[*skip["type"], *self._purse.types()],
            skip_tenants=skip["tenant"],
            skip_groups=skip["group"],
            skip_class_types=class_types,
            skip_tenant_types=tenant_types,
            skip_firsts=firsts,
            floors={} if full else self._floors,
            max_lanes=MAX_LANES,
        )
        if full:
            self._full_scan_pace.ran(started)
        return heads

    async def _drop_empty_lanes(self) -> None:
        """Delete lanes that were empty at two looks: a tenant that submits one by one should not churn its lane."""
        if not self._lane_pace.due():
            return
        started = time.monotonic()
        async with self.runtime.database.transaction() as connection:
            empty = await lanes.empty(connection)
            old = empty & self._empty
            dropped = await lanes.drop_empty(connection, sorted(old)) if old else []
        for lane_id in dropped:
            self._floors.pop(lane_id, None)
        self._empty = empty - set(dropped)
        self._lane_pace.ran(started)

    # --- do ----------------------------------------------------------------------------------------------------------

    async def _release(self, plan: Plan, heads: Sequence[LaneHeads]) -> Sequence[HotRow]:
        ids = sorted(release.task_id for release in plan.releases)
        values = {
            "holder": self.holder,
            "epoch": self.epoch,
            "policy_version": self.runtime.policy.current.version,
            "figures": figures_of(plan, self._counts.count),
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
        if not rows and not await self._still_leads():
            raise LostLead
        self._clocks.update(plan.clocks)
        for row in rows:
            self._counts.count[row.priority_class] += 1
        self._gates.released([row.task_type for row in rows], self.runtime.registry)
        self._purse.released((row.tenant_id, row.task_type) for row in rows)
        if self._counts_by_limit:
            self._by_limit.update(
                by_limit(Counter((r.task_type, r.tenant_id, r.task_group) for r in rows), self.runtime.registry)
            )
        self._move_floors(heads, {row.task_id for row in rows})
        return rows

    async def _still_leads(self) -> bool:
        """Tell a lost lead from rows that were all cancelled or expired between the look and the release."""
        found = await leaders.leader(self.runtime.database, ROLE)
        return found is not None and found.alive and (found.holder, found.epoch) == (self.holder, self.epoch)

    def _move_floors(self, heads: Sequence[LaneHeads], gone: set[str]) -> None:
        """Remember how far each lane was emptied from its start: up to the first task that stayed."""
        for lane in heads:
            stayed = next(
                (at for at, task_id in zip(lane.order_ats, lane.task_ids, strict=True) if task_id not in gone), None
            )
            self._floors.pop(lane.lane_id, None)
            self._floors[lane.lane_id] = stayed or lane.order_ats[-1]
        # Only what was emptied lately is worth its place: every floor is sent, and looked at for every lane.
        for lane_id in list(self._floors)[: max(0, len(self._floors) - MOST_FLOORS)]:
            del self._floors[lane_id]

    async def _publish(self, rows: Sequence[HotRow]) -> None:
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
        try:
            await flights.hand_back(
                self.runtime.database,
                [(row.task_id, row.dispatch) for row in failed],
                worker_id=self.holder,
                why="not_published",
                retry_for_seconds=self.runtime.settings.database.retry_for_seconds,
            )
        except Exception as error:
            # They stay released, and are published again when nobody has claimed them for a while.
            event(log, "not_handed_back", level=logging.WARNING, count=len(failed), error=error)

    async def _unrelease_all(self) -> None:
        async with self.runtime.database.transaction() as connection:
            rows = await flights.all_unclaimed(connection)
        for start in range(0, len(rows), 1000):
            await flights.hand_back(
                self.runtime.database, rows[start : start + 1000], worker_id=self.holder, why="restart"
            )
