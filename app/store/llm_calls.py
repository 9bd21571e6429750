"""The ledger of model calls: an intent before each call, what is known after it, and the answers of earlier runs.

An intent proves that its attempt owns the task and holds an estimate of tokens and cost, so that a call that nobody
heard the end of is never forgotten. The finish goes by the call's id, lease or not: what is known is recorded.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from sqlalchemy import text

from app.domain.llm import Outcome
from app.store.database import Database
from app.store.hot import HotRow
from app.store.places import column


@dataclass(frozen=True, slots=True)
class Intent:
    """A call that is about to be made, with what it is expected to take.

    (`task_id`, `step`, `fingerprint`, `ordinal`) is the key under which a later run finds the answer; `turn` 2 is the
    repair of an answer that did not fit its schema.
    """

    call_id: str
    task_id: str
    tenant_id: str
    task_type: str
    attempt: int
    fence: int
    step: str
    prompt_version: str | None
    fingerprint: str
    ordinal: int
    turn: int
    provider: str
    model_asked: str
    streamed: bool
    input_tokens: int
    output_tokens: int
    cost_usd: Decimal | None


@dataclass(frozen=True, slots=True)
class Past:
    """What an earlier call under the same key left: an answer, or (`answered` False) one that was to be repaired."""

    call_id: str
    answered: bool
    provider: str
    model: str
    stop_reason: str | None
    input_tokens: int
    output_tokens: int
    cached_tokens: int
    cache_write_tokens: int
    reasoning_tokens: int
    cost_usd: Decimal | None
    estimated: bool
    response: str


@dataclass(frozen=True, slots=True)
class Finish:
    """What is known at the end of a call. `outcome` is an `Outcome` or a kind of failure; `response` what to replay."""

    call_id: str
    outcome: str
    input_tokens: int
    output_tokens: int
    estimated: bool
    seconds: float
    cached_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0
    cost_usd: Decimal | None = None
    price_date: str | None = None
    price_source: str | None = None
    model_answered: str | None = None
    stop_reason: str | None = None
    response: str | None = None


# Ownership, the look at earlier runs and the intent in one statement. An answer that was to be repaired (turn 1) is
# taken up where it was left; one whose repair failed as well is spent: the next run asks anew.
_INTEND = text(f"""
WITH given AS MATERIALIZED (
    SELECT * FROM unnest(CAST(:call_ids AS text[]), CAST(:task_ids AS text[]), CAST(:tenants AS text[]), CAST(:types AS text[]),
        CAST(:attempts AS int[]), CAST(:fences AS bigint[]), CAST(:steps AS text[]), CAST(:prompts AS text[]),
        CAST(:fingerprints AS text[]), CAST(:ordinals AS int[]), CAST(:turns AS int[]), CAST(:providers AS text[]),
        CAST(:models AS text[]), CAST(:streameds AS bool[]), CAST(:inputs AS bigint[]), CAST(:outputs AS bigint[]),
        CAST(:costs AS text[]))
    AS g(call_id, task_id, tenant_id, task_type, attempt, fence, step, prompt_version, fingerprint, ordinal, turn, provider,
         model_asked, streamed, input_tokens, output_tokens, cost_usd)
),
mine AS MATERIALIZED (
    SELECT g.* FROM given g JOIN flights f ON f.task_id = g.task_id AND f.fence = g.fence
    ORDER BY g.task_id FOR KEY SHARE OF f
),
known AS MATERIALIZED (
    SELECT m.*, p.call_id AS past_id, p.outcome AS past_outcome, p.turn AS past_turn
    FROM mine m LEFT JOIN LATERAL (
        SELECT c.call_id, c.outcome, c.turn FROM llm_calls c
        WHERE c.task_id = m.task_id AND c.step = m.step AND c.fingerprint = m.fingerprint AND c.ordinal = m.ordinal
          AND c.turn >= m.turn AND c.outcome IN ('{Outcome.ANSWERED}', 'invalid_output') AND c.response IS NOT NULL
        ORDER BY (c.outcome = '{Outcome.ANSWERED}') DESC, c.call_id DESC LIMIT 1
    ) p ON TRUE
),
added AS (
    INSERT INTO llm_calls (call_id, task_id, tenant_id, task_type, attempt, fence, step, prompt_version, fingerprint, ordinal,
        turn, provider, model_asked, streamed, input_tokens, output_tokens, cost_usd, outcome, estimated, started_at)
    SELECT call_id, task_id, tenant_id, task_type, attempt, fence, step, prompt_version, fingerprint, ordinal, turn, provider,
        model_asked, streamed, input_tokens, output_tokens, CAST(cost_usd AS numeric), '{Outcome.OPEN}', TRUE, clock_timestamp()
    FROM known k WHERE k.past_id IS NULL OR (k.past_outcome = 'invalid_output' AND k.past_turn = 2)
    ON CONFLICT (call_id) DO NOTHING
)
SELECT k.call_id, k.past_outcome, c.call_id AS past_id, c.provider, COALESCE(c.model_answered, c.model_asked) AS model,
       c.stop_reason, c.input_tokens, c.output_tokens, c.cached_tokens, c.cache_write_tokens, c.reasoning_tokens, c.cost_usd,
       c.estimated, c.response
