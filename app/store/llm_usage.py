"""What model calls took, added up: by task, by attempt, and by tenant, type and day. Calls in flight count as estimated."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from app.ids import least_at
from app.store.database import Database

# One column of a task's row, so that a page of tasks is one statement. Null for a task without a call; else
# [input tokens, output tokens, cost as text, prompt versions, calls without a known price, estimated calls].
USAGE = """(
    SELECT CAST(json_build_array(sum(c.input_tokens), sum(c.output_tokens), CAST(COALESCE(sum(c.cost_usd), 0) AS text),
               COALESCE(array_agg(DISTINCT c.prompt_version) FILTER (WHERE c.prompt_version IS NOT NULL), '{}'),
               count(*) FILTER (WHERE c.cost_usd IS NULL), count(*) FILTER (WHERE c.estimated)) AS text)
    FROM llm_calls c WHERE c.task_id = tasks.task_id HAVING count(*) > 0
)"""


@dataclass(frozen=True, slots=True)
class AttemptUsage:
    """What the model calls of one attempt took; provider, model and prompt are those of its latest call."""

    provider: str
    model: str
    prompt_version: str | None
    input_tokens: int
    output_tokens: int
    cost_usd: Decimal


_BY_ATTEMPT = text("""
SELECT fence, (array_agg(provider ORDER BY call_id DESC))[1] AS provider,
       (array_agg(COALESCE(model_answered, model_asked) ORDER BY call_id DESC))[1] AS model,
       (array_agg(prompt_version ORDER BY call_id DESC))[1] AS prompt_version,
       CAST(sum(input_tokens) AS bigint) AS input_tokens, CAST(sum(output_tokens) AS bigint) AS output_tokens,
       COALESCE(sum(cost_usd), 0) AS cost_usd
FROM llm_calls WHERE task_id = :task_id GROUP BY fence
""")


async def by_attempt(connection: AsyncConnection, task_id: str) -> Mapping[int, AttemptUsage]:
    """Add up a task's calls by the fence of their attempt."""
    rows = (await connection.execute(_BY_ATTEMPT, {"task_id": task_id})).fetchall()
    return {
        row.fence: AttemptUsage(
            row.provider, row.model, row.prompt_version, row.input_tokens, row.output_tokens, row.cost_usd
        )
        for row in rows
    }


@dataclass(frozen=True, slots=True)
class TaskSpending:
    """What all calls of one task took, in whichever attempt, failed ones included, open ones as estimated."""

    calls: int
    input_tokens: int
    output_tokens: int
    cost_usd: Decimal
    unpriced: int


_OF_TASK = text("""
SELECT count(*) AS calls, CAST(COALESCE(sum(input_tokens), 0) AS bigint) AS input_tokens,
       CAST(COALESCE(sum(output_tokens), 0) AS bigint) AS output_tokens, COALESCE(sum(cost_usd), 0) AS cost_usd,
       count(*) FILTER (WHERE cost_usd IS NULL) AS unpriced
FROM llm_calls WHERE task_id = :task_id
""")


async def of_task(database: Database, task_id: str, *, retry_for_seconds: float) -> TaskSpending:
    """Add up a task's calls."""
    (row,) = await database.execute_hot(_OF_TASK, {"task_id": task_id}, retry_for_seconds=retry_for_seconds)
    return TaskSpending(row.calls, row.input_tokens, row.output_tokens, Decimal(row.cost_usd), row.unpriced)


@dataclass(frozen=True, slots=True)
class Spending:
    """What the calls of one tenant and type took. `unpriced` calls have no known price and are not in `cost_usd`."""

    tenant_id: str
    task_type: str
    calls: int
    input_tokens: int
    output_tokens: int
    cost_usd: Decimal
    estimated_usd: Decimal
    unpriced: int


# Ids are ordered by time: the calls since a moment are one range of the primary key. A clock that ran ahead or behind
# is evened out by started_at, which is the database's.
_SPENT = text("""
SELECT tenant_id, task_type, count(*) AS calls, CAST(sum(input_tokens) AS bigint) AS input_tokens,
       CAST(sum(output_tokens) AS bigint) AS output_tokens, COALESCE(sum(cost_usd), 0) AS cost_usd,
       COALESCE(sum(cost_usd) FILTER (WHERE estimated), 0) AS estimated_usd,
       count(*) FILTER (WHERE cost_usd IS NULL) AS unpriced
FROM llm_calls
WHERE call_id >= :from_id AND started_at >= :since AND started_at < :before
GROUP BY tenant_id, task_type ORDER BY tenant_id, task_type
""")
_CLOCKS_APART_SECONDS = 900


async def spent(connection: AsyncConnection, *, since: datetime, before: datetime) -> list[Spending]:
    """Add up the calls that started in [since, before), by tenant and type: a day's, for instance."""
    from_id = least_at("call", datetime.fromtimestamp(since.timestamp() - _CLOCKS_APART_SECONDS, since.tzinfo))
    values = {"from_id": from_id, "since": since, "before": before}
    rows = (await connection.execute(_SPENT, values)).fetchall()
    return [Spending(*row) for row in rows]


@dataclass(frozen=True, slots=True)
class Typical:
    """What the latest tasks of a type took each, with all their calls."""

    tasks: int
    tokens_per_task: int
    cost_usd_per_task: Decimal


_TYPICAL = text("""
WITH latest AS (
    SELECT task_id, input_tokens + output_tokens AS tokens, cost_usd FROM llm_calls
    WHERE task_type = :task_type ORDER BY call_id DESC LIMIT :calls
)
SELECT count(DISTINCT task_id) AS tasks, COALESCE(sum(tokens), 0) AS tokens, COALESCE(sum(cost_usd), 0) AS cost FROM latest
""")


async def typical(connection: AsyncConnection, task_type: str, *, calls: int = 200) -> Typical:
    """Tell what a task of a type takes, from the latest calls of the type; zeros where there was none."""
    row = (await connection.execute(_TYPICAL, {"task_type": task_type, "calls": calls})).one()
    n = max(1, row.tasks)
    return Typical(row.tasks, -(-int(row.tokens) // n), Decimal(row.cost) / n)
