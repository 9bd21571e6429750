"""The tables. What changes often carries no index on what changes; what waits and what runs live in small tables.

    tasks      one row per task: the truth. Its status changes are HOT updates: no index covers what they change.
    ready      what waits for its turn; a row lives from submit (or due) to release.
    delayed    what waits for a time: scheduled, snoozed, or failed and not due yet.
    flights    what was released: first unclaimed, then claimed under a fence and a lease; gone when settled.
    lanes      (class, tenant, type, group) combinations that have rows in `ready`, with their tenant's virtual time.
    attempts   one row per ended attempt, written at settlement; the running one is the flight.
    steps      what a handler's steps returned, kept for its next run; gone with the task.
    checkpoints  the last state that a handler saved of itself; gone with the task.
    events     the irregular part of the history; the regular part is derived from tasks, attempts and release_rounds.

Times are the database's `clock_timestamp()`; ids are text in the "C" collation, time-ordered, minted by the server.
"""

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import ARRAY, BYTEA

metadata = sa.MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)

Name = sa.Text(collation="C")
When = sa.DateTime(timezone=True)
fence_seq = sa.Sequence("fence_seq", data_type=sa.BigInteger, metadata=metadata)


def _name(column: str, *args: sa.schema.SchemaItem, nullable: bool = False, **kwargs: object) -> sa.Column[str]:
    return sa.Column(column, Name, *args, nullable=nullable, **kwargs)  # type: ignore[arg-type]


def _when(column: str, nullable: bool = True) -> sa.Column[object]:
    return sa.Column(column, When, nullable=nullable)


tenants = sa.Table(
    "tenants",
    metadata,
    _name("tenant_id", primary_key=True),
    sa.Column("name", sa.Text, nullable=False),
    _name("service_class", server_default="standard"),
    sa.Column("weight", sa.Double, nullable=False, server_default="1"),
    sa.Column("submit_rate_per_second", sa.Double),
    sa.Column("submit_burst", sa.Integer),
    sa.Column("max_open_tasks", sa.Integer),
    _when("created_at", nullable=False),
)

api_keys = sa.Table(
    "api_keys",
    metadata,
    _name("key_id", primary_key=True),
    sa.Column("key_sha256", BYTEA, nullable=False, unique=True),
    _name("tenant_id", sa.ForeignKey("tenants.tenant_id"), nullable=True),
    _name("role", nullable=True),
    sa.Column("scopes", ARRAY(sa.Text), nullable=False),
    sa.Column("subject", sa.Text, nullable=False),
    _when("created_at", nullable=False),
    _when("expires_at"),
    _when("revoked_at"),
)

policies = sa.Table(
    "policies",
    metadata,
    sa.Column("position", sa.BigInteger, sa.Identity(), primary_key=True),
    _name("version", unique=True),
    sa.Column("document", sa.Text, nullable=False),
    sa.Column("owner", sa.Text, nullable=False),
    sa.Column("author", sa.Text, nullable=False),
    _when("created_at", nullable=False),
)

tasks = sa.Table(
    "tasks",
    metadata,
    _name("task_id", primary_key=True),
    _name("tenant_id"),
    _name("type"),
    _name("task_group", nullable=True),
    _name("status"),
    _name("priority_class"),
    _name("reason_code"),
    _name("policy_version"),
    sa.Column("facts", sa.Text, nullable=False),
    _name("requested_class", nullable=True),
    sa.Column("source_ref", sa.Text),
    sa.Column("source_version", sa.Text),
    sa.Column("input", sa.Text),
    _name("input_ref", nullable=True),
    _name("cost_class"),
    sa.Column("preemptible", sa.Boolean, nullable=False),
    sa.Column("attempts", sa.Integer, nullable=False, server_default="0"),
    sa.Column("max_attempts", sa.Integer, nullable=False),
    sa.Column("timeout_seconds", sa.Double, nullable=False),
    sa.Column("crashes", sa.Integer, nullable=False, server_default="0"),
    _when("next_attempt_at"),
    _when("submitted_at", nullable=False),
    _when("not_before"),
    _when("due_at"),
    _when("valid_until"),
    _when("started_at"),
    _when("finished_at"),
    _when("updated_at", nullable=False),
    _when("cancel_requested_at"),
    sa.Column("progress", sa.Text),
    sa.Column("result", sa.Text),
    _name("error_type", nullable=True),
    sa.Column("error_message", sa.Text),
    sa.Column("error_retryable", sa.Boolean),
    sa.Column("metadata", sa.Text),
    sa.Column("submitted_by", sa.Text, nullable=False),
    sa.Column("traceparent", sa.Text),
    sa.Column("tracestate", sa.Text),
    sa.Index("ix_tasks_tenant_id_task_id", "tenant_id", "task_id"),
    sa.Index("ix_tasks_input_ref", "input_ref", postgresql_where=sa.text("input_ref IS NOT NULL")),
    postgresql_with={"fillfactor": "60", "autovacuum_vacuum_scale_factor": "0.05"},
)


