"""What operators look at and touch: pauses, classes, workers, task types, health."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Generic

import msgspec

from app.client.bound import Bound, S, call, streaming
from app.client.request import Json, Moment, Request, Stream, delete, get, get_items, given, pages, part, post


class Pause(msgspec.Struct, frozen=True, kw_only=True):
    """A pause that lasts; `until` None means until it is ended."""

    pause_id: str
    on: str
    reason: str | None = None
    until: datetime | None = None
    created_by: str | None = None
    created_at: datetime | None = None


class PriorityClass(msgspec.Struct, frozen=True, kw_only=True):
    """How a priority class stands. Seats and consumers are None for a tenant's key, which sees its own tasks only."""

    name: str
    rank: int | None = None
    waiting: int = 0
    running: int = 0
    released: int | None = None
    nominal: int | None = None
    maximum: int | None = None
    lent: int | None = None
    borrowed: int | None = None
    oldest_waiting_seconds: float | None = None
    wait_p50_seconds: float | None = None
    wait_p95_seconds: float | None = None
    wait_p99_seconds: float | None = None
    started_within_target: float | None = None
    start_within_seconds: float | None = None
    consumers: int | None = None
    measured_at: datetime | None = None


class Worker(msgspec.Struct, frozen=True, kw_only=True):
    """A live worker."""

    worker_id: str
    pool: str | None = None
    classes: tuple[str, ...] = ()
    task_types: tuple[str, ...] = ()
    slots: int | None = None
    draining: bool = False
    host: str | None = None
    pid: int | None = None
    version: str | None = None
    started_at: datetime | None = None
    heartbeat_at: datetime | None = None
    current_tasks: tuple[str, ...] = ()


class RetryPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """How often and how soon a type is tried again."""

    max_attempts: int | None = None
    backoff_base_seconds: float | None = None
    backoff_cap_seconds: float | None = None


class TaskType(msgspec.Struct, frozen=True, kw_only=True):
    """What an installation can do, and what it takes for it."""

    name: str
    description: str = ""
    input_schema: Mapping[str, Json] = {}
    result_schema: Mapping[str, Json] = {}
    retry_policy: RetryPolicy = RetryPolicy()
    timeout_seconds: float | None = None
    preemptible: bool = False
    effects: tuple[str, ...] = ()
    depends_on: tuple[str, ...] = ()
    mcp: dict[str, tuple[str, ...]] = msgspec.field(default_factory=dict)
    cost_class: str | None = None


class Readiness(msgspec.Struct, frozen=True, kw_only=True):
    """`ready`, `degraded` (work is accepted, something else is missing) or `unavailable`, with what was looked at."""

    status: str
    checks: Mapping[str, Json] = {}


class Pauses(Bound[S], Generic[S]):
    """`client.pauses`."""

    @call
    def create(self, on: str, reason: str, *, until: Moment | None = None) -> Request[Pause]:
        """Release nothing of `class:C`, `type:T`, `tenant:T` or `dependency:D` until it is ended; what runs goes on."""
        return post("/v1/pauses", Pause, given(on=on, reason=reason, until=until))

    @streaming
    def list(self, *, at_most: int | None = None) -> Stream[Pause]:
        """Iterate over the pauses in force, newest first."""
        return pages("/v1/pauses", Pause, at_most=at_most)

    @call
    def delete(self, pause_id: str) -> Request[None]:
        """End a pause."""
        return delete(f"/v1/pauses/{part(pause_id)}")


class Classes(Bound[S], Generic[S]):
    """`client.classes`."""

    @call
    def list(self) -> Request[Sequence[PriorityClass]]:
        """Tell how each priority class stands, the first to go first."""
        return get_items("/v1/classes", PriorityClass)


class Workers(Bound[S], Generic[S]):
    """`client.workers`."""

    @call
    def list(self) -> Request[Sequence[Worker]]:
        """List the live workers."""
        return get_items("/v1/workers", Worker)


class TaskTypes(Bound[S], Generic[S]):
    """`client.task_types`."""

    @call
    def list(self) -> Request[Sequence[TaskType]]:
        """List the task types of the installation, by name."""
        return get_items("/v1/task-types", TaskType)

    @call
    def get(self, name: str) -> Request[TaskType]:
        """Read one task type."""
        return get(f"/v1/task-types/{part(name)}", TaskType)


class Health(Bound[S], Generic[S]):
    """`client.health`; needs no key."""

    @call
    def alive(self) -> Request[Json]:
        """Have the process answer. Raises Unreachable when it does not."""
        return get("/healthz", object)

    @call
    def ready(self) -> Request[Readiness]:
        """Tell how the service stands; `unavailable` is an answer too."""
        return Request("GET", "/readyz", Readiness, answers=frozenset({503}))

    @call
    def metrics(self, token: str | None = None) -> Request[str]:
        """Read the metrics as Prometheus does; `token` where the setting METRICS_TOKEN guards them."""
        headers = {"Accept": "text/plain", **({"Authorization": f"Bearer {token}"} if token else {})}
        return Request("GET", "/metrics", str, headers=headers)
