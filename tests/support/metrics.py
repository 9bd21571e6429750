"""Metrics in which everything has happened once, and what a scrape of them holds."""

import inspect

from prometheus_client.parser import text_string_to_metric_families

from app.telemetry.attempts import EndedAttempt
from app.telemetry.metrics import ClassFigures, Metrics


def an_attempt(
    *,
    task_id: str = "task_01JZ8W4W9GZK4K2GZ7Q2ABCD12",
    attempt: int = 1,
    tenant_id: str = "acme",
    priority_class: str = "common",
    type_: str = "classify_document",
    status: str = "done",
    outcome: str = "done",
    queue_seconds: float = 0.02,
    run_seconds: float = 0.3,
    attempts_spent: int = 1,
    error_type: str | None = None,
    llm_provider: str | None = None,
    trace_id: str | None = None,
) -> EndedAttempt:
    return EndedAttempt(
        task_id=task_id,
        attempt=attempt,
        worker_id="worker-07",
        tenant_id=tenant_id,
        priority_class=priority_class,
        type=type_,
        status=status,
        outcome=outcome,
        queue_seconds=queue_seconds,
        run_seconds=run_seconds,
        attempts_spent=attempts_spent,
        error_type=error_type,
        llm_provider=llm_provider,
        trace_id=trace_id,
    )


def some_figures(
    priority_class: str = "common", *, waiting: int = 2, running: int = 1, consumers: int = 1
) -> ClassFigures:
    return ClassFigures(
        priority_class=priority_class,
        waiting=waiting,
        delayed=1,
        released=0,
        running=running,
        seats_nominal=4,
        seats_maximum=8,
        seats_lent=0,
        seats_borrowed=0,
        oldest_waiting_seconds=3.5,
        consumers=consumers,
        start_within_seconds=60.0,
    )


def everything_happens(metrics: Metrics) -> None:
    """Call every method of `Metrics`, so that every family has a sample."""
    failed = {"status": "failed_retryable", "outcome": "failed", "error_type": "timeout"}
    dead = {"status": "dead_lettered", "outcome": "failed", "error_type": "invalid_payload"}
    metrics.reserve(classes=["common"], types=["classify_document"], error_types=["timeout"])
    metrics.tasks_submitted("common", "classify_document", 3)
    metrics.tasks_classified("common", "DEFAULT", 3)
    metrics.tasks_finished("common", "classify_document", "cancelled")
    metrics.tasks_expired("common", "classify_document")
    metrics.dead_lettered(None, None, "malformed_message")
    metrics.dead_letters_reprocessed("common", "classify_document")
    metrics.cancellations_requested("common")
    metrics.attempts_ended([an_attempt(), an_attempt(**failed), an_attempt(**dead)])  # type: ignore[arg-type]
    metrics.release_round(0.002, {"common": 3})
    metrics.published({"confirmed": 3})
    metrics.republished("common")
    metrics.deliveries_stale("common")
    metrics.handed_back("common")
    metrics.leases_lost("common")
    metrics.workers_lost("common")
    metrics.class_figures([some_figures()])
    metrics.dead_letters_open({"invalid_payload": 1})
    metrics.approval_asked("common")
    metrics.approvals_decided("common", "approved")
    metrics.approvals_waiting({"common": (2, 1, 60.0)})
    metrics.override_made("common")
    metrics.overrides_lasting({"common": 1})
    metrics.policy_refused(True)
    metrics.effects("create_ticket", "reserved")
    metrics.effects_standing({"create_ticket": 1}, 0)
    metrics.dependency_called("llm", "ok")
    metrics.dependency_in_use("llm", 1)
    metrics.dependency_states({"llm": 2}, since_seconds=1.0)
    metrics.budgets({"tenant": [0.9], "all": [0.2]})
    metrics.webhook_tried("common", "retried", 0.2)
    metrics.webhook_delivered("common", 0.4)
    metrics.webhooks_waiting({"common": 1})
    metrics.leading(True)
    metrics.slots("default", busy=1, total=16)
    metrics.database_up(True)
    metrics.broker_up(True)
    metrics.pool_watched("hot", 3, lambda: 1)
    metrics.log_lines_watched(lambda: 0)
    metrics.build("0.1.0", "worker")
    metrics.http_request("/v1/tasks", "POST", 202, 0.004)
    metrics.refused("quota_exceeded")
    metrics.database_retried("deadlock")
    metrics.loop_lag(0.001)
    metrics.batch_flushed("submit", 40)
    metrics.llm_call("openai", "gpt-4o-mini", "classify_document", "answered", 1.5)
    metrics.llm_tokens("openai", "gpt-4o-mini", "classify_document", {"input": 900, "output": 34})
    metrics.llm_cost("openai", "gpt-4o-mini", "classify_document", 0.0012)
    metrics.render()


def methods_of_metrics() -> set[str]:
    """Name every public method."""
    return {name for name, _ in inspect.getmembers(Metrics, inspect.isfunction) if not name.startswith("_")}


def samples(metrics: Metrics) -> dict[str, dict[frozenset[tuple[str, str]], float]]:
    """Return every sample of a scrape by name and labels; raises where the page does not parse."""
    found: dict[str, dict[frozenset[tuple[str, str]], float]] = {}
    for family in text_string_to_metric_families(metrics.render().decode()):
        for sample in family.samples:
            found.setdefault(sample.name, {})[frozenset(sample.labels.items())] = sample.value
    return found


def value(metrics: Metrics, name: str, **labels: str) -> float | None:
    """Return one sample."""
    return samples(metrics).get(name, {}).get(frozenset(labels.items()))
