"""The tables. What changes often carries no index on what changes; what waits and what runs live in small tables.

    tasks      one row per task: the truth. Its status changes are HOT updates: no index covers what they change.
    ready      what waits for its turn; a row lives from submit (or due) to release.
    delayed    what waits for a time: scheduled, snoozed, or failed and not due yet.
    flights    what was released: first unclaimed, then claimed under a fence and a lease; gone when settled.
    suspended  what waits for a person: the place of a task in `awaiting_approval`.
    approvals  what handlers asked people for, and what was decided; gone with the task.
    lanes      (class, tenant, type, group) combinations that have rows in `ready`, with their tenant's virtual time.
    overrides  classes that people gave tasks, each with its reason and end; gone with the task.
    attempts   one row per ended attempt, written at settlement; the running one is the flight.
    steps      what a handler's steps returned, kept for its next run; gone with the task.
    checkpoints  the last state that a handler saved of itself; gone with the task.
    effects    what tasks did outside, one row per tenant and key; outlives its task.
    effect_calls  calls whose outcome is not known yet; a row lives from reservation to confirmation.
    llm_calls  one row per model call: its intent, what it cost, and the answer that a later run gets back unpaid.
    events     the irregular part of the history; the regular part is derived from tasks, attempts and release_rounds.
    webhooks   one row per end of a task that named a callback_url, written by the trigger `task_ended` on `tasks` in
               the transaction of the end, whichever statement made it.

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
    sa.Column("budget_cost_usd_per_day", sa.Numeric),
    sa.Column("budget_tokens_per_day", sa.BigInteger),
    sa.Column("budget_retry_margin", sa.Double),
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
    sa.Column("callback_url", sa.Text),
    sa.Index("ix_tasks_tenant_id_task_id", "tenant_id", "task_id"),
    sa.Index("ix_tasks_input_ref", "input_ref", postgresql_where=sa.text("input_ref IS NOT NULL")),
    postgresql_with={"fillfactor": "60", "autovacuum_vacuum_scale_factor": "0.05"},
)


def _place() -> list[sa.Column[object]]:
    """Columns that travel with a task through ready, delayed, flights and suspended: all that release and claim need to know."""
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
    _name("next_class", nullable=True),
    postgresql_with={"fillfactor": "50", **_BUSY},
)

suspended = sa.Table(
    "suspended",
    metadata,
    *_place(),
    _name("approval_id"),
    _when("suspended_at", nullable=False),
    sa.Index("ix_suspended_tenant_id", "tenant_id"),
    sa.Index("ix_suspended_valid_until", "valid_until", postgresql_where=sa.text("valid_until IS NOT NULL")),
)

approvals = sa.Table(
    "approvals",
    metadata,
    _name("approval_id", primary_key=True),
    _name("task_id"),
    _name("tenant_id"),
    _name("type"),
    _name("priority_class"),
    sa.Column("action", sa.Text(collation="C"), nullable=False),
    sa.Column("fingerprint", BYTEA, nullable=False),
    sa.Column("detail", sa.Text),
    sa.Column("submitted_by", sa.Text, nullable=False),
    _name("state"),
    _when("asked_at", nullable=False),
    _when("due_at", nullable=False),
    _when("expires_at", nullable=False),
    _when("decided_at"),
    sa.Column("decided_by", sa.Text),
    sa.Column("comment", sa.Text),
    sa.UniqueConstraint("task_id", "action", "fingerprint"),
    sa.Index("ix_approvals_tenant_id", "tenant_id", "state", "due_at"),
    sa.Index("ix_approvals_open", "due_at", "approval_id", postgresql_where=sa.text("state = 'pending'")),
    sa.Index("ix_approvals_expires_at", "expires_at", postgresql_where=sa.text("state = 'pending'")),
)

overrides = sa.Table(
    "overrides",
    metadata,
    _name("override_id", primary_key=True),
    _name("task_id"),
    _name("tenant_id"),
    _name("type"),
    _name("priority_class"),
    _name("from_class"),
    _name("derived_class"),
    _name("derived_reason_code"),
    sa.Column("reason", sa.Text, nullable=False),
    sa.Column("created_by", sa.Text, nullable=False),
    _when("created_at", nullable=False),
    _when("expires_at", nullable=False),
    _when("ended_at"),
    _name("ended_why", nullable=True),
    sa.Index("ix_overrides_lasting", "task_id", unique=True, postgresql_where=sa.text("ended_at IS NULL")),
    sa.Index("ix_overrides_expires_at", "expires_at", postgresql_where=sa.text("ended_at IS NULL")),
    sa.Index("ix_overrides_task_id", "task_id"),
    sa.Index("ix_overrides_tenant_id", "tenant_id", "override_id"),
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

# Reserved, then confirmed: two writes of a row whose indexed columns stay as they are.
effects = sa.Table(
    "effects",
    metadata,
    _name("effect_id", primary_key=True),
    _name("tenant_id"),
    sa.Column("key", Name, nullable=False),
    _name("effect_type"),
    _name("task_id"),
    _name("task_type"),
    sa.Column("fence", sa.BigInteger, nullable=False),
    sa.Column("attempt", sa.Integer, nullable=False),
    _name("fingerprint"),
    _name("state"),
    sa.Column("tokens", ARRAY(sa.Text), nullable=False),
    _when("first_reserved_at", nullable=False),
    _when("reserved_at", nullable=False),
    _when("call_until", nullable=False),
    _when("updated_at", nullable=False),
    _when("in_doubt_at"),
    _when("resolved_at"),
    sa.Column("external_id", sa.Text),
    sa.Column("resolved_by", sa.Text),
    sa.Column("reason", sa.Text),
    sa.Column("traceparent", sa.Text),
    sa.UniqueConstraint("tenant_id", "key"),
    sa.Index("ix_effects_task_id", "task_id"),
    sa.Index("ix_effects_tenant_id_effect_id", "tenant_id", "effect_id"),
    sa.Index("ix_effects_in_doubt", "effect_id", postgresql_where=sa.text("in_doubt_at IS NOT NULL")),
    postgresql_with={"fillfactor": "50", "autovacuum_vacuum_scale_factor": "0.05"},
)

effect_calls = sa.Table(
    "effect_calls",
    metadata,
    _name("effect_id", primary_key=True),
    _when("call_until", nullable=False),
    postgresql_with=_BUSY,
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

# One row per model call: intent, ledger and journal in one. What the call is (its key) never changes; what it cost is
# an estimate until the answer is known, so that no sum ever forgets a call. No index covers what changes.
llm_calls = sa.Table(
    "llm_calls",
    metadata,
    _name("call_id", primary_key=True),
    _name("task_id"),
    _name("tenant_id"),
    _name("task_type"),
    sa.Column("attempt", sa.Integer, nullable=False),
    sa.Column("fence", sa.BigInteger, nullable=False),
    _name("step"),
    _name("prompt_version", nullable=True),
    _name("fingerprint"),
    sa.Column("ordinal", sa.Integer, nullable=False),
    sa.Column("turn", sa.Integer, nullable=False),
    _name("provider"),
    _name("model_asked"),
    _name("model_answered", nullable=True),
    sa.Column("streamed", sa.Boolean, nullable=False),
    _name("outcome"),
    _name("stop_reason", nullable=True),
    sa.Column("input_tokens", sa.BigInteger, nullable=False),
    sa.Column("output_tokens", sa.BigInteger, nullable=False),
    sa.Column("cached_tokens", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("cache_write_tokens", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("reasoning_tokens", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("cost_usd", sa.Numeric),
    sa.Column("price_date", sa.Date),
    _name("price_source", nullable=True),
    sa.Column("estimated", sa.Boolean, nullable=False),
    _when("started_at", nullable=False),
    _when("finished_at"),
    sa.Column("seconds", sa.Double),
    sa.Column("response", sa.Text),
    sa.Index("ix_llm_calls_task_id", "task_id"),
    sa.Index("ix_llm_calls_task_type_call_id", "task_type", "call_id"),
    postgresql_with={"fillfactor": "70", "autovacuum_vacuum_scale_factor": "0.05"},
)

prompt_versions = sa.Table(
    "prompt_versions",
    metadata,
    _name("name", primary_key=True),
    sa.Column("version", sa.Integer, primary_key=True, autoincrement=False),
    _name("sha256"),
    _when("first_used_at", nullable=False),
)

dependencies = sa.Table(
    "dependencies",
    metadata,
    _name("name", primary_key=True),
    sa.Column("standing", sa.Text, nullable=False),
    _when("updated_at", nullable=False),
    postgresql_with={"fillfactor": "30", **_BUSY},
)

dependency_slices = sa.Table(
    "dependency_slices",
    metadata,
    _name("dependency", primary_key=True),
    _name("worker_id", primary_key=True),
    sa.Column("slices", sa.Text, nullable=False),
    sa.Column("probes", sa.Integer, nullable=False),
    sa.Column("in_use", sa.Integer, nullable=False),
    sa.Column("waiting", sa.Integer, nullable=False),
    _when("expires_at", nullable=False),
    postgresql_with={"fillfactor": "30", **_BUSY},
)

# What was spent, by UTC day. The shard keeps workers that write at the same time off each other's rows.
spending = sa.Table(
    "spending",
    metadata,
    sa.Column("day", sa.Date, primary_key=True),
    _name("tenant_id", primary_key=True),
    _name("type", primary_key=True),
    sa.Column("shard", sa.SmallInteger, primary_key=True),
    sa.Column("cost_usd", sa.Numeric, nullable=False),
    sa.Column("tokens", sa.BigInteger, nullable=False),
    sa.Column("calls", sa.BigInteger, nullable=False),
    sa.Column("attempts", sa.BigInteger, nullable=False),
    postgresql_with={"fillfactor": "70"},
)

budget_alerts = sa.Table(
    "budget_alerts",
    metadata,
    sa.Column("day", sa.Date, primary_key=True),
    _name("subject", primary_key=True),
)

webhook_secrets = sa.Table(
    "webhook_secrets",
    metadata,
    _name("webhook_secret_id", primary_key=True),
    _name("tenant_id", sa.ForeignKey("tenants.tenant_id")),
    sa.Column("secret", sa.Text, nullable=False),
    sa.Column("created_by", sa.Text),
    _when("created_at", nullable=False),
    _when("valid_until"),
    sa.Index("ix_webhook_secrets_tenant_id", "tenant_id"),
)

webhooks = sa.Table(
    "webhooks",
    metadata,
    _name("webhook_id", primary_key=True),
    _name("task_id"),
    _name("tenant_id"),
    _name("priority_class"),
    _name("host"),
    _name("event"),
    _name("task_type"),
    sa.Column("attempts", sa.Integer, nullable=False),
    _name("error_type", nullable=True),
    sa.Column("error_message", sa.Text),
    sa.Column("error_retryable", sa.Boolean),
    _when("submitted_at", nullable=False),
    _when("ended_at", nullable=False),
    _name("state"),
    # While `sending`, next_try_at is when somebody else may try: the sender is taken for dead then.
    sa.Column("sending", sa.Boolean, nullable=False, server_default="false"),
    _when("next_try_at", nullable=False),
    sa.Column("tries", sa.Integer, nullable=False, server_default="0"),
    sa.Column("tries_forgiven", sa.Integer, nullable=False, server_default="0"),
    sa.Column("last_status_code", sa.Integer),
    _name("last_error_type", nullable=True),
    _when("last_try_at"),
    _when("settled_at"),
    sa.Index("ix_webhooks_task_id", "task_id", "webhook_id"),
    sa.Index("ix_webhooks_tenant_id_webhook_id", "tenant_id", "webhook_id"),
    sa.Index("ix_webhooks_state_webhook_id", "state", "webhook_id"),
    sa.Index(
        "ix_webhooks_turn",
        "tenant_id",
        "host",
        "priority_class",
        "next_try_at",
        "webhook_id",
        postgresql_where=sa.text("state = 'waiting'"),
    ),
    postgresql_with=_BUSY,
)

webhook_tries = sa.Table(
    "webhook_tries",
    metadata,
    _name("webhook_id", primary_key=True),
    sa.Column("number", sa.Integer, primary_key=True),
    _when("started_at", nullable=False),
    sa.Column("seconds", sa.Double, nullable=False),
    sa.Column("status_code", sa.Integer),
    _name("error_type", nullable=True),
)
