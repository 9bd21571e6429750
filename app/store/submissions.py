"""Inserting tasks: one statement for any number of them, safe to repeat, and the truth about each.

The statement inserts a task only where its idempotency key is new and its lane is held; whatever it did not insert is
looked up afterwards and told apart: replayed, key reused, lane missing (ensured, then tried again).
"""

from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from app.store.database import Database, sqlstate
from app.store.hot import HotRow
from app.store.lanes import ENSURE_LANES, HOLD_LANES, LaneKey, lane_arrays
from app.store.places import column


class NewTask(msgspec.Struct, frozen=True, gc=False):
    """All that is known of a task before it is stored. JSON fields hold exact JSON text; times are aware UTC.

    `start_within_seconds` places it among its tenant's tasks when it has no due_at; `fingerprint` goes with
    `idempotency_key` and is compared on replay.
    """

    task_id: str
    tenant_id: str
    type: str
    task_group: str | None
    priority_class: str
    reason_code: str
    policy_version: str
    facts: str
    requested_class: str | None
    source_ref: str | None
    source_version: str | None
    input: str | None
    input_ref: str | None
    cost_class: str
    cost: float
    preemptible: bool
    max_attempts: int
    timeout_seconds: float
    not_before: datetime | None
    due_at: datetime | None
    valid_until: datetime | None
    valid_for_seconds: float | None
    start_within_seconds: float
    metadata: str | None
    submitted_by: str
    traceparent: str | None
    tracestate: str | None
    idempotency_key: str | None = None
    endpoint: str | None = None
    fingerprint: bytes | None = None
    callback_url: str | None = None


@dataclass(frozen=True, slots=True)
class Stored:
    """The task is committed; `status` is queued or scheduled, `valid_until` the limit that was stored."""

    task_id: str
    status: str
    submitted_at: datetime
    valid_until: datetime | None


@dataclass(frozen=True, slots=True)
class Replayed:
    """The same submission was stored before as `task_id`."""

    task_id: str


@dataclass(frozen=True, slots=True)
class KeyReused:
    """The idempotency key belongs to another submission."""


_COLUMNS: tuple[tuple[str, str], ...] = (
    ("task_id", "text"), ("tenant_id", "text"), ("type", "text"), ("task_group", "text"), ("priority_class", "text"),
    ("reason_code", "text"), ("policy_version", "text"), ("facts", "text"), ("requested_class", "text"),
    ("source_ref", "text"), ("source_version", "text"), ("input", "text"), ("input_ref", "text"),
    ("cost_class", "text"), ("cost", "real"), ("preemptible", "bool"), ("max_attempts", "int"),
    ("timeout_seconds", "float8"), ("not_before", "timestamptz"), ("due_at", "timestamptz"),
    ("valid_until", "timestamptz"), ("valid_for_seconds", "float8"), ("start_within_seconds", "float8"),
    ("metadata", "text"), ("submitted_by", "text"), ("traceparent", "text"), ("tracestate", "text"),
    ("idempotency_key", "text"), ("endpoint", "text"), ("fingerprint", "bytea"), ("callback_url", "text"), ("lane_no", "bigint"),
)  # fmt: skip

_GIVEN = (
    "SELECT * FROM unnest("
    + ", ".join(f"CAST(:{name} AS {kind}[])" for name, kind in _COLUMNS)
    + ") AS g("
    + ", ".join(name for name, _ in _COLUMNS)
    + ")"
)

_KEYS = """
keys AS (
    INSERT INTO idempotency_keys (tenant_id, endpoint, key, fingerprint, task_id, created_at)
    SELECT g.tenant_id, g.endpoint, g.idempotency_key, g.fingerprint, g.task_id, clock_timestamp()
    FROM given g WHERE g.lane_no IN (SELECT lane_no FROM lane)
    ORDER BY g.tenant_id, g.endpoint, g.idempotency_key
    ON CONFLICT DO NOTHING RETURNING task_id
),
"""