def _place() -> list[sa.Column[object]]:
    """Columns that travel with a task through ready, delayed and flights: all that release and claim need to know."""
    columns: list[sa.Column[object]] = [
        _name("task_id", primary_key=True),  # type: ignore[list-item]
        _name("priority_class"),  # type: ignore[list-item]
        _name("tenant_id"),  # type: ignore[list-item]
        _name("task_type"),  # type: ignore[list-item]
        _name("task_group"),  # type: ignore[list-item]
        sa.Column("order_at", When, nullable=False),
        sa.Column("queued_at", When, nullable=False),
        sa.Column("valid_until", When),
        sa.Column("cost", sa.REAL, nullable=False),
        sa.Column("timeout_seconds", sa.REAL, nullable=False),
        sa.Column("preemptible", sa.Boolean, nullable=False),
        sa.Column("attempt", sa.Integer, nullable=False),
        sa.Column("dispatch", sa.Integer, nullable=False),
        sa.Column("submitted_at", When, nullable=False),
        sa.Column("traceparent", sa.Text),
        sa.Column("tracestate", sa.Text),
    ]
    return columns


_BUSY = {
    "autovacuum_vacuum_scale_factor": "0.02",
    "autovacuum_vacuum_threshold": "5000",
    "autovacuum_vacuum_cost_delay": "0",
}

lanes = sa.Table(
    "lanes",
    metadata,
    sa.Column("lane_id", sa.BigInteger, sa.Identity(), primary_key=True),
    _name("priority_class"),
    _name("tenant_id"),
    _name("task_type"),
    _name("task_group"),
    sa.Column("virtual_time", sa.Double, nullable=False),
    sa.UniqueConstraint("priority_class", "tenant_id", "task_type", "task_group"),
    sa.Index("ix_lanes_turn", "priority_class", "virtual_time", "tenant_id"),
    sa.Index("ix_lanes_tenant_id", "tenant_id"),
    postgresql_with={"fillfactor": "50", **_BUSY},
)

ready = sa.Table(
    "ready",
    metadata,
    *_place(),
    sa.Column("lane_id", sa.BigInteger, nullable=False),
    sa.Index("ix_ready_lane", "lane_id", "order_at", "task_id"),
    sa.Index("ix_ready_valid_until", "valid_until", postgresql_where=sa.text("valid_until IS NOT NULL")),
    postgresql_with=_BUSY,
)

delayed = sa.Table(
    "delayed",
    metadata,
    *_place(),
    sa.Column("due_at", When, nullable=False),
    sa.Column("why", sa.Text, nullable=False),
    sa.Index("ix_delayed_due_at", "due_at", "task_id"),
    sa.Index("ix_delayed_tenant_id", "tenant_id"),
    sa.Index("ix_delayed_valid_until", "valid_until", postgresql_where=sa.text("valid_until IS NOT NULL")),
    postgresql_with=_BUSY,
)

flights = sa.Table(
    "flights",
    metadata,
    *_place(),
    sa.Column("released_at", When, nullable=False),
    sa.Column("round_id", sa.BigInteger, nullable=False),
    sa.Column("published_at", When),
    sa.Column("fence", sa.BigInteger),
    _name("worker_id", nullable=True),
    _when("claimed_at"),
    _when("lease_until"),
    _when("cancel_requested_at"),
    _when("woken_at"),
    postgresql_with={"fillfactor": "50", **_BUSY},
)

