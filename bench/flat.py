"""The cost of a deep queue: drain and PostgreSQL time per task with a million rows behind and ahead, against 10,000.

Finished and waiting rows are loaded by SQL, as the product itself would have left them; then the workers start and the
same number of tasks is timed in both cases while the rest keeps waiting.
"""

import statistics
import time
from dataclasses import dataclass

from bench import cpu
from bench.database import Database
from bench.ours import TENANT
from bench.services import Postgres, Rabbit
from bench.system import RunError, Stage, System, staged

SMALL_ROWS = 10_000
WARM_UP = 1_000
WINDOW = 3_000
WINDOWS = 2
_WITHIN_SECONDS = 120.0

_TASKS = """
INSERT INTO tasks (task_id, tenant_id, type, status, priority_class, reason_code, policy_version, facts, cost_class,
                   preemptible, attempts, max_attempts, timeout_seconds, submitted_at, started_at, finished_at,
                   updated_at, input, result, submitted_by)
SELECT 'task_' || lpad(({offset} + n)::text, 26, '0'), '{tenant}', 'bench_noop', '{status}', priority_class,
       reason_code, policy_version, facts, cost_class, preemptible, {attempts}, max_attempts, timeout_seconds, at,
       CASE WHEN {attempts} > 0 THEN at END, CASE WHEN {attempts} > 0 THEN at END, at,
       '{{"number":' || n || '}}', CASE WHEN {attempts} > 0 THEN 'null' END, submitted_by
FROM generate_series(0, {count} - 1) AS n,
     (SELECT *, clock_timestamp() AS at FROM tasks WHERE type = 'bench_noop' LIMIT 1) AS pattern
"""
_ATTEMPTS = """
INSERT INTO attempts (task_id, fence, attempt, outcome, spent, worker_id, queued_at, released_at, started_at,
                      finished_at, round_id)
SELECT task_id, nextval('fence_seq'), 1, 'done', true, 'worker_loaded', submitted_at, submitted_at, submitted_at,
       submitted_at, 0
FROM tasks WHERE status = 'done'
"""
_READY = """
INSERT INTO ready
SELECT (jsonb_populate_record(NULL::ready, to_jsonb(pattern) || jsonb_build_object(
           'task_id', 'task_' || lpad(({offset} + n)::text, 26, '0')))).*
FROM generate_series(0, {count} - 1) AS n, (SELECT * FROM ready LIMIT 1) AS pattern
"""


@dataclass(frozen=True, slots=True)
class Depth:
    """Figures with so many finished and so many waiting rows."""

    rows: int
    drain: float
    postgres_us: float


def load_rows(database: Database, rows: int) -> None:
    """Load `rows` finished and `rows` waiting tasks, copies of the one task that waits already."""
    for status, offset, attempts in (("done", 0, 1), ("queued", rows, 0)):
        database.execute(_TASKS.format(offset=offset, tenant=TENANT, status=status, attempts=attempts, count=rows))
    database.execute(_ATTEMPTS)
    database.execute(_READY.format(offset=rows, count=rows))
    database.execute("VACUUM ANALYZE")


def run_flat(system: System, postgres: Postgres, rabbit: Rabbit, rows: int) -> list[Depth]:
    """Measure with 10,000 and with `rows` rows of each kind."""
    return [_measure(system, postgres, rabbit, depth) for depth in (SMALL_ROWS, rows)]


def _measure(system: System, postgres: Postgres, rabbit: Rabbit, rows: int) -> Depth:
    with staged(system, postgres, rabbit, rows) as stage:
        stage.send_one(0)
        load_rows(stage.database, rows)
        stage.start_workers()
        _wait_for_starts(stage, rows, WARM_UP)
        drains, costs = [], []
        for window in range(WINDOWS):
            before, began = cpu.cpu_seconds([postgres.pid]), time.monotonic()
            started = _wait_for_starts(stage, rows, WARM_UP + (window + 1) * WINDOW)
            count = started - WARM_UP - window * WINDOW
            drains.append(count / (time.monotonic() - began))
            costs.append((cpu.cpu_seconds([postgres.pid]) - before) * 1e6 / count)
    return Depth(rows, statistics.median(drains), statistics.median(costs))


def _wait_for_starts(stage: Stage, rows: int, wanted: int) -> int:
    """Wait until so many handlers have started; return how many have."""
    deadline = time.monotonic() + _WITHIN_SECONDS
    while (started := rows - stage.marks.started_ns(0, rows).count(0)) < wanted:
        if time.monotonic() > deadline:
            raise RunError(f"{started} of {wanted} tasks started within {_WITHIN_SECONDS:.0f} s\n{stage.logs()}")
        time.sleep(0.02)
    return started
