"""The simulation: events in virtual time, and after each moment the release plan that production would make.

What decides is what decides in production: `priority.decide_class`, `release.plan_release` (with seats, turns and
limits), `dependencies.gate_of` and the breaker, `retry.decide`. What surrounds it is simpler: a released task is at its
worker at once, calls take no time of their own, budgets and rates per minute are not there. Randomness comes in as an
argument, so the same load, policy and seed give the same figures.
"""

from dataclasses import replace
from heapq import heappop
from random import Random

from app.domain.capacity import Capacity, seat_book
from app.domain.failure import Failure
from app.domain.policy import Policy
from app.domain.release import Demand, Plan, SeatKind, plan_release
from app.domain.retry import RetryAfter, RetryPolicy, decide
from app.domain.simulation import arrivals, interventions
from app.domain.simulation.figures import Result, Series
from app.domain.simulation.hooks import THIS_VERSION, Hooks
from app.domain.simulation.lines import MOST_TENANTS
from app.domain.simulation.load import Change, Happening, Load
from app.domain.simulation.reviews import Reviews
from app.domain.simulation.tasks import State, Task
from app.domain.simulation.world import STEPS, World

LEASE_SECONDS = 30.0
"""How long a dead worker's tasks keep their seats in the books."""
CRASHES_SPARE = 5
FAIL_SECONDS = 1.0
"""How long a call of a dependency that is down takes to fail."""
MOST_RELEASES = 2_000


def simulate(
    policy: Policy, load: Load, draw: Random, *, hours: float | None = None, hooks: Hooks = THIS_VERSION
) -> Result:
    """Run `load` under `policy` for `hours` (default: the load's own). Pure, but for the state of `draw`."""
    return Simulation(policy, load, draw, hours=hours, hooks=hooks).run()


