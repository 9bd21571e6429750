"""Every endpoint of the contract: what is asked, as a value, without anything being sent."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from app.client.clients import Nouns
from app.client.request import Request


class Recording:
    """A shell that carries nothing out and shows what it was given."""

    def run(self, work: Any) -> Any:
        """Return the request, or the first one of a flow."""
        return work if isinstance(work, Request) else next(work)

    stream = run


NOUNS: Any = Nouns(Recording())  # type: ignore[type-var]

CALLS: list[tuple[str, str, Callable[[], Request[Any]], object]] = [
    ("POST", "/v1/tasks", lambda: NOUNS.submit("a", 1, group="g"), {"type": "a", "input": 1, "group": "g"}),
    ("POST", "/v1/tasks", lambda: NOUNS.tasks.create({"type": "a"}), {"type": "a"}),
    ("GET", "/v1/tasks/t", lambda: NOUNS.tasks.get("t"), None),
    ("GET", "/v1/tasks", lambda: NOUNS.tasks.list(), None),
    ("GET", "/v1/tasks/t/attempts", lambda: NOUNS.tasks.attempts("t"), None),
    ("GET", "/v1/tasks/t/events", lambda: NOUNS.tasks.events("t"), None),
    ("GET", "/v1/tasks/t/effects", lambda: NOUNS.tasks.effects("t"), None),
    ("POST", "/v1/tasks/t/cancel", lambda: NOUNS.tasks.cancel("t", "why"), {"reason": "why"}),
    ("POST", "/v1/tasks/t/cancel", lambda: NOUNS.tasks.cancel("t"), None),
    ("POST", "/v1/tasks/t/retry-now", lambda: NOUNS.tasks.retry_now("t"), None),
    (
        "POST", "/v1/tasks/cancel", lambda: NOUNS.tasks.cancel_many("why", type=("a", "b"), group="g"),
        {"filter": {"type": ["a", "b"], "group": "g"}, "reason": "why"},
    ),
    (
        "POST", "/v1/tasks/cancel", lambda: NOUNS.tasks.cancel_many("why", everything=True),
        {"all": True, "reason": "why"},
    ),
    (
        "POST", "/v1/tasks/t/reclassify", lambda: NOUNS.tasks.reclassify("t", "critical", "why", expires_at="2126"),
        {"priority_class": "critical", "reason": "why", "expires_at": "2126"},
    ),
    ("GET", "/v1/task-types", lambda: NOUNS.task_types.list(), None),
    ("GET", "/v1/task-types/a", lambda: NOUNS.task_types.get("a"), None),
    ("GET", "/v1/dependencies", lambda: NOUNS.dependencies.list(), None),
    ("GET", "/v1/budgets", lambda: NOUNS.budgets.list(), None),
    ("GET", "/v1/inputs/i", lambda: NOUNS.inputs.read("i"), None),
    (
        "POST", "/v1/schedules", lambda: NOUNS.schedules.create("n", "0 7 * * *", {"type": "a"}),
        {"name": "n", "cron": "0 7 * * *", "timezone": "UTC", "misfire": "once", "task": {"type": "a"}},
    ),
    ("GET", "/v1/schedules", lambda: NOUNS.schedules.list(), None),
    ("DELETE", "/v1/schedules/s", lambda: NOUNS.schedules.delete("s"), None),
    ("GET", "/v1/dead-letters", lambda: NOUNS.dead_letters.list(), None),
    ("GET", "/v1/dead-letters/summary", lambda: NOUNS.dead_letters.summary(), None),
    ("GET", "/v1/dead-letters/sample", lambda: NOUNS.dead_letters.sample(3), None),
    ("GET", "/v1/dead-letters/d", lambda: NOUNS.dead_letters.get("d"), None),
    ("POST", "/v1/dead-letters/t/reprocess", lambda: NOUNS.dead_letters.reprocess("t", "why"), {"reason": "why"}),
    (
        "POST", "/v1/dead-letters/reprocess",
        lambda: NOUNS.dead_letters.reprocess_many("why", error_type="timeout", limit=5, rate_per_second=2.0),
        {"filter": {"error_type": "timeout"}, "limit": 5, "rate_per_second": 2.0, "reason": "why"},
    ),
    (
        "POST", "/v1/dead-letters/reprocess", lambda: NOUNS.dead_letters.reprocess_dry_run("why", everything=True),
        {"all": True, "reason": "why", "dry_run": True},
    ),
    (
        "POST", "/v1/dead-letters/purge", lambda: NOUNS.dead_letters.purge("why", type=["a"]),
        {"filter": {"type": ["a"]}, "reason": "why"},
    ),
    ("GET", "/v1/bulk-actions/b", lambda: NOUNS.bulk_actions.get("b"), None),
    ("POST", "/v1/bulk-actions/b/abort", lambda: NOUNS.bulk_actions.abort("b"), None),
    ("GET", "/v1/effects", lambda: NOUNS.effects.list(state="in_doubt"), None),
    (
        "POST", "/v1/effects/e/resolve", lambda: NOUNS.effects.resolve("e", "confirmed", "seen", external_id="x"),
        {"outcome": "confirmed", "reason": "seen", "external_id": "x"},
    ),
    ("GET", "/v1/approvals", lambda: NOUNS.approvals.list(), None),
    ("POST", "/v1/approvals/a/approve", lambda: NOUNS.approvals.approve("a", "fine"), {"comment": "fine"}),
    ("POST", "/v1/approvals/a/deny", lambda: NOUNS.approvals.deny("a"), {}),
    ("GET", "/v1/webhooks", lambda: NOUNS.webhooks.list(), None),
    ("POST", "/v1/webhooks/w/redeliver", lambda: NOUNS.webhooks.redeliver("w"), {}),
    ("POST", "/v1/webhook-secrets", lambda: NOUNS.webhook_secrets.create("acme"), {"tenant_id": "acme"}),
    ("POST", "/v1/pauses", lambda: NOUNS.pauses.create("type:a", "why"), {"on": "type:a", "reason": "why"}),
    ("GET", "/v1/pauses", lambda: NOUNS.pauses.list(), None),
    ("DELETE", "/v1/pauses/p", lambda: NOUNS.pauses.delete("p"), None),
    ("GET", "/v1/classes", lambda: NOUNS.classes.list(), None),
    ("GET", "/v1/workers", lambda: NOUNS.workers.list(), None),
    ("GET", "/v1/priority/policy", lambda: NOUNS.policy.get(), None),
    ("GET", "/v1/priority/policy", lambda: NOUNS.policy.history(), None),
    ("PUT", "/v1/priority/policy", lambda: NOUNS.policy.put("a = 1"), {"document": "a = 1"}),
    (
        "PUT", "/v1/priority/policy", lambda: NOUNS.policy.put("a = 1", dry_run=True),
        {"document": "a = 1", "dry_run": True},
    ),
    ("POST", "/v1/priority/evaluate", lambda: NOUNS.policy.explain("t"), {"task_id": "t"}),
    ("GET", "/v1/overrides", lambda: NOUNS.overrides.list(state="lasting"), None),
    ("POST", "/v1/priority/evaluate", lambda: NOUNS.policy.evaluate({"type": "a"}), {"type": "a"}),
    ("POST", "/v1/tenants", lambda: NOUNS.tenants.create("acme"), {"tenant_id": "acme", "name": "acme"}),
    ("POST", "/v1/keys", lambda: NOUNS.keys.create(None, role="admin"), {"tenant_id": None, "role": "admin"}),
    ("POST", "/v1/keys", lambda: NOUNS.keys.create("a", scopes="x"), {"tenant_id": "a", "scopes": ["x"]}),
    ("DELETE", "/v1/keys/k", lambda: NOUNS.keys.revoke("k"), None),
    ("GET", "/v1/audit", lambda: NOUNS.audit.list(), None),
    ("GET", "/healthz", lambda: NOUNS.health.alive(), None),
    ("GET", "/readyz", lambda: NOUNS.health.ready(), None),
    ("GET", "/metrics", lambda: NOUNS.health.metrics("token"), None),
]  # fmt: skip

# A second time does no more than the first, without any key.
_HARMLESS = ("/cancel", "/abort", "/reclassify", "/evaluate", "/priority/policy")


@pytest.mark.parametrize(("method", "path", "ask", "body"), CALLS, ids=[f"{call[0]} {call[1]}" for call in CALLS])
def test_the_contract_is_asked_as_it_is_written(
    method: str, path: str, ask: Callable[[], Request[Any]], body: object
) -> None:
    request = ask()

    assert (request.method, request.path) == (method, path)
    assert (None if request.body is None else json.loads(request.body)) == body


@pytest.mark.parametrize(("method", "path", "ask", "body"), CALLS, ids=[f"{call[0]} {call[1]}" for call in CALLS])
def test_only_what_may_be_repeated_says_so(
    method: str, path: str, ask: Callable[[], Request[Any]], body: object
) -> None:
    request = ask()

    harmless = path.endswith(_HARMLESS) and path != "/v1/tasks/cancel"
    dry = isinstance(body, dict) and bool(body.get("dry_run"))
    assert request.repeatable == (method != "POST" or "Idempotency-Key" in request.headers or harmless or dry)


def test_a_payload_is_in_no_repr_of_a_request() -> None:
    assert "hidden-word" not in repr(NOUNS.submit("a", "hidden-word", idempotency_key="hidden-word"))
