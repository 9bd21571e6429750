"""What an event says, and what follows a try to deliver it."""

import json
from datetime import UTC, datetime

import pytest

from app.domain.retry import RetryPolicy
from app.domain.webhooks import GONE, Ended, Next, Try, WebhookState, body_of, decide, error_type_of

POLICY = RetryPolicy(5.0, 14_400.0, 4.0)


@pytest.mark.parametrize("status", [200, 201, 202, 204, 299])
def test_any_2xx_is_delivered(status: int) -> None:
    assert decide(Try(status), 1, 8, POLICY, 0.5) == Next(WebhookState.DELIVERED)


@pytest.mark.parametrize("status", [100, 301, 307, 400, 401, 404, 429, 500, 503, 599])
def test_everything_else_is_tried_again_until_the_tries_are_spent(status: int) -> None:
    states = [decide(Try(status), number, 8, POLICY, 0.5).state for number in range(1, 10)]

    assert states == [WebhookState.WAITING] * 7 + [WebhookState.FAILED] * 2


def test_gone_is_believed_at_once() -> None:
    assert decide(Try(GONE), 1, 8, POLICY, 0.0).state is WebhookState.FAILED


@pytest.mark.parametrize("error_type", ["timeout", "connection", "forbidden_address"])
def test_what_was_not_answered_is_tried_again(error_type: str) -> None:
    assert decide(Try(None, error_type), 1, 8, POLICY, 0.0).state is WebhookState.WAITING
    assert error_type_of(Try(None, error_type)) == error_type


def test_pauses_grow_are_drawn_and_stay_within_hours() -> None:
    longest = [decide(Try(500), number, 9, POLICY, 0.999).after_seconds for number in range(1, 8)]
    shortest = [decide(Try(500), number, 9, POLICY, 0.0).after_seconds for number in range(1, 8)]

    assert longest == sorted(longest) and longest[-1] <= 14_400
    assert set(shortest) == {5.0}
    assert 3600 < sum(longest) / 2 < 12 * 3600


def test_retry_after_is_never_undercut() -> None:
    assert 600 <= decide(Try(503, retry_after_seconds=600.0), 1, 8, POLICY, 0.0).after_seconds < 700


def test_an_event_says_what_ended_how_and_where_to_look() -> None:
    at = datetime(2026, 7, 1, 12, tzinfo=UTC)
    ended = Ended(
        "task_1", "task.dead_lettered", "acme", "echo", "finance", "crm:1", None, 5, at, at, "timeout", None, True,
        None, "/v1/tasks/x",
    )  # fmt: skip

    told = json.loads(body_of(ended))

    assert (told["type"], told["timestamp"]) == ("task.dead_lettered", "2026-07-01T12:00:00Z")
    assert told["data"]["status"] == "dead_lettered"
    assert told["data"]["source"] == {"ref": "crm:1", "version": None}
    assert told["data"]["error"] == {"type": "timeout", "message": "", "retryable": True}
    assert told["data"]["links"] == {"task": "/v1/tasks/x"}
    assert "result" not in told["data"]