FROM known k LEFT JOIN llm_calls c ON c.call_id = k.past_id AND NOT (k.past_outcome = 'invalid_output' AND k.past_turn = 2)
""")


async def intend(
    database: Database, intents: Sequence[Intent], *, retry_for_seconds: float | None = None
) -> dict[str, Past | None]:
    """Write intents, by call_id: None for a call that is to be made, or what an earlier one left (nothing is written).

    A call whose attempt no longer owns its task is left out. Repeating it with the same values is harmless.
    """
    ordered = sorted(intents, key=lambda one: (one.task_id, one.call_id))
    values: dict[str, Any] = {
        "call_ids": [one.call_id for one in ordered],
        "task_ids": [one.task_id for one in ordered],
        "tenants": [one.tenant_id for one in ordered],
        "types": [one.task_type for one in ordered],
        "attempts": [one.attempt for one in ordered],
        "fences": [one.fence for one in ordered],
        "steps": [one.step for one in ordered],
        "prompts": column([one.prompt_version for one in ordered]),
        "fingerprints": [one.fingerprint for one in ordered],
        "ordinals": [one.ordinal for one in ordered],
        "turns": [one.turn for one in ordered],
        "providers": [one.provider for one in ordered],
        "models": [one.model_asked for one in ordered],
        "streameds": [one.streamed for one in ordered],
        "inputs": [one.input_tokens for one in ordered],
        "outputs": [one.output_tokens for one in ordered],
        "costs": column([None if one.cost_usd is None else str(one.cost_usd) for one in ordered]),
    }
    rows = await database.execute_hot(_INTEND, values, retry_for_seconds=retry_for_seconds)
    return {row.call_id: _past(row) for row in rows}


def _past(row: HotRow) -> Past | None:
    if row.past_id is None:
        return None
    return Past(
        row.past_id,
        row.past_outcome == Outcome.ANSWERED,
        row.provider,
        row.model,
        row.stop_reason,
        row.input_tokens,
        row.output_tokens,
        row.cached_tokens,
        row.cache_write_tokens,
        row.reasoning_tokens,
        row.cost_usd,
        row.estimated,
        row.response,
    )


# What was closed as unanswered meanwhile is overwritten: the truth, however late, is better than an estimate.
_FINISH = text(f"""
WITH given AS MATERIALIZED (
    SELECT * FROM unnest(CAST(:call_ids AS text[]), CAST(:outcomes AS text[]), CAST(:inputs AS bigint[]),
        CAST(:outputs AS bigint[]), CAST(:estimateds AS bool[]), CAST(:seconds AS float8[]), CAST(:cacheds AS bigint[]),
        CAST(:writes AS bigint[]), CAST(:reasonings AS bigint[]), CAST(:costs AS text[]), CAST(:dates AS text[]),
        CAST(:sources AS text[]), CAST(:models AS text[]), CAST(:stops AS text[]), CAST(:responses AS text[]))
    AS g(call_id, outcome, input_tokens, output_tokens, estimated, seconds, cached_tokens, cache_write_tokens, reasoning_tokens,
         cost_usd, price_date, price_source, model_answered, stop_reason, response)
)
UPDATE llm_calls c SET outcome = g.outcome, input_tokens = g.input_tokens, output_tokens = g.output_tokens,
    cached_tokens = g.cached_tokens, cache_write_tokens = g.cache_write_tokens, reasoning_tokens = g.reasoning_tokens,
    cost_usd = CAST(g.cost_usd AS numeric), price_date = CAST(g.price_date AS date), price_source = g.price_source,
    estimated = g.estimated, model_answered = g.model_answered, stop_reason = g.stop_reason, response = g.response,
    seconds = g.seconds, finished_at = clock_timestamp()