def _submit_sql(keyed: bool) -> str:
    fresh = "JOIN keys y ON y.task_id = g.task_id" if keyed else ""
    return f"""
WITH given AS MATERIALIZED ({_GIVEN}),
lane AS MATERIALIZED (
    SELECT l.lane_id, k.lane_no
    FROM lanes l JOIN unnest(CAST(:classes AS text[]), CAST(:tenants AS text[]), CAST(:types AS text[]), CAST(:groups AS text[]))
        WITH ORDINALITY AS k(priority_class, tenant_id, task_type, task_group, lane_no)
      ON l.priority_class = k.priority_class AND l.tenant_id = k.tenant_id AND l.task_type = k.task_type
      AND l.task_group = k.task_group
    FOR KEY SHARE OF l
),
{_KEYS if keyed else ""}
fresh AS MATERIALIZED (
    SELECT g.*, k.lane_id, c.now AS submitted_at,
           COALESCE(g.valid_until, c.now + g.valid_for_seconds * interval '1 second') AS limit_at,
           COALESCE(g.due_at, GREATEST(c.now, g.not_before) + g.start_within_seconds * interval '1 second') AS order_at,
           COALESCE(g.not_before > c.now, false) AS later
    FROM given g {fresh}
    JOIN lane k ON k.lane_no = g.lane_no
    CROSS JOIN (SELECT clock_timestamp() AS now) c
    WHERE NOT EXISTS (SELECT 1 FROM tasks t WHERE t.task_id = g.task_id)
),
stored AS (
    INSERT INTO tasks (task_id, tenant_id, type, task_group, status, priority_class, reason_code, policy_version, facts,
        requested_class, source_ref, source_version, input, input_ref, cost_class, preemptible, max_attempts,
        timeout_seconds, submitted_at, not_before, due_at, valid_until, updated_at, metadata, submitted_by, traceparent,
        tracestate, callback_url)
    SELECT task_id, tenant_id, type, task_group, CASE WHEN later THEN 'scheduled' ELSE 'queued' END, priority_class,
        reason_code, policy_version, facts, requested_class, source_ref, source_version, input, input_ref, cost_class,
        preemptible, max_attempts, timeout_seconds, submitted_at, not_before, due_at, limit_at, submitted_at,
        metadata, submitted_by, traceparent, tracestate, callback_url
    FROM fresh ORDER BY task_id
    RETURNING task_id, status, submitted_at, valid_until
),
waiting AS (
    INSERT INTO ready (task_id, priority_class, tenant_id, task_type, task_group, order_at, queued_at, valid_until, cost,
        timeout_seconds, preemptible, attempt, dispatch, submitted_at, traceparent, tracestate, lane_id)
    SELECT f.task_id, f.priority_class, f.tenant_id, f.type, COALESCE(f.task_group, ''), f.order_at, f.submitted_at,
        f.limit_at, f.cost, f.timeout_seconds, f.preemptible, 1, 1, f.submitted_at, f.traceparent, f.tracestate, f.lane_id
    FROM fresh f WHERE NOT f.later
),
put_off AS (
    INSERT INTO delayed (task_id, priority_class, tenant_id, task_type, task_group, order_at, queued_at, valid_until, cost,
        timeout_seconds, preemptible, attempt, dispatch, submitted_at, traceparent, tracestate, due_at, why)
    SELECT f.task_id, f.priority_class, f.tenant_id, f.type, COALESCE(f.task_group, ''), f.order_at, f.not_before,
        f.limit_at, f.cost, f.timeout_seconds, f.preemptible, 1, 1, f.submitted_at, f.traceparent, f.tracestate,
        f.not_before, 'not_before'
    FROM fresh f WHERE f.later
)
SELECT task_id, status, submitted_at, valid_until FROM stored
"""


SUBMIT = text(_submit_sql(keyed=False))
SUBMIT_KEYED = text(_submit_sql(keyed=True))

_ALREADY = text("""
SELECT t.task_id, t.status, t.submitted_at, t.valid_until FROM tasks t WHERE t.task_id = ANY(CAST(:ids AS text[]))
""")
_HELD_KEYS = text("""
SELECT y.tenant_id, y.endpoint, y.key, y.fingerprint, y.task_id
FROM unnest(CAST(:tenants AS text[]), CAST(:endpoints AS text[]), CAST(:keys AS text[])) AS k(tenant_id, endpoint, key)
JOIN idempotency_keys y ON y.tenant_id = k.tenant_id AND y.endpoint = k.endpoint AND y.key = k.key
""")

Outcome = Stored | Replayed | KeyReused


