"""The events that tell receivers of ended tasks: taken by turns, sent with a lease, settled by the number of the try.

The rows are made by the trigger `task_ended` (`migrations/versions/0008_webhooks.py`) in the transaction of the end.
A sweep that looked for ended tasks would have to be told of every statement that ends one, and would miss a dead letter
that was reprocessed between two looks; the trigger costs tasks without a callback its WHEN clause alone.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Row, select, text
from sqlalchemy.ext.asyncio import AsyncConnection

from app.domain.webhooks import WebhookState
from app.store.database import Database
from app.store.hot import HotRow
from app.store.places import column
from app.store.schema import webhooks

_TABLE = webhooks.c


@dataclass(frozen=True, slots=True)
class Room:
    """How much may be sent now: in all, and at most per host and per tenant, less what is on its way to each."""

    free: int
    per_host: int
    per_tenant: int
    hosts: Mapping[str, int]
    tenants: Mapping[str, int]


# The first CTE hops from one (tenant, host, class) to the next by the index: ten thousand events that wait for a host
# that hangs cost as much as one. Locks are skipped, so that two dispatchers never take the same event.
_TAKE = text("""
WITH RECURSIVE lanes AS (
    (SELECT tenant_id, host, priority_class FROM webhooks WHERE state = 'waiting'
     ORDER BY tenant_id, host, priority_class LIMIT 1)
    UNION ALL
    SELECT n.tenant_id, n.host, n.priority_class FROM lanes l CROSS JOIN LATERAL (
        SELECT w.tenant_id, w.host, w.priority_class FROM webhooks w
        WHERE w.state = 'waiting' AND (w.tenant_id, w.host, w.priority_class) > (l.tenant_id, l.host, l.priority_class)
        ORDER BY w.tenant_id, w.host, w.priority_class LIMIT 1) n
),
due AS (
    SELECT d.webhook_id, l.tenant_id, l.host, d.next_try_at,
           COALESCE(array_position(CAST(:classes AS text[]), l.priority_class), 1000) AS rank
    FROM lanes l CROSS JOIN LATERAL (
        SELECT w.webhook_id, w.next_try_at FROM webhooks w
        WHERE w.state = 'waiting' AND w.tenant_id = l.tenant_id AND w.host = l.host
          AND w.priority_class = l.priority_class AND w.next_try_at <= clock_timestamp()
        ORDER BY w.next_try_at, w.webhook_id LIMIT :per_host) d
),
placed AS (
    SELECT *, row_number() OVER (PARTITION BY host ORDER BY rank, next_try_at, webhook_id) AS of_host,
           :per_host - COALESCE((CAST(:host_counts AS int[]))[array_position(CAST(:hosts AS text[]), host)], 0) AS host_room
    FROM due
),
fitting AS (
    SELECT *, row_number() OVER (PARTITION BY tenant_id ORDER BY rank, next_try_at, webhook_id) AS of_tenant,
           :per_tenant - COALESCE((CAST(:tenant_counts AS int[]))[array_position(CAST(:tenants AS text[]), tenant_id)], 0)
             AS tenant_room
    FROM placed WHERE of_host <= host_room
),
chosen AS MATERIALIZED (
    SELECT webhook_id FROM fitting WHERE of_tenant <= tenant_room ORDER BY rank, next_try_at, webhook_id LIMIT :free
),
held AS MATERIALIZED (
    SELECT webhook_id, task_id FROM webhooks
    WHERE webhook_id = ANY (ARRAY(SELECT webhook_id FROM chosen)) AND state = 'waiting'
      AND next_try_at <= clock_timestamp()
    ORDER BY webhook_id FOR UPDATE SKIP LOCKED
)
UPDATE webhooks w SET sending = true, tries = w.tries + 1, last_try_at = clock_timestamp(),
       next_try_at = clock_timestamp() + CAST(:lease_seconds AS float8) * interval '1 second'
FROM held h LEFT JOIN tasks t ON t.task_id = h.task_id
WHERE w.webhook_id = h.webhook_id
RETURNING w.*, t.callback_url, t.traceparent, t.task_group, t.source_ref, t.source_version,
    CASE WHEN w.event = 'task.done' AND octet_length(t.result) <= :result_max_bytes THEN t.result END AS result
""")


async def take(
    database: Database, room: Room, *, classes: Sequence[str], lease_seconds: float, result_max_bytes: int
) -> Sequence[HotRow]:
    """Take events whose time has come, the highest of `classes` first, and lease them to this process.

    Each row has the number of its try in `tries`. Who dies before it has recorded one loses the lease, and the same
    event is taken again.
    """
    values = {
        "classes": list(classes),
        "free": room.free,
        "per_host": room.per_host,
        "per_tenant": room.per_tenant,
        "hosts": list(room.hosts),
        "host_counts": list(room.hosts.values()),
        "tenants": list(room.tenants),
        "tenant_counts": list(room.tenants.values()),
        "lease_seconds": lease_seconds,
        "result_max_bytes": result_max_bytes,
    }
    return await database.execute_hot(_TAKE, values, retry_for_seconds=0.0)


@dataclass(frozen=True, slots=True)
class TryRecord:
    """What one try came to and what follows. `detail` is the JSON text of the task's history entry, where one is due."""

    webhook_id: str
    number: int
    state: WebhookState
    after_seconds: float
    seconds: float
    status_code: int | None
    error_type: str | None
    detail: str