FROM given g
WHERE c.call_id = g.call_id AND c.outcome IN ('{Outcome.OPEN}', '{Outcome.UNANSWERED}')
RETURNING c.call_id
""")


async def finish(database: Database, finishes: Sequence[Finish], *, retry_for_seconds: float | None = None) -> None:
    """Record the ends of calls by their ids, whoever owns the tasks by now. Repeating it is harmless."""
    ordered = sorted(finishes, key=lambda one: one.call_id)
    values: dict[str, Any] = {
        "call_ids": [one.call_id for one in ordered],
        "outcomes": [one.outcome for one in ordered],
        "inputs": [one.input_tokens for one in ordered],
        "outputs": [one.output_tokens for one in ordered],
        "estimateds": [one.estimated for one in ordered],
        "seconds": [one.seconds for one in ordered],
        "cacheds": [one.cached_tokens for one in ordered],
        "writes": [one.cache_write_tokens for one in ordered],
        "reasonings": [one.reasoning_tokens for one in ordered],
        "costs": column([None if one.cost_usd is None else str(one.cost_usd) for one in ordered]),
        "dates": column([one.price_date for one in ordered]),
        "sources": column([one.price_source for one in ordered]),
        "models": column([one.model_answered for one in ordered]),
        "stops": column([one.stop_reason for one in ordered]),
        "responses": column([one.response for one in ordered]),
    }
    await database.execute_hot(_FINISH, values, retry_for_seconds=retry_for_seconds)


# Calls of attempts that are over. Their estimate becomes the mean of the latest answered calls of the same type and
# model, where there are any. Locked in the order of their ids, as a late finish locks them.
_CLOSE = text(f"""
WITH dead AS MATERIALIZED (
    SELECT c.call_id FROM llm_calls c
    WHERE c.call_id >= :from_id AND c.outcome = '{Outcome.OPEN}'
      AND c.started_at < clock_timestamp() - CAST(:quiet_seconds AS float8) * interval '1 second'
      AND NOT EXISTS (SELECT 1 FROM flights f WHERE f.task_id = c.task_id AND f.fence = c.fence)
    ORDER BY c.call_id LIMIT :limit FOR UPDATE OF c
)
UPDATE llm_calls c SET outcome = '{Outcome.UNANSWERED}', finished_at = clock_timestamp(),
    input_tokens = COALESCE(m.input_tokens, c.input_tokens), output_tokens = COALESCE(m.output_tokens, c.output_tokens),
    cost_usd = COALESCE(m.cost_usd, c.cost_usd)
FROM (
    SELECT d.call_id, u.* FROM dead d JOIN llm_calls x ON x.call_id = d.call_id, LATERAL (
        SELECT CAST(ceil(avg(a.input_tokens)) AS bigint) AS input_tokens,
               CAST(ceil(avg(a.output_tokens)) AS bigint) AS output_tokens, avg(a.cost_usd) AS cost_usd
        FROM (SELECT y.input_tokens, y.output_tokens, y.cost_usd FROM llm_calls y
              WHERE y.task_type = x.task_type AND y.model_asked = x.model_asked AND y.provider = x.provider
                AND y.outcome = '{Outcome.ANSWERED}' AND NOT y.estimated ORDER BY y.call_id DESC LIMIT 50) a
    ) u
) m
WHERE c.call_id = m.call_id
RETURNING c.provider, c.model_asked, c.task_type, c.input_tokens, c.output_tokens, c.cost_usd
""")


async def close_dead(database: Database, *, from_id: str, quiet_seconds: float, limit: int) -> Sequence[HotRow]:
    """Close open calls, from an id on, whose attempt is over for `quiet_seconds`; returns what each is taken to cost."""
    values = {"from_id": from_id, "quiet_seconds": quiet_seconds, "limit": limit}
    return await database.execute_hot(_CLOSE, values, retry_for_seconds=0.0)


_OLDEST_OPEN = text(f"""
SELECT call_id FROM llm_calls WHERE call_id >= :from_id AND outcome = '{Outcome.OPEN}' ORDER BY call_id LIMIT 1
""")


async def oldest_open(database: Database, from_id: str) -> str | None:
    """Name the oldest open call from an id on."""
    rows = await database.execute_hot(_OLDEST_OPEN, {"from_id": from_id}, retry_for_seconds=0.0)
    return rows[0].call_id if rows else None