class Simulation(World):
    """One run."""

    def __init__(self, policy: Policy, load: Load, draw: Random, *, hours: float | None, hooks: Hooks) -> None:
        super().__init__(policy, load, draw, hours=hours, hooks=hooks)
        self.reviews = Reviews(load.reviewers)

    def watch(self, task: Task) -> None:
        """Look at a task that begins to wait again when it may rise, or when its class may preempt for it."""
        interventions.watch(self, task)

    # --- time ------------------------------------------------------------------------------------------------------

    def run(self) -> Result:
        """Run to the end."""
        arrivals.begin(self)
        for change in self.load.changes:
            self.at(change.at_seconds, self._change, change)
        while self.events and self.events[0][0] <= self.end:
            self._pass_to(self.events[0][0])
            while self.events and self.events[0][0] <= self.now:
                _, _, what, given = heappop(self.events)
                what(*given)
            self.moments += 1
            while self.is_dirty:  # what starts may end in the same instant, and free its seat
                self.is_dirty = False
                self._release()
        self._pass_to(self.end)
        return self._result()

    def _pass_to(self, when: float) -> None:
        for state, by_class in self.series.items():
            for name, values in by_class.items():
                while len(values) < STEPS and len(values) * self.step < when:
                    values.append(self.states[name][state])
        if when > self.now:
            self.record.passed(when - self.now, self.floor.seats, seat_book(self.policy, self.floor.pools))
            self.now = when

    # --- release -----------------------------------------------------------------------------------------------------

    def _release(self) -> None:
        """Plan until nothing more goes."""
        interventions.age(self)
        while self.floor.seats > self.in_flight.total():
            plan = self._plan()
            if plan is None or not plan.releases or not (plan.capped or self._hides_some()):
                break
        self._measure_demand()

    def _hides_some(self) -> bool:
        """Say whether a plan may have missed tasks that could go: behind stopped ones, or of tenants far back."""
        stops = self.policy.limits or self.paused or self.calls.lines
        return bool(stops) or any(len(line.lanes) > MOST_TENANTS for line in self.lines.values())

    def _plan(self) -> Plan | None:
        capacity = Capacity(self.floor.pools, self.in_flight)
        free = max(0, self.floor.seats - self.in_flight.total())
        self.looked = free + 1
        heads = {}
        for name, allotment in seat_book(self.policy, self.floor.pools).allotments.items():
            line = self.lines[name]
            most = allotment.maximum - self.in_flight[name]
            if line.count and most > 0 and f"class:{name}" not in self.paused:
                heads[name] = line.heads(min(most, free, MOST_RELEASES) + 1)
        if not heads:
            return None
        demand = Demand(
            heads,
            {name: line.clock for name, line in self.lines.items()},
            self.by_limit,
            frozenset(self.paused),
            self.passed_over,
            MOST_RELEASES,
            self.calls.gates(self.now) if self.calls.lines else {},
        )
        plan = plan_release(capacity, demand, self.policy)
        self.passed_over = dict(plan.passed_over)
        for (name, tenant), time in plan.virtual_times.items():
            self.lines[name].virtual_times[tenant] = time
        for name, clock in plan.clocks.items():
            self.lines[name].clock = clock
        for release in plan.releases:
            self._go(self.live[release.task_id], release.seat)
        return plan

    def _go(self, task: Task, seat: SeatKind) -> None:
        of = self.record.classes[task.class_name]
        of.shares.served(task.tenant.name, task.tenant.weight, task.head.cost)
        self.move(task, State.RELEASED)
        self.count_flight(task, 1)
        self.record.took(task)
        self.calls.released(task, self.now)
        if of.demand_since is not None and seat is SeatKind.NOMINAL:
            of.give_backs.append(self.now - of.demand_since)
            of.demand_since = None
        if self.floor.seat(task):
            self._start(task)

    def _measure_demand(self) -> None:
        """Note since when a class waits for seats of its own reserve."""
        book = seat_book(self.policy, self.floor.pools)
        for name, of in self.record.classes.items():
            wants = self.lines[name].count and self.in_flight[name] < book.allotments[name].reserve
            if not wants or f"class:{name}" in self.paused:
                of.demand_since = None
            elif of.demand_since is None and self.in_flight.total() >= self.floor.seats:
                of.demand_since = self.now

    # --- running -----------------------------------------------------------------------------------------------------

    def _start(self, task: Task) -> None:
        if interventions.is_superseded(self, task):
            self.floor.leave(task)
            self.end_task(task, "superseded")
            self.depart(task)
            self.seat_standing()
            return
        self.move(task, State.RUNNING)
        if task.first_start is None:
            task.first_start = self.now
            self.record.started(task, self.now)
        self.record.classes[task.class_name].fed(self.now, self.lines[task.class_name].count)
        if self.calls.begin(task):
            self._run(task)

    def _run(self, task: Task) -> None:
        """Let the handler run, now that it has its calls."""
        seconds = (task.run_seconds - task.done_seconds) * self.calls.slower(task)
        if self.calls.is_down(task):
            seconds = min(seconds, FAIL_SECONDS)
        task.run_began = self.now
        task.run_ends = self.now + min(seconds, task.work.spec.timeout_seconds)
        self.at(task.run_ends, self._ran, task, task.stamp, seconds > task.work.spec.timeout_seconds)

    def _ran(self, task: Task, stamp: int, timed_out: bool) -> None:
        if task.stamp != stamp:
            return
        is_down = self.calls.is_down(task)
        for when in self.calls.report(task, self.now):
            self.at(when, self.wake)
        self.leave(task)
        if timed_out:
            self._failed(task, Failure("timeout", "the run took longer than its timeout", True))
        elif is_down:
            self._failed(task, Failure("connection", "what it calls is down", True))
        elif task.work.fails and self.draw.random() < task.work.fails:
            self._failed(task, Failure("error", "the attempt failed", True))
        elif task.asks_approval:
            self._ask(task)
        else:
            self.end_task(task, "done")
            interventions.ended(self, task)

    def leave(self, task: Task) -> None:
        """Give the task's seat and calls back, and let whoever waited for them go on."""
        self.floor.leave(task)
        self.depart(task)
        for begun in self.calls.forget(task):
            self._run(begun)
        self.seat_standing()

    def seat_standing(self) -> None:
        """Let released tasks that stood in line take free seats."""
        while self.floor.is_standing and (following := self.floor.next_standing()) is not None:
            if following.state is State.RELEASED and self.floor.seat(following):
                self._start(following)

    def _failed(self, task: Task, failure: Failure) -> None:
        interventions.ended(self, task)
        spec = task.work.spec
        backoff = RetryPolicy(spec.backoff_base_seconds, spec.backoff_cap_seconds)
        task.done_seconds = 0.0
        match decide(failure, task.attempt, task.max_attempts, backoff, self.draw.random()):
            case RetryAfter(seconds=seconds):
                task.attempt += 1
                task.head = replace(task.head, attempt=task.attempt)
                self.record.count(task, "retried")
                self.delay(task, seconds)
            case _:
                self.end_task(task, "dead_lettered")

    def _ask(self, task: Task) -> None:
        task.asks_approval = False
        self.move(task, State.AWAITING_APPROVAL)
        within = task.chosen.approve_within_seconds
        self.reviews.ask(task, self.now, within)
        self.review()

    def review(self) -> None:
        """Let free reviewers take what is due first."""
        while (asked := self.reviews.take()) is not None:
            self.at(self.now + self.reviews.seconds(self.draw), self._reviewed, *asked)

    def _reviewed(self, task: Task, asked_at: float) -> None:
        self.reviews.busy -= 1
        self.record.classes[task.class_name].approvals.append(self.now - asked_at)
        if self.draw.random() < self.reviews.reviewers.denies:
            self.end_task(task, "denied")
        else:
            task.run_seconds, task.done_seconds = task.work.after_approval_seconds, 0.0
            self.delay(task, 0.0)
        self.review()

    # --- what changes ------------------------------------------------------------------------------------------------

    def _change(self, change: Change) -> None:
        match change.what:
            case Happening.SEATS:
                self.floor.resize(change.name, change.count)
                self.seat_standing()
            case Happening.DIE:
                for task in self.floor.kill(change.name, change.count, self.draw):
                    self.move(task, State.LOST)
                    self.at(self.now + LEASE_SECONDS, self._lost, task, task.stamp)
            case Happening.PAUSE:
                self.paused.add(change.name)
            case Happening.RESUME:
                self.paused.discard(change.name)
            case Happening.DEPENDENCY:
                if (line := self.calls.lines.get(change.name)) is not None:
                    line.health, line.slower = change.health, change.slower
            case Happening.REVIEWERS:
                self.reviews.count = change.count
                self.review()
        self.wake()

    def _lost(self, task: Task, stamp: int) -> None:
        """Take back what a dead worker had, as the rescuer does: no attempt is spent, the pause grows."""
        if task.stamp != stamp:
            return
        self.depart(task)
        for begun in self.calls.forget(task):
            self._run(begun)
        self.record.count(task, "workers_lost")
        interventions.ended(self, task)
        task.done_seconds = 0.0
        if task.crashes + 1 >= task.max_attempts + CRASHES_SPARE:
            self.end_task(task, "dead_lettered")
            return
        pause = min(60.0, 2.0**task.crashes) * (0.5 + self.draw.random() / 2) if task.crashes else 0.0
        task.crashes += 1
        self.delay(task, pause)

    # --- what came of it ---------------------------------------------------------------------------------------------

    def _result(self) -> Result:
        of: dict[str, tuple[int, int, int, float | None]] = {}
        for name, line in self.lines.items():
            states = self.states[name]
            waiting = states[State.WAITING] + states[State.DELAYED] + states[State.RELEASED]
            running = states[State.RUNNING] + states[State.LOST]
            of[name] = (waiting, running, states[State.AWAITING_APPROVAL], line.oldest())
            within = self.policy.by_name[name].start_within_seconds
            late = [task for lanes in line.lanes.values() for lane in lanes.values() for task in lane.tasks()]
            self.record.classes[name].too_late += sum(
                task.first_start is None and self.now - task.ready_at > within for task in late
            )
        classes = self.record.of_classes(of, self.now)
        series = Series(self.step, self.series[State.WAITING], self.series[State.RUNNING])
        return Result(
            self.policy.version, self.hours, self.load.seed, self.moments, classes,
            self.record.of_tenants(), self.record.of_all(classes), series,
        )  # fmt: skip