# A try whose lease was over settles nothing, unless the receiver took the event: that is so, whoever hears it first.
_RECORD = text("""
WITH given AS MATERIALIZED (
    SELECT * FROM unnest(CAST(:ids AS text[]), CAST(:numbers AS int[]), CAST(:states AS text[]), CAST(:afters AS float8[]),
        CAST(:seconds AS float8[]), CAST(:status_codes AS int[]), CAST(:error_types AS text[]), CAST(:details AS text[]))
    AS g(webhook_id, number, state, after_seconds, seconds, status_code, error_type, detail)
),
held AS MATERIALIZED (
    SELECT g.*, w.task_id, w.event, w.tries, w.state AS state_before, clock_timestamp() AS now
    FROM given g JOIN webhooks w ON w.webhook_id = g.webhook_id
    ORDER BY g.webhook_id FOR UPDATE OF w
),
kept AS (
    INSERT INTO webhook_tries (webhook_id, number, started_at, seconds, status_code, error_type)
    SELECT webhook_id, number, now - seconds * interval '1 second', seconds, status_code, error_type FROM held
    ON CONFLICT DO NOTHING
),
moved AS (
    UPDATE webhooks w SET state = h.state, sending = false, last_status_code = h.status_code,
           last_error_type = h.error_type, next_try_at = h.now + h.after_seconds * interval '1 second',
           settled_at = CASE WHEN h.state = 'waiting' THEN NULL ELSE h.now END
    FROM held h
    WHERE w.webhook_id = h.webhook_id AND w.state <> 'delivered'
      AND ((h.number = h.tries AND h.state_before = 'waiting' AND w.sending) OR h.state = 'delivered')
    RETURNING w.webhook_id, w.task_id, w.event, h.state, h.now, h.detail
),
told AS (
    INSERT INTO events (task_id, at, kind, reason, actor, detail)
    SELECT task_id, now, 'webhook_' || state, event, 'dispatcher', detail FROM moved WHERE state <> 'waiting'
)
SELECT webhook_id FROM moved
""")


async def record(database: Database, tries: Sequence[TryRecord], *, retry_for_seconds: float | None = None) -> set[str]:
    """Write tries down and move their events on; tells which were still this sender's. Repeating it is harmless."""
    ordered = sorted(tries, key=lambda one: one.webhook_id)
    values: dict[str, Any] = {
        "ids": [one.webhook_id for one in ordered],
        "numbers": [one.number for one in ordered],
        "states": [one.state.value for one in ordered],
        "afters": [one.after_seconds for one in ordered],
        "seconds": [one.seconds for one in ordered],
        "status_codes": column([one.status_code for one in ordered]),
        "error_types": column([one.error_type for one in ordered]),
        "details": [one.detail for one in ordered],
    }
    rows = await database.execute_hot(_RECORD, values, retry_for_seconds=retry_for_seconds)
    return {row.webhook_id for row in rows}


_WAITING = text("SELECT priority_class, count(*) AS n FROM webhooks WHERE state = 'waiting' GROUP BY priority_class")


async def waiting(database: Database) -> dict[str, int]:
    """Count the events that are not delivered and not given up, by class."""
    return {row.priority_class: row.n for row in await database.execute_hot(_WAITING, {}, retry_for_seconds=0.0)}


@dataclass(frozen=True, slots=True)
class WebhookFilter:
    """Which events; an empty tuple leaves a field open, several values mean "or"."""

    state: tuple[str, ...] = ()
    event: tuple[str, ...] = ()
    task_id: tuple[str, ...] = ()
    tenant_id: tuple[str, ...] = ()


async def page(
    connection: AsyncConnection, which: WebhookFilter, *, before: str | None, limit: int
) -> Sequence[Row[Any]]:
    """Read events, newest first, from below the id `before`."""
    query = select(webhooks)
    for name in WebhookFilter.__dataclass_fields__:
        values: tuple[str, ...] = getattr(which, name)
        if values:
            query = query.where(_TABLE[name] == values[0] if len(values) == 1 else _TABLE[name].in_(values))
    if before is not None:
        query = query.where(_TABLE.webhook_id < before)
    return (await connection.execute(query.order_by(_TABLE.webhook_id.desc()).limit(limit))).fetchall()


async def get(connection: AsyncConnection, webhook_id: str) -> Row[Any] | None:
    """Read one event."""
    return (await connection.execute(select(webhooks).where(_TABLE.webhook_id == webhook_id))).first()


_TRIES = text("SELECT * FROM webhook_tries WHERE webhook_id = :webhook_id ORDER BY number DESC LIMIT :limit")


async def tries_of(connection: AsyncConnection, webhook_id: str, limit: int) -> Sequence[Row[Any]]:
    """Read the tries of one event, the newest first."""
    return (await connection.execute(_TRIES, {"webhook_id": webhook_id, "limit": limit})).fetchall()


_REDELIVER = text("""
WITH moved AS (
    UPDATE webhooks SET state = 'waiting', next_try_at = clock_timestamp(), tries_forgiven = tries, settled_at = NULL,
           sending = false
    WHERE webhook_id = :webhook_id AND NOT (state = 'waiting' AND sending AND next_try_at > clock_timestamp())
    RETURNING *
),
told AS (
    INSERT INTO events (task_id, at, kind, reason, actor)
    SELECT task_id, clock_timestamp(), 'webhook_redelivered', event, :actor FROM moved
)
SELECT * FROM moved
""")


async def redeliver(connection: AsyncConnection, webhook_id: str, *, actor: str) -> Row[Any] | None:
    """Make an event due at once with a fresh number of tries; None while it is on its way, or gone."""
    return (await connection.execute(_REDELIVER, {"webhook_id": webhook_id, "actor": actor})).first()