attempts = sa.Table(
    "attempts",
    metadata,
    _name("task_id", primary_key=True),
    sa.Column("fence", sa.BigInteger, primary_key=True),
    sa.Column("attempt", sa.Integer, nullable=False),
    _name("outcome"),
    sa.Column("spent", sa.Boolean, nullable=False),
    _name("worker_id"),
    _when("queued_at", nullable=False),
    _when("released_at", nullable=False),
    _when("started_at", nullable=False),
    _when("finished_at", nullable=False),
    sa.Column("round_id", sa.BigInteger, nullable=False),
    _name("error_type", nullable=True),
    sa.Column("error_message", sa.Text),
    sa.Column("error_retryable", sa.Boolean),
    sa.Column("retry_after_seconds", sa.Double),
    # A summary of block ranges: next to nothing per insert, and enough to find what ended lately in a table that grows
    # at its end.
    sa.Index(
        "ix_attempts_finished_at", "finished_at", postgresql_using="brin", postgresql_with={"pages_per_range": "32"}
    ),
)

steps = sa.Table(
    "steps",
    metadata,
    _name("task_id", primary_key=True),
    _name("name", primary_key=True),
    sa.Column("fingerprint", BYTEA, primary_key=True),
    sa.Column("position", sa.Integer, nullable=False),
    sa.Column("fence", sa.BigInteger, nullable=False),
    sa.Column("size_bytes", sa.Integer, nullable=False),
    sa.Column("value", sa.Text, nullable=False),
    _when("stored_at", nullable=False),
)

checkpoints = sa.Table(
    "checkpoints",
    metadata,
    _name("task_id", primary_key=True),
    sa.Column("fence", sa.BigInteger, nullable=False),
    sa.Column("size_bytes", sa.Integer, nullable=False),
    sa.Column("state", sa.Text, nullable=False),
    _when("stored_at", nullable=False),
)

release_rounds = sa.Table(
    "release_rounds",
    metadata,
    sa.Column("round_id", sa.BigInteger, sa.Identity(), primary_key=True),
    _when("at", nullable=False),
    sa.Column("epoch", sa.BigInteger, nullable=False),
    _name("policy_version"),
    sa.Column("figures", sa.Text, nullable=False),
    sa.Index("ix_release_rounds_at", "at"),
)

events = sa.Table(
    "events",
    metadata,
    sa.Column("event_id", sa.BigInteger, sa.Identity(), primary_key=True),
    _name("task_id"),
    _when("at", nullable=False),
    _name("kind"),
    _name("reason", nullable=True),
    sa.Column("actor", sa.Text),
    sa.Column("detail", sa.Text),
    sa.Index("ix_events_task_id_event_id", "task_id", "event_id"),
)

dead_letters = sa.Table(
    "dead_letters",
    metadata,
    _name("dead_letter_id", primary_key=True),
    _name("task_id", nullable=True, unique=True),
    _name("tenant_id", nullable=True),
    _name("type", nullable=True),
    _name("priority_class", nullable=True),
    _name("task_group", nullable=True),
    _when("failed_at", nullable=False),
    _name("error_type"),
    sa.Column("error_message", sa.Text, nullable=False),
    sa.Column("attempts", sa.Integer, nullable=False),
    _name("worker_id", nullable=True),
    sa.Column("traceparent", sa.Text),
    _name("body_sha256", nullable=True),
    sa.Index("ix_dead_letters_tenant_id_dead_letter_id", "tenant_id", "dead_letter_id"),
    sa.Index("ix_dead_letters_error_type_failed_at", "error_type", "failed_at"),
)

idempotency_keys = sa.Table(
    "idempotency_keys",
    metadata,
    _name("tenant_id", primary_key=True),
    _name("endpoint", primary_key=True),
    _name("key", primary_key=True),
    sa.Column("fingerprint", BYTEA, nullable=False),
    _name("task_id"),
    _when("created_at", nullable=False),
    sa.Index("ix_idempotency_keys_created_at", "created_at"),
)

inputs = sa.Table(
    "inputs",
    metadata,
    _name("input_ref", primary_key=True),
    _name("tenant_id"),
    _name("sha256"),
    sa.Column("size_bytes", sa.BigInteger, nullable=False),
    sa.Column("content_type", sa.Text, nullable=False),
    sa.Column("content", BYTEA, nullable=False),
    _when("created_at", nullable=False),
    _when("used_at", nullable=False),
    sa.UniqueConstraint("tenant_id", "sha256", "content_type"),
    sa.Index("ix_inputs_used_at", "used_at"),
)

