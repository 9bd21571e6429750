"""The ledger of effects on the hot path: reserving before the call, taking over, ending after the call.

A reservation proves by its flight that it is made for the attempt that owns the task; an end goes by the reservation's
token, owned or not: what is known is recorded.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

import msgspec
from sqlalchemy import text

from app.domain.effects import EffectState, Found
from app.store.database import Database
from app.store.hot import HotRow
from app.store.places import column


class Wanted(msgspec.Struct, frozen=True, gc=False):
    """A reservation to make. Id and token are minted before the first try, so that a try that is repeated knows itself."""

    effect_id: str
    token: str
    tenant_id: str
    key: str
    effect_type: str
    fingerprint: str
    task_id: str
    task_type: str
    fence: int
    attempt: int
    call_seconds: float
    traceparent: str | None


@dataclass(frozen=True, slots=True)
class Existing:
    """What lies under the key, by the database's time `now`; `token` is the latest reservation's."""

    effect_id: str
    token: str
    fence: int
    found: Found
    now: datetime


class Lost:
    """The attempt owns its task no longer."""


Answer = str | Existing | Lost | None
"""The effect's id where it was reserved; None where somebody removed it in between."""

# Flights are locked in the order of their tasks, then keys in theirs; each in the same order by everybody. The lock makes
# whoever takes the task over wait until the reservation is there to be seen.
_RESERVE = text("""
WITH given AS MATERIALIZED (
    SELECT * FROM unnest(CAST(:ids AS text[]), CAST(:tokens AS text[]), CAST(:tenants AS text[]), CAST(:keys AS text[]),
        CAST(:types AS text[]), CAST(:fingerprints AS text[]), CAST(:tasks AS text[]), CAST(:task_types AS text[]),
        CAST(:fences AS bigint[]), CAST(:attempts AS int[]), CAST(:seconds AS float8[]), CAST(:traceparents AS text[]))
    AS g(effect_id, token, tenant_id, key, effect_type, fingerprint, task_id, task_type, fence, attempt, call_seconds,
         traceparent)
),
owned AS MATERIALIZED (
    SELECT g.*, clock_timestamp() AS now FROM given g JOIN flights f ON f.task_id = g.task_id AND f.fence = g.fence
    ORDER BY g.task_id FOR KEY SHARE OF f
),
made AS (
    INSERT INTO effects (effect_id, tenant_id, key, effect_type, task_id, task_type, fence, attempt, fingerprint, state,
                         tokens, first_reserved_at, reserved_at, call_until, updated_at, traceparent)
    SELECT effect_id, tenant_id, key, effect_type, task_id, task_type, fence, attempt, fingerprint, 'reserved',
           ARRAY[token], now, now, now + call_seconds * interval '1 second', now, traceparent
    FROM owned ORDER BY tenant_id, key
    ON CONFLICT (tenant_id, key) DO NOTHING
    RETURNING effect_id, call_until
),
calls AS (INSERT INTO effect_calls (effect_id, call_until) SELECT effect_id, call_until FROM made)
SELECT effect_id FROM made
""")
_FOUND = text("""
SELECT g.place, own.fence IS NOT NULL AS owned, e.effect_id, e.state, e.fingerprint, e.first_reserved_at, e.call_until,
       e.external_id, e.fence, e.tokens[cardinality(e.tokens)] AS token, clock_timestamp() AS now,
       EXISTS (SELECT 1 FROM flights h WHERE h.task_id = e.task_id AND h.fence = e.fence) AS alive
FROM unnest(CAST(:tasks AS text[]), CAST(:fences AS bigint[]), CAST(:tenants AS text[]), CAST(:keys AS text[]))
     WITH ORDINALITY AS g(task_id, fence, tenant_id, key, place)
LEFT JOIN flights own ON own.task_id = g.task_id AND own.fence = g.fence
LEFT JOIN effects e ON e.tenant_id = g.tenant_id AND e.key = g.key
""")