def _lane_key(task: NewTask) -> LaneKey:
    return task.priority_class, task.tenant_id, task.type, task.task_group or ""


def _parameters(tasks: Sequence[NewTask]) -> dict[str, Any]:
    values: dict[str, Any] = {name: column([getattr(task, name) for task in tasks]) for name, _ in _COLUMNS[:-1]}
    lanes = lane_arrays(map(_lane_key, tasks))
    number = {key: at for at, key in enumerate(zip(*lanes.values(), strict=True), start=1)}
    values["lane_no"] = [number[_lane_key(task)] for task in tasks]
    return values | lanes


async def insert_tasks(database: Database, tasks: Sequence[NewTask]) -> list[Outcome]:
    """Commit `tasks` and tell what became of each, in order. All carry an idempotency key, or none does.

    Repeating the call with the same ids doubles nothing. Raises DatabaseUnavailable, LockTimeout (another submission
    with one of the keys is still in flight), or a data error when a value cannot be stored.
    """
    keyed = tasks[0].idempotency_key is not None
    outcomes: dict[str, Outcome] = {}
    missing: list[NewTask] = list(tasks)
    for insert in (_inserted, _inserted, _inserted_with_lanes_held, _inserted_with_lanes_held):
        for row in await insert(database, missing, keyed):
            outcomes[row.task_id] = Stored(row.task_id, row.status, row.submitted_at, row.valid_until)
        missing = [task for task in missing if task.task_id not in outcomes]
        if missing:
            outcomes.update(await _already_there(database, missing, keyed))
            missing = [task for task in missing if task.task_id not in outcomes]
        if not missing:
            return [outcomes[task.task_id] for task in tasks]
        await database.execute_hot(ENSURE_LANES, lane_arrays(map(_lane_key, missing)))
    raise LookupError("a task found no lane although its lanes were held")


async def _inserted(database: Database, tasks: Sequence[NewTask], keyed: bool) -> Sequence[Any]:
    statement = SUBMIT_KEYED if keyed else SUBMIT
    return await _unless_there(database.execute_hot(statement, _parameters(tasks)))


async def _inserted_with_lanes_held(database: Database, tasks: Sequence[NewTask], keyed: bool) -> Sequence[Any]:
    """Insert where the lanes are dropped as fast as they are made: costs two statements and a transaction."""
    values = _parameters(tasks)

    async def work(connection: AsyncConnection) -> Sequence[Any]:
        await connection.execute(HOLD_LANES, lane_arrays(map(_lane_key, tasks)))
        return (await connection.execute(SUBMIT_KEYED if keyed else SUBMIT, values)).fetchall()

    return await _unless_there(database.run(work))


async def _unless_there(inserting: Awaitable[Sequence[Any]]) -> Sequence[Any]:
    try:
        return await inserting
    except Exception as error:
        if sqlstate(error) != "23505":
            raise
        # The ids are ours alone: an earlier try, whose answer was lost, has only just committed.
        return ()


async def _already_there(database: Database, tasks: Sequence[NewTask], keyed: bool) -> dict[str, Outcome]:
    found: dict[str, Outcome] = {}
    rows = await database.execute_hot(_ALREADY, {"ids": [task.task_id for task in tasks]})
    for row in rows:
        found[row.task_id] = Stored(row.task_id, row.status, row.submitted_at, row.valid_until)
    if not keyed:
        return found
    held = {
        (row.tenant_id, row.endpoint, row.key): row
        for row in await database.execute_hot(
            _HELD_KEYS,
            {
                "tenants": [task.tenant_id for task in tasks],
                "endpoints": [task.endpoint for task in tasks],
                "keys": [task.idempotency_key for task in tasks],
            },
        )
    }
    for task in tasks:
        key = held.get((task.tenant_id, task.endpoint, task.idempotency_key))
        if task.task_id in found or key is None:
            continue
        found[task.task_id] = Replayed(key.task_id) if bytes(key.fingerprint) == task.fingerprint else KeyReused()
    return found


async def held_key(database: Database, tenant_id: str, endpoint: str, key: str) -> HotRow | None:
    """Read the `fingerprint` and `task_id` that an idempotency key is held for, or None."""
    values = {"tenants": [tenant_id], "endpoints": [endpoint], "keys": [key]}
    held = await database.execute_hot(_HELD_KEYS, values)
    return held[0] if held else None