schedules = sa.Table(
    "schedules",
    metadata,
    _name("schedule_id", primary_key=True),
    _name("tenant_id"),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("cron", sa.Text, nullable=False),
    sa.Column("timezone", sa.Text, nullable=False),
    sa.Column("task", sa.Text, nullable=False),
    _name("misfire"),
    _when("next_fire_at"),
    _when("last_fired_at"),
    _name("last_task_id", nullable=True),
    sa.Column("last_error", sa.Text),
    sa.Column("created_by", sa.Text, nullable=False),
    _when("created_at", nullable=False),
    sa.UniqueConstraint("tenant_id", "name"),
    sa.Index("ix_schedules_next_fire_at", "next_fire_at"),
)

pauses = sa.Table(
    "pauses",
    metadata,
    _name("pause_id", primary_key=True),
    _name("kind"),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("reason", sa.Text, nullable=False),
    _when("until"),
    sa.Column("created_by", sa.Text, nullable=False),
    _when("created_at", nullable=False),
)

bulk_actions = sa.Table(
    "bulk_actions",
    metadata,
    _name("bulk_action_id", primary_key=True),
    _name("tenant_id", nullable=True),
    _name("kind"),
    sa.Column("filter", sa.Text, nullable=False),
    sa.Column("reason", sa.Text, nullable=False),
    sa.Column("actor", sa.Text, nullable=False),
    _name("state"),
    sa.Column("matched", sa.BigInteger, nullable=False),
    sa.Column("done", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("failed", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("errors", sa.Text, nullable=False, server_default="[]"),
    sa.Column("item_limit", sa.BigInteger),
    sa.Column("rate_per_second", sa.Double),
    _name("cursor", nullable=True),
    _name("upper_bound", nullable=True),
    _when("created_at", nullable=False),
    _when("updated_at", nullable=False),
    _when("next_step_at"),
)

audit = sa.Table(
    "audit",
    metadata,
    _name("audit_id", primary_key=True),
    _when("at", nullable=False),
    _name("key_id", nullable=True),
    sa.Column("subject", sa.Text, nullable=False),
    _name("tenant_id", nullable=True),
    _name("action"),
    sa.Column("target", sa.Text),
    sa.Column("reason", sa.Text),
    sa.Column("detail", sa.Text),
    sa.Index("ix_audit_tenant_id_audit_id", "tenant_id", "audit_id"),
)

workers = sa.Table(
    "workers",
    metadata,
    _name("worker_id", primary_key=True),
    _name("pool"),
    sa.Column("classes", ARRAY(sa.Text), nullable=False),
    sa.Column("task_types", ARRAY(sa.Text), nullable=False),
    sa.Column("slots", sa.Integer, nullable=False),
    sa.Column("draining", sa.Boolean, nullable=False),
    sa.Column("host", sa.Text, nullable=False),
    sa.Column("pid", sa.Integer, nullable=False),
    sa.Column("version", sa.Text, nullable=False),
    _when("started_at", nullable=False),
    _when("heartbeat_at", nullable=False),
    _when("alive_until", nullable=False),
)

callbacks = sa.Table(
    "callbacks",
    metadata,
    sa.Column("token_sha256", BYTEA, primary_key=True),
    _name("task_id"),
    sa.Column("attempt", sa.Integer, nullable=False),
    _when("issued_at", nullable=False),
    _when("expires_at"),
    _when("called_at"),
    _when("read_at"),
    _when("closed_at"),
    sa.Column("result", sa.Text),
    _name("error_type", nullable=True),
    sa.Column("error_message", sa.Text),
    sa.Column("error_retryable", sa.Boolean),
    sa.Index("ix_callbacks_task_id", "task_id"),
)

tallies = sa.Table(
    "tallies",
    metadata,
    _name("worker_id", primary_key=True),
    _name("priority_class", primary_key=True),
    sa.Column("departed", sa.BigInteger, nullable=False),
    sa.Column("runs", sa.BigInteger, nullable=False),
    sa.Column("busy_seconds", sa.Double, nullable=False),
    postgresql_with={"fillfactor": "30", **_BUSY},
)

leaders = sa.Table(
    "leaders",
    metadata,
    _name("role", primary_key=True),
    sa.Column("epoch", sa.BigInteger, nullable=False),
    _name("holder"),
    _when("lease_until", nullable=False),
)

class_clocks = sa.Table(
    "class_clocks",
    metadata,
    _name("priority_class", primary_key=True),
    sa.Column("virtual_time", sa.Double, nullable=False),
)

class_figures = sa.Table(
    "class_figures",
    metadata,
    _name("priority_class", primary_key=True),
    _when("at", nullable=False),
    sa.Column("figures", sa.Text, nullable=False),
)
