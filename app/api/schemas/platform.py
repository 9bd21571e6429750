"""Task types, classes, workers and health as they go out."""

from datetime import datetime
from typing import Literal

import msgspec

from app.api.schemas.common import Json


class RetryPolicyAnswer(msgspec.Struct, frozen=True):
    """How often and how soon a type is tried again: exponential with full jitter, capped."""

    max_attempts: int
    backoff_base_seconds: float
    backoff_cap_seconds: float


class TaskTypeAnswer(msgspec.Struct, frozen=True):
    """What this installation can do, and what it takes for it.

    `effects` are the only effect types that it may have (empty: none declared), `destructive` those that need an
    approval.
    """

    name: str
    description: str
    input_schema: dict[str, Json]
    result_schema: dict[str, Json]
    retry_policy: RetryPolicyAnswer
    timeout_seconds: float
    preemptible: bool
    effects: list[str]
    destructive: list[str]
    depends_on: list[str]
    mcp: dict[str, list[str]]
    cost_class: str
    approval_expires_seconds: float | None
    """None: as the settings say."""


class TaskTypePage(msgspec.Struct, frozen=True):
    """The task types, by name."""

    items: list[TaskTypeAnswer]
    next_page_token: str | None


class ClassAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """How a priority class stands. Seats and consumers are null for a tenant's key, which sees its own tasks only."""

    name: str
    rank: int
    waiting: int
    running: int
    released: int | None
    nominal: int | None
    maximum: int | None
    lent: int | None
    borrowed: int | None
    oldest_waiting_seconds: float | None
    wait_p50_seconds: float | None
    wait_p95_seconds: float | None
    wait_p99_seconds: float | None
    started_within_target: float | None
    start_within_seconds: float
    consumers: int | None
    measured_at: datetime | None


class ClassPage(msgspec.Struct, frozen=True):
    """The priority classes, the first to go first."""

    items: list[ClassAnswer]
    next_page_token: str | None


class DependencyAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A dependency. In the words of circuit breakers, `closed` lets calls through and `open` none.

    `ceiling` is how many calls at once the breaker allows for now; limits are null where the policy sets none.
    """

    name: str
    state: Literal["closed", "half_open", "open"]
    since: datetime | None
    closed_until: datetime | None
    openings: int
    ceiling: int | None
    in_use: int
    waiting: int
    workers: int
    concurrency: int | None
    requests_per_minute: int | None
    tokens_per_minute: int | None
    reserve: dict[str, float]


class DependencyPage(msgspec.Struct, frozen=True):
    """The dependencies, by name."""

    items: list[DependencyAnswer]
    next_page_token: str | None


class WorkerAnswer(msgspec.Struct, frozen=True):
    """A live worker."""

    worker_id: str
    pool: str
    classes: list[str]
    task_types: list[str]
    slots: int
    draining: bool
    host: str
    pid: int
    version: str
    started_at: datetime
    heartbeat_at: datetime
    current_tasks: list[str]


class WorkerPage(msgspec.Struct, frozen=True):
    """The live workers."""

    items: list[WorkerAnswer]
    next_page_token: str | None


class Alive(msgspec.Struct, frozen=True):
    """The process answers."""

    status: Literal["ok"]


class PolicyCheck(msgspec.Struct, frozen=True):
    """The version that rules in this process, and a newer one that this release cannot read, if there is one."""

    in_force: str
    refused: str | None


class Checks(msgspec.Struct, frozen=True):
    """What readiness looked at."""

    database: Literal["ok", "unavailable"]
    broker: Literal["ok", "unavailable"]
    dispatcher: Literal["ok", "unavailable"]
    consumers: dict[str, int]
    policy: PolicyCheck


class Readiness(msgspec.Struct, frozen=True):
    """Ready while the database answers; degraded while work is accepted and something else is missing."""

    status: Literal["ready", "degraded", "unavailable"]
    checks: Checks
