"""Every metric of Despacho, in one object; helper methods are named by what happened.

Labels come from small closed sets or are bounded (`labels.py`); there is never a tenant, a task id, a URL or a text of
an error in one. Nothing here is global: each `Metrics` has a registry of its own.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from platform import python_version
from typing import TypeVar

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest

from app.domain.lifecycle import TaskStatus, is_final
from app.telemetry.attempts import EndedAttempt
from app.telemetry.families import CounterFamily, GaugeFamily, HistogramFamily
from app.telemetry.labels import ROUTE, BoundedLabel, FixedLabel

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_FAST = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_LONG = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3600.0, 14_400.0)
_CALL = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0)
_MODEL = re.compile(r"[A-Za-z0-9_.:/@+-]{1,80}")
_TOKENS = ("input", "output", "cached", "cache_write", "reasoning")
_ATTEMPTS = (1, 2, 3, 4, 5, 6, 8, 10, 15, 20)
_SIZES = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000)
_METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS")
_LANE = ("priority_class", "type")
_Family = TypeVar("_Family", CounterFamily, GaugeFamily, HistogramFamily)


@dataclass(frozen=True, slots=True)
class ClassFigures:
    """How one priority class stands, as the leading dispatcher sees it; seats are concurrent tasks.

    `waiting` is due and not released, `delayed` waits for a time, `released` is published and not claimed.
    """

    priority_class: str
    waiting: int
    delayed: int
    released: int
    running: int
    seats_nominal: int
    seats_maximum: int
    seats_lent: int
    seats_borrowed: int
    oldest_waiting_seconds: float
    consumers: int
    start_within_seconds: float | None
    """The target of the policy; None where the class has none."""


class Metrics:
    """The metrics of one process."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        self.registry = registry or CollectorRegistry()
        self._class = BoundedLabel(32)
        self._type = BoundedLabel(100)
        self._error = BoundedLabel(50)
        self._effect = BoundedLabel(50)
        self._outcome = BoundedLabel(50)
        self._reason = BoundedLabel(100)
        self._name = BoundedLabel(50)
        self._route = BoundedLabel(200, ROUTE)
        self._provider = BoundedLabel(20)
        self._model = BoundedLabel(50, _MODEL)
        self._token_kind = FixedLabel(_TOKENS)
        self._status = FixedLabel(TaskStatus)
        self._dependency = BoundedLabel(50)
        self._method = FixedLabel(_METHODS)

        count, gauge, histogram = self._counter, self._gauge, self._histogram
        self._submitted = count("tasks_submitted", "Tasks accepted.", *_LANE)
        self._classified = count("tasks_classified", "Tasks by class and reason code.", "priority_class", "reason_code")
        self._finished = count("tasks_finished", "Tasks that reached a final status.", *_LANE, "status")
        self._attempts = count("attempts", "Attempts that ended.", *_LANE, "outcome")
        self._retries = count("retries", "Attempts after which the task waits for another.", *_LANE, "error_type")
        self._dead_letters = count("dead_letters", "Tasks and messages dead-lettered.", *_LANE, "error_type")
        self._reprocessed = count("dead_letters_reprocessed", "Dead letters sent back to the queue.", *_LANE)
        self._cancellations = count("cancellations_requested", "Cancellations asked for.", "priority_class")
        self._queue_seconds = histogram("queue_seconds", "Time from due to started.", _LONG, *_LANE)
        self._run_seconds = histogram("run_seconds", "Time an attempt ran.", _LONG, *_LANE)
        self._task_attempts = histogram("task_attempts", "Attempts a finished task has spent.", _ATTEMPTS, *_LANE)

        self._round_seconds = histogram("release_round_seconds", "Duration of one release round.", _FAST)
        self._released_tasks = count("tasks_released", "Tasks released by the dispatcher.", "priority_class")
        self._publishes = count("publishes", "Messages by what became of them.", "result")
        self._republished = count("republished", "Released tasks published again.", "priority_class")
        self._stale = count("deliveries_stale", "Deliveries whose task was not claimable.", "priority_class")
        self._handed_back = count("tasks_handed_back", "Tasks given back for want of a slot.", "priority_class")
        self._leases_lost = count("leases_lost", "Attempts whose lease was lost.", "priority_class")
        self._workers_lost = count("worker_lost", "Running tasks whose worker died.", "priority_class")

        by_class = ("priority_class",)
        self._waiting = gauge("tasks_waiting", "Tasks due and not released.", *by_class)
        self._delayed = gauge("tasks_delayed", "Tasks that wait for a time.", *by_class)
        self._released = gauge("tasks_released_unclaimed", "Tasks released and not claimed.", *by_class)
        self._running = gauge("tasks_running", "Tasks that an attempt owns.", *by_class)
        self._nominal = gauge("seats_nominal", "Seats reserved for the class.", *by_class)
        self._maximum = gauge("seats_maximum", "Seats the class may take at most.", *by_class)
        self._lent = gauge("seats_lent", "Seats of the class that others use.", *by_class)
        self._borrowed = gauge("seats_borrowed", "Seats of others that the class uses.", *by_class)
        self._oldest = gauge("oldest_waiting_seconds", "Age of the oldest waiting task.", *by_class)
        self._consumers = gauge("class_consumers", "Consumers of the class's queue.", *by_class)
        self._deaf = gauge("class_without_consumers", "1 where a class has no consumer.", *by_class)
        self._target = gauge("class_start_within_seconds", "Target of the class for time to start.", *by_class)
        self._leader = gauge("leader", "1 while this process leads the dispatchers.")
        self._dead_open = gauge("dead_letters_open", "Dead letters not reprocessed or purged.", "error_type")
        self._approvals_asked = count("approvals_asked", "Approvals that handlers asked for.", *by_class)
        self._approvals_decided = count(
            "approvals_decided", "Approvals approved, denied or expired.", "priority_class", "outcome"
        )
        self._approvals_waiting = gauge("approvals_waiting", "Tasks that wait for a person.", *by_class)
        self._approvals_overdue = gauge("approvals_overdue", "Those of them past the target of their class.", *by_class)
        self._approvals_oldest = gauge("approvals_oldest_seconds", "Age of the oldest question to a person.", *by_class)
        self._overrides_made = count("overrides_made", "Classes given to tasks by hand.", *by_class)
        self._overrides = gauge("overrides_lasting", "Classes given by hand that have not ended.", *by_class)
        self._policy_refused = gauge(
            "policy_version_refused", "1 while the newest version of the policy cannot be used by this process."
        )
        self._slots = gauge("worker_slots", "Slots of this worker.", "pool")
        self._slots_busy = gauge("worker_slots_busy", "Slots of this worker in use.", "pool")
        self._database_up = gauge("database_up", "1 while this process reaches the database.")
        self._broker_up = gauge("broker_up", "1 while this process reaches the broker.")

        self._effects = count("effects", "What became of effects that handlers asked for.", "effect_type", "outcome")
        self._in_doubt = gauge("effects_in_doubt", "Effects that a person must resolve.", "effect_type")
        self._overdue = gauge("effect_calls_overdue", "Calls whose deadline is over and whose end is not known.")
        call = ("provider", "model", "type")
        self._llm_calls = count("llm_calls", "Model calls by what became of them.", *call, "outcome")
        self._llm_tokens = count("llm_tokens", "Tokens of model calls, estimates included.", *call, "kind")
        self._llm_cost = count("llm_cost_usd", "Cost of model calls with a known price.", *call)
        self._llm_seconds = histogram("llm_seconds", "Time a model call took.", _CALL, *call)
        by_dependency = ("dependency",)
        self._dependency_state = gauge(
            "dependency_state",
            "0 closed (calls pass), 1 half-open (probes only), 2 open (nothing passes).",
            *by_dependency,
        )
        self._dependency_shut = count("dependency_open_seconds", "Time a dependency was not closed.", *by_dependency)
        self._dependency_calls = count(
            "dependency_calls", "Calls by how they ended, those that got no permit included.", *by_dependency, "outcome"
        )
        self._dependency_used = gauge("dependency_calls_in_progress", "Calls under way here.", *by_dependency)
        self._budget_share = gauge("budget_spent_share", "Largest share spent today, by kind of budget.", "kind")
        self._budgets_near = gauge("budgets_nearly_spent", "Budgets of which 80 % is spent today.", "kind")
        self._budgets_spent = gauge("budgets_spent", "Budgets that are spent for today.", "kind")
        self._webhook_tries = count("webhook_tries", "Tries to deliver events.", "priority_class", "outcome")
        self._webhook_seconds = histogram("webhook_try_seconds", "Duration of one try.", _FAST)
        self._webhook_delay = histogram("webhook_delay_seconds", "Time from end to delivered.", _LONG, *by_class)
        self._webhooks_waiting = gauge("webhooks_waiting", "Events not delivered and not given up.", *by_class)

        self._requests = count("http_requests", "Requests answered.", "route", "method", "status_class")
        self._request_seconds = histogram("http_request_seconds", "Time to answer.", _FAST, "route", "method")
        self._refusals = count("refusals", "Requests and batch items refused, by problem code.", "code")
        self._db_retries = count("database_retries", "Statements tried again.", "reason")
        self._pool_used = gauge("database_pool_in_use", "Connections checked out.", "pool")
        self._pool_size = gauge("database_pool_size", "Connections at most.", "pool")
        self._lag = histogram("event_loop_lag_seconds", "How late the event loop ran a timer.", _FAST)
        self._batches = histogram("batch_size", "Items per flush of a coalescer.", _SIZES, "coalescer")
        self._log_lines = gauge("log_lines_dropped", "Log lines dropped because stderr was too slow.")
        self._build = gauge("build_info", "Version and role of this process.", "version", "role", "python")
        ProcessCollector(registry=self.registry)

    def render(self) -> bytes:
        """Render the page for `/metrics`; its media type is `CONTENT_TYPE`."""
        return generate_latest(self.registry)

    def reserve(
        self, *, classes: Iterable[str] = (), types: Iterable[str] = (), error_types: Iterable[str] = ()
    ) -> None:
        """Name the classes, types and error types that must keep their own series however many others appear."""
        self._class.reserve(classes)
        self._type.reserve(types)
        self._error.reserve(error_types)

    # What happens to tasks.
    def tasks_submitted(self, priority_class: str, type_: str, count: int = 1) -> None:
        """Count accepted tasks."""
        self._submitted.add(self._lane(priority_class, type_), count)

    def tasks_classified(self, priority_class: str, reason_code: str, count: int = 1) -> None:
        """Count decisions about the class by the reason that the policy gave."""
        self._classified.add((self._class(priority_class), self._reason(reason_code)), count)

    def tasks_finished(self, priority_class: str, type_: str, status: str, count: int = 1) -> None:
        """Count tasks that became final without an attempt ending: cancelled, expired, superseded while waiting."""
        self._finished.add((*self._lane(priority_class, type_), self._status(status)), count)

    def tasks_expired(self, priority_class: str, type_: str, count: int = 1) -> None:
        """Count tasks whose `valid_until` passed."""
        self.tasks_finished(priority_class, type_, TaskStatus.EXPIRED, count)

    def dead_lettered(self, priority_class: str | None, type_: str | None, error_type: str, count: int = 1) -> None:
        """Count dead letters that no ended attempt led to; a malformed message has neither class nor type."""
        lane = self._lane(priority_class, type_)
        self._dead_letters.add((*lane, self._error(error_type)), count)
        if type_ is not None:
            self._finished.add((*lane, TaskStatus.DEAD_LETTERED.value), count)

    def dead_letters_reprocessed(self, priority_class: str, type_: str, count: int = 1) -> None:
        """Count dead letters that went back to the queue."""
        self._reprocessed.add(self._lane(priority_class, type_), count)

    def cancellations_requested(self, priority_class: str, count: int = 1) -> None:
        """Count requests to cancel."""
        self._cancellations.add((self._class(priority_class),), count)

    def attempts_ended(self, batch: Sequence[EndedAttempt]) -> None:
        """Count a batch of committed attempts: outcomes, times, retries, dead letters and finished tasks."""
        groups: dict[tuple[str, str, str, str, str | None], list[EndedAttempt]] = {}
        for ended in batch:
            key = (ended.priority_class, ended.type, ended.outcome, ended.status, ended.error_type)
            group = groups.get(key)
            if group is None:
                groups[key] = [ended]
            else:
                group.append(ended)
        for (priority_class, type_, outcome, status, error_type), group in groups.items():
            lane = self._lane(priority_class, type_)
            count = len(group)
            self._attempts.add((*lane, self._outcome(outcome)), count)
            self._queue_seconds.observe(lane, [ended.queue_seconds for ended in group])
            self._run_seconds.observe(lane, [ended.run_seconds for ended in group])
            if is_final(status):
                self._finished.add((*lane, self._status(status)), count)
                self._task_attempts.observe(lane, [ended.attempts_spent for ended in group])
            if status == TaskStatus.DEAD_LETTERED:
                self._dead_letters.add((*lane, self._error(error_type)), count)
            elif status == TaskStatus.FAILED_RETRYABLE:
                self._retries.add((*lane, self._error(error_type)), count)

    # What the dispatcher and the workers do.
    def release_round(self, seconds: float, released: Mapping[str, int]) -> None:
        """Count one release round and the tasks it released per class."""
        self._round_seconds.observe((), [seconds])
        for priority_class, count in released.items():
            self._released_tasks.add((self._class(priority_class),), count)

    def published(self, results: Mapping[str, int]) -> None:
        """Count messages by what became of them (`Published` values)."""
        for result, count in results.items():
            self._publishes.add((self._name(result),), count)

    def republished(self, priority_class: str, count: int = 1) -> None:
        """Count released tasks that were published again because nobody had claimed them."""
        self._republished.add((self._class(priority_class),), count)

    def deliveries_stale(self, priority_class: str, count: int = 1) -> None:
        """Count deliveries whose task was not claimable."""
        self._stale.add((self._class(priority_class),), count)

    def handed_back(self, priority_class: str, count: int = 1) -> None:
        """Count tasks that a full worker gave back."""
        self._handed_back.add((self._class(priority_class),), count)

    def leases_lost(self, priority_class: str, count: int = 1) -> None:
        """Count attempts that lost their lease while they ran."""
        self._leases_lost.add((self._class(priority_class),), count)

    def workers_lost(self, priority_class: str, count: int = 1) -> None:
        """Count running tasks that were taken back from a worker that died."""
        self._workers_lost.add((self._class(priority_class),), count)

    def webhook_tried(self, priority_class: str, outcome: str, seconds: float) -> None:
        """Count one try to deliver an event; `outcome` is delivered, retried or failed."""
        self._webhook_tries.add((self._class(priority_class), self._name(outcome)), 1)
        self._webhook_seconds.observe((), [seconds])

    def webhook_delivered(self, priority_class: str, seconds_since_end: float) -> None:
        """Record how long after the end of its task an event was taken by its receiver."""
        self._webhook_delay.observe((self._class(priority_class),), [seconds_since_end])

    # How things stand.
    def webhooks_waiting(self, by_class: Mapping[str, int]) -> None:
        """Replace the number of events that wait to be delivered; who stops leading passes an empty mapping."""
        depth: dict[tuple[str, ...], float] = {}
        for priority_class, count in by_class.items():
            key = (self._class(priority_class),)
            depth[key] = depth.get(key, 0.0) + count
        self._webhooks_waiting.replace(depth)

    def class_figures(self, figures: Iterable[ClassFigures]) -> None:
        """Replace the figures of all classes; a dispatcher that stops leading passes an empty list."""
        rows = [((self._class(row.priority_class),), row) for row in figures]
        self._waiting.replace({key: row.waiting for key, row in rows})
        self._delayed.replace({key: row.delayed for key, row in rows})
        self._released.replace({key: row.released for key, row in rows})
        self._running.replace({key: row.running for key, row in rows})
        self._nominal.replace({key: row.seats_nominal for key, row in rows})
        self._maximum.replace({key: row.seats_maximum for key, row in rows})
        self._lent.replace({key: row.seats_lent for key, row in rows})
        self._borrowed.replace({key: row.seats_borrowed for key, row in rows})
        self._oldest.replace({key: row.oldest_waiting_seconds for key, row in rows})
        self._consumers.replace({key: row.consumers for key, row in rows})
        self._deaf.replace({key: float(row.consumers == 0) for key, row in rows})
        self._target.replace({k: r.start_within_seconds for k, r in rows if r.start_within_seconds is not None})

    def dead_letters_open(self, by_error_type: Mapping[str, int]) -> None:
        """Replace the depth of the dead-letter list by error type; those beyond the bound are added up as `other`."""
        depth: dict[tuple[str, ...], float] = {}
        for error_type, count in by_error_type.items():
            key = (self._error(error_type),)
            depth[key] = depth.get(key, 0.0) + count
        self._dead_open.replace(depth)

    def approval_asked(self, priority_class: str) -> None:
        """Count one approval that a handler asked for."""
        self._approvals_asked.add((self._class(priority_class),))

    def approvals_decided(self, priority_class: str, outcome: str, count: int = 1) -> None:
        """Count approvals by what became of them."""
        self._approvals_decided.add((self._class(priority_class), self._outcome(outcome)), count)

    def approvals_waiting(self, by_class: Mapping[str, tuple[int, int, float]]) -> None:
        """Replace how many tasks of each class wait for a person: how many, how many overdue, the oldest in seconds."""
        rows = {(self._class(name),): row for name, row in by_class.items()}
        self._approvals_waiting.replace({key: row[0] for key, row in rows.items()})
        self._approvals_overdue.replace({key: row[1] for key, row in rows.items()})
        self._approvals_oldest.replace({key: row[2] for key, row in rows.items()})

    def override_made(self, priority_class: str) -> None:
        """Count one task that somebody gave this class."""
        self._overrides_made.add((self._class(priority_class),))

    def overrides_lasting(self, by_class: Mapping[str, int]) -> None:
        """Replace how many classes given by hand last, by the class that they give."""
        self._overrides.replace({(self._class(name),): count for name, count in by_class.items()})

    def policy_refused(self, refused: bool) -> None:
        """Say whether the newest version of the policy cannot be used here; the one before rules meanwhile."""
        self._policy_refused.put((), float(refused))

    def effects(self, effect_type: str, outcome: str, count: int = 1) -> None:
        """Count effects by what became of them: reserved, skipped, snoozed, confirmed, not_sent, in_doubt, …"""
        self._effects.add((self._effect(effect_type), self._name(outcome)), count)

    def effects_standing(self, in_doubt: Mapping[str, int], overdue: int) -> None:
        """Replace the number of effects in doubt by type (beyond the bound: `other`), and of overdue calls."""
        depth: dict[tuple[str, ...], float] = {}
        for effect_type, count in in_doubt.items():
            key = (self._effect(effect_type),)
            depth[key] = depth.get(key, 0.0) + count
        self._in_doubt.replace(depth)
        self._overdue.put((), overdue)

    def dependency_called(self, dependency: str, outcome: str, count: int = 1) -> None:
        """Count calls by how they ended: ok, failed, dependency_limit, dependency_closed."""
        self._dependency_calls.add((self._dependency(dependency), self._name(outcome)), count)

    def dependency_in_use(self, dependency: str, calls: int) -> None:
        """Say how many calls of a dependency are under way in this process."""
        self._dependency_used.put((self._dependency(dependency),), calls)

    def dependency_states(self, states: Mapping[str, int], *, since_seconds: float) -> None:
        """Replace the states of all dependencies (0 closed, 1 half-open, 2 open), which lasted `since_seconds` more."""
        known: dict[tuple[str, ...], float] = {
            (self._dependency(name),): float(state) for name, state in states.items()
        }
        self._dependency_state.replace(known)
        for labels, state in known.items():
            self._dependency_shut.add(labels, since_seconds if state else 0.0)

    def budgets(self, shares: Mapping[str, Sequence[float]]) -> None:
        """Replace how much of the budgets is spent today, by kind (all, tenant, type)."""
        kinds: dict[tuple[str, ...], list[float]] = {
            (self._name(kind),): list(found) for kind, found in shares.items() if found
        }
        self._budget_share.replace({kind: max(found) for kind, found in kinds.items()})
        self._budgets_near.replace({kind: sum(share >= 0.8 for share in found) for kind, found in kinds.items()})
        self._budgets_spent.replace({kind: sum(share >= 1 for share in found) for kind, found in kinds.items()})

    def leading(self, is_leader: bool) -> None:
        """Say whether this process leads the dispatchers."""
        self._leader.put((), float(is_leader))

    def slots(self, pool: str, busy: int, total: int) -> None:
        """Say how many slots of this worker are taken."""
        labels = (self._name(pool),)
        self._slots.put(labels, total)
        self._slots_busy.put(labels, busy)

    def database_up(self, up: bool) -> None:
        """Say whether this process reaches the database."""
        self._database_up.put((), float(up))

    def broker_up(self, up: bool) -> None:
        """Say whether this process reaches the broker."""
        self._broker_up.put((), float(up))

    def pool_watched(self, pool: str, size: int, in_use: Callable[[], int]) -> None:
        """Have the use of a connection pool read at every scrape."""
        labels = (self._name(pool),)
        self._pool_size.put(labels, size)
        self._pool_used.watch(labels, in_use)

    def log_lines_watched(self, dropped: Callable[[], int]) -> None:
        """Have the number of dropped log lines read at every scrape."""
        self._log_lines.watch((), dropped)

    def build(self, version: str, role: str) -> None:
        """Say which version runs here, in which role."""
        self._build.replace({(self._name(version), self._name(role), python_version()): 1.0})

    # What model calls take.
    def llm_call(self, provider: str, model: str, type_: str, outcome: str, seconds: float | None) -> None:
        """Count one model call that ended; `seconds` is None where nobody saw its end."""
        call = (self._provider(provider), self._model(model), self._type(type_))
        self._llm_calls.add((*call, self._outcome(outcome)))
        if seconds is not None:
            self._llm_seconds.observe(call, [seconds])

    def llm_tokens(self, provider: str, model: str, type_: str, tokens: Mapping[str, int]) -> None:
        """Count the tokens of a call by kind; `cached` and `cache_write` are in `input`, `reasoning` in `output`."""
        call = (self._provider(provider), self._model(model), self._type(type_))
        for kind, number in tokens.items():
            self._llm_tokens.add((*call, self._token_kind(kind)), number)

    def llm_cost(self, provider: str, model: str, type_: str, cost_usd: float) -> None:
        """Add up the cost of a call whose price is known."""
        self._llm_cost.add((self._provider(provider), self._model(model), self._type(type_)), cost_usd)

    # What the process itself does.
    def http_request(self, route: str, method: str, status: int, seconds: float) -> None:
        """Count one answered request; `route` is the template (`/v1/tasks/{task_id}`), never the path."""
        route, method = self._route(route), self._method(method)
        self._requests.add((route, method, f"{status // 100}xx" if 100 <= status <= 599 else "other"))
        self._request_seconds.observe((route, method), [seconds])

    def refused(self, code: str, count: int = 1) -> None:
        """Count refusals by problem code."""
        self._refusals.add((self._reason(code),), count)

    def database_retried(self, reason: str, count: int = 1) -> None:
        """Count statements tried again after a lost connection, a deadlock or the like."""
        self._db_retries.add((self._name(reason),), count)

    def loop_lag(self, seconds: float) -> None:
        """Record how late the event loop ran a timer."""
        self._lag.observe((), [seconds])

    def batch_flushed(self, coalescer: str, size: int) -> None:
        """Record how many items one flush of a coalescer carried."""
        self._batches.observe((self._name(coalescer),), [size])

    def _lane(self, priority_class: str | None, type_: str | None) -> tuple[str, str]:
        return self._class(priority_class), self._type(type_)

    def _counter(self, name: str, documentation: str, *labels: str) -> CounterFamily:
        return self._register(CounterFamily(f"despacho_{name}", documentation, labels))

    def _gauge(self, name: str, documentation: str, *labels: str) -> GaugeFamily:
        return self._register(GaugeFamily(f"despacho_{name}", documentation, labels))

    def _histogram(self, name: str, documentation: str, bounds: Sequence[float], *labels: str) -> HistogramFamily:
        return self._register(HistogramFamily(f"despacho_{name}", documentation, labels, bounds))

    def _register(self, family: _Family) -> _Family:
        self.registry.register(family)
        return family