async def reserve(database: Database, wanted: Sequence[Wanted], *, retry_for_seconds: float) -> list[Answer]:
    """Reserve what lies under no key yet, and tell what lies under the others; answers in order."""
    ordered = sorted(wanted, key=lambda one: one.task_id)
    rows = await database.execute_hot(
        _RESERVE,
        {
            "ids": [one.effect_id for one in ordered],
            "tokens": [one.token for one in ordered],
            "tenants": [one.tenant_id for one in ordered],
            "keys": [one.key for one in ordered],
            "types": [one.effect_type for one in ordered],
            "fingerprints": [one.fingerprint for one in ordered],
            "tasks": [one.task_id for one in ordered],
            "task_types": [one.task_type for one in ordered],
            "fences": [one.fence for one in ordered],
            "attempts": [one.attempt for one in ordered],
            "seconds": [one.call_seconds for one in ordered],
            "traceparents": column([one.traceparent for one in ordered]),
        },
        retry_for_seconds=retry_for_seconds,
    )
    made = {row.effect_id for row in rows}
    rest = [one for one in wanted if one.effect_id not in made]
    found = await _found(database, rest, retry_for_seconds) if rest else {}
    return [one.effect_id if one.effect_id in made else found[one.effect_id] for one in wanted]


async def _found(database: Database, wanted: Sequence[Wanted], retry_for_seconds: float) -> dict[str, Answer]:
    rows = await database.execute_hot(
        _FOUND,
        {
            "tasks": [one.task_id for one in wanted],
            "fences": [one.fence for one in wanted],
            "tenants": [one.tenant_id for one in wanted],
            "keys": [one.key for one in wanted],
        },
        retry_for_seconds=retry_for_seconds,
    )
    return {wanted[row.place - 1].effect_id: _answer(wanted[row.place - 1], row) for row in rows}


def _answer(wanted: Wanted, row: HotRow) -> Answer:
    if not row.owned:
        return Lost()
    if row.effect_id is None:
        return None
    if row.token == wanted.token and row.state == EffectState.RESERVED:
        # An earlier try of this very statement was committed, and only its answer was lost.
        effect_id: str = row.effect_id
        return effect_id
    found = Found(
        EffectState(row.state), row.fingerprint, row.first_reserved_at, row.call_until, row.alive, row.external_id
    )
    return Existing(row.effect_id, row.token, row.fence, found, row.now)


# Nothing that is known not to have been sent counts as the first reservation: a provider has seen none of it.
_TAKE_OVER = text("""
WITH owner AS MATERIALIZED (
    SELECT task_id, clock_timestamp() AS now FROM flights WHERE task_id = :task_id AND fence = :fence FOR KEY SHARE
),
taken AS (
    UPDATE effects e SET state = 'reserved', tokens = (e.tokens || CAST(:token AS text))[GREATEST(1, cardinality(e.tokens) - 48):],
           effect_type = :effect_type, fingerprint = :fingerprint, task_id = :task_id, task_type = :task_type, fence = :fence,
           attempt = :attempt, first_reserved_at = CASE WHEN e.state = 'not_sent' THEN o.now ELSE e.first_reserved_at END,
           reserved_at = o.now, call_until = o.now + CAST(:call_seconds AS float8) * interval '1 second', updated_at = o.now,
           in_doubt_at = NULL, resolved_at = NULL, resolved_by = NULL, reason = NULL, traceparent = :traceparent
    FROM owner o
    WHERE e.effect_id = :effect_id AND e.state = :held_state AND e.tokens[cardinality(e.tokens)] = :held_token
    RETURNING e.effect_id, e.call_until
),
calls AS (
    INSERT INTO effect_calls (effect_id, call_until) SELECT effect_id, call_until FROM taken
    ON CONFLICT (effect_id) DO UPDATE SET call_until = excluded.call_until
)
SELECT effect_id FROM taken
""")


async def take_over(database: Database, wanted: Wanted, held: Existing, *, retry_for_seconds: float) -> bool:
    """Reserve what `held` holds no longer, by compare-and-set; False when it changed meanwhile, or this try came twice."""
    rows = await database.execute_hot(
        _TAKE_OVER,
        {
            "task_id": wanted.task_id,
            "fence": wanted.fence,
            "token": wanted.token,
            "effect_type": wanted.effect_type,
            "fingerprint": wanted.fingerprint,
            "task_type": wanted.task_type,
            "attempt": wanted.attempt,
            "call_seconds": wanted.call_seconds,
            "traceparent": wanted.traceparent,
            "effect_id": held.effect_id,
            "held_state": held.found.state.value,
            "held_token": held.token,
        },
        retry_for_seconds=retry_for_seconds,
    )
    return bool(rows)


