"""Classes that people give: how long at most, why one ended, and where a task stands in line after a move."""

from datetime import datetime, timedelta
from enum import StrEnum

from app.domain.policy import Policy

OVERRIDE_REASON = "OVERRIDE"
"""The reason code of a task while a class that somebody gave it lasts."""
CLASS_GONE_REASON = "CLASS_GONE"
"""The reason code of a task whose class left the policy while it waited."""


class EndedWhy(StrEnum):
    """Why an override no longer lasts."""

    EXPIRED = "expired"
    REPLACED = "replaced"
    TASK_ENDED = "task_ended"


def expiry_problem(expires_at: datetime, now: datetime, policy: Policy) -> str | None:
    """Say what is wrong with the end of an override, or None."""
    if expires_at <= now:
        return "has passed already: it should lie ahead"
    most = policy.override_maximum_seconds
    if expires_at > now + timedelta(seconds=most):
        return f"is too far: the policy lets an override last {most:g} seconds at most"
    return None


def order_shift_seconds(policy: Policy, from_class: str, to_class: str, due_at: datetime | None) -> float:
    """Say by how much a task's place in line moves with its class.

    What has no time of its own is ordered by its class's target; what has one stays where it is.
    """
    if due_at is not None:
        return 0.0
    before, after = policy.by_name.get(from_class), policy.by_name.get(to_class)
    if before is None or after is None:
        return 0.0
    return after.start_within_seconds - before.start_within_seconds