class Ended(msgspec.Struct, frozen=True, gc=False):
    """How the call of a reservation ended: `confirmed`, `not_sent`, or `reserved`: it is over, and nobody knows."""

    effect_id: str
    token: str
    state: EffectState
    external_id: str | None = None


# A late confirmation counts whatever was thought meanwhile. That nothing was sent is said of the latest call alone: where an
# earlier one may have been accepted, the effect stays open, though nothing is in the air any more; as after a call that is
# over without anybody knowing what came of it.
_END = text("""
WITH given AS MATERIALIZED (
    SELECT * FROM unnest(CAST(:ids AS text[]), CAST(:tokens AS text[]), CAST(:states AS text[]), CAST(:external_ids AS text[]))
    AS g(effect_id, token, state, external_id)
),
ended AS (
    UPDATE effects e SET state = CASE WHEN g.state = 'confirmed' THEN 'confirmed'
               WHEN g.state = 'not_sent' AND e.first_reserved_at = e.reserved_at THEN 'not_sent' ELSE e.state END,
           external_id = g.external_id, in_doubt_at = NULL, updated_at = clock_timestamp(),
           call_until = CASE WHEN g.state = 'confirmed' THEN e.call_until ELSE clock_timestamp() END
    FROM given g
    WHERE e.effect_id = g.effect_id AND g.token = ANY(e.tokens)
      AND CASE WHEN g.state = 'confirmed' THEN e.state <> 'confirmed'
               ELSE e.state = 'reserved' AND e.tokens[cardinality(e.tokens)] = g.token END
    RETURNING e.effect_id, e.state
),
gone AS (DELETE FROM effect_calls c USING ended d WHERE c.effect_id = d.effect_id AND d.state <> 'reserved')
SELECT effect_id FROM ended
""")


async def end(database: Database, ended: Sequence[Ended], *, retry_for_seconds: float) -> None:
    """Record how calls ended; repeating it is harmless."""
    ordered = sorted(ended, key=lambda one: one.effect_id)
    await database.execute_hot(
        _END,
        {
            "ids": [one.effect_id for one in ordered],
            "tokens": [one.token for one in ordered],
            "states": [one.state.value for one in ordered],
            "external_ids": column([one.external_id for one in ordered]),
        },
        retry_for_seconds=retry_for_seconds,
    )


_DOUBT = text("""
WITH owner AS MATERIALIZED (SELECT task_id FROM flights WHERE task_id = :task_id AND fence = :fence FOR KEY SHARE),
marked AS (
    UPDATE effects e SET state = 'in_doubt', in_doubt_at = clock_timestamp(), updated_at = clock_timestamp()
    FROM owner o WHERE e.effect_id = :effect_id AND e.state = 'reserved' AND e.tokens[cardinality(e.tokens)] = :token
    RETURNING e.effect_id, e.effect_type
),
gone AS (DELETE FROM effect_calls c USING marked m WHERE c.effect_id = m.effect_id),
told AS (
    INSERT INTO events (task_id, at, kind, reason, actor, detail)
    SELECT :task_id, clock_timestamp(), 'effect', 'in_doubt', :worker_id,
           json_build_object('effect_id', effect_id, 'type', effect_type)::text
    FROM marked
)
SELECT effect_id FROM marked
""")


async def doubt(
    database: Database, held: Existing, *, task_id: str, fence: int, worker_id: str, retry_for_seconds: float
) -> None:
    """Say that nobody can know, on behalf of the attempt that asked; what is in doubt already stays so."""
    await database.execute_hot(
        _DOUBT,
        {
            "task_id": task_id,
            "fence": fence,
            "worker_id": worker_id,
            "effect_id": held.effect_id,
            "token": held.token,
        },
        retry_for_seconds=retry_for_seconds,
    )


_TELL = text("""
INSERT INTO events (task_id, at, kind, reason, actor, detail)
SELECT f.task_id, clock_timestamp(), 'effect', :reason, :actor, :detail
FROM flights f WHERE f.task_id = :task_id AND f.fence = :fence
RETURNING event_id
""")


async def tell(
    database: Database, *, task_id: str, fence: int, reason: str, actor: str, detail: str, retry_for_seconds: float
) -> None:
    """Write an event into the history of a task that the attempt owns."""
    values = {"task_id": task_id, "fence": fence, "reason": reason, "actor": actor, "detail": detail}
    await database.execute_hot(_TELL, values, retry_for_seconds=retry_for_seconds)
