"""One round of one system: enqueue, drain, quiet pickup, end to end; counts are checked."""

import math
import time
from dataclasses import dataclass, field

from bench import cpu
from bench.services import Postgres, Rabbit
from bench.system import Command, Stage, System, staged

ONE_BY_ONE = 300
"""Tasks sent one by one, each awaited, for the enqueue rate."""
PICKUPS = 100
PICKUPS_PER_SECOND = 50.0
WARM_UP = 20
STAGE_SECONDS = 120.0
"""No stage of a round may take longer."""


@dataclass(frozen=True, slots=True)
class Sample:
    """What one system did in one round; rates per second, CPU in microseconds per task of the drain."""

    tasks: int
    drain: float
    end_to_end: float
    enqueue_batch: float
    enqueue_one_by_one: float
    pickup_ms: list[float] = field(repr=False)
    cpu_us: dict[str, float]
    remark: str


def percentile(values: list[float], share: float) -> float:
    """Return the nearest-rank percentile of a list that is not empty."""
    return sorted(values)[max(0, math.ceil(len(values) * share) - 1)]


def run_round(system: System, postgres: Postgres, rabbit: Rabbit, tasks: int) -> Sample:
    """Run every stage of the standard round; raises RunError where a task is missing or not recorded."""
    count = max(200, int(tasks * system.share))
    backlog = WARM_UP + ONE_BY_ONE + count
    total = backlog + PICKUPS + count
    with staged(system, postgres, rabbit, total) as stage:
        stage.send(Command("one_by_one", 0, WARM_UP), STAGE_SECONDS)
        one_by_one = stage.send(Command("one_by_one", WARM_UP, ONE_BY_ONE), STAGE_SECONDS)
        batch = stage.send(Command("batch", WARM_UP + ONE_BY_ONE, count), STAGE_SECONDS)
        drain, used = _drain(stage, backlog)
        pickups = _pickups(stage, backlog)
        end_to_end = _end_to_end(stage, backlog + PICKUPS, count)
        remark = stage.check(total)
    return Sample(
        tasks=count,
        drain=drain,
        end_to_end=end_to_end,
        enqueue_batch=count / batch["seconds"],
        enqueue_one_by_one=ONE_BY_ONE / one_by_one["seconds"],
        pickup_ms=pickups,
        cpu_us=used,
        remark=remark,
    )


def _drain(stage: Stage, backlog: int) -> tuple[float, dict[str, float]]:
    """Start the workers on a backlog; the clock runs from the first handler's start to the last durable completion.

    Statistics are taken first, for everybody: autovacuum would have, had the backlog grown at its usual pace.
    """
    roots = {"PostgreSQL": [stage.postgres.pid], "RabbitMQ": [stage.rabbit.pid]}
    stage.database.execute("ANALYZE")
    stage.start_workers()
    stage.await_first_start(0, backlog, STAGE_SECONDS)
    roots["Python"] = stage.python_pids()
    before = {name: cpu.cpu_seconds(pids) for name, pids in roots.items()}
    already = backlog - stage.marks.started_ns(0, backlog).count(0)
    ended_ns = stage.wait_until_done(0, backlog, 0, STAGE_SECONDS)
    used = {
        name: (cpu.cpu_seconds(pids) - before[name]) * 1e6 / max(1, backlog - already) for name, pids in roots.items()
    }
    began_ns = min(stage.marks.started_ns(0, backlog))
    return backlog / ((ended_ns - began_ns) / 1e9), used


def _pickups(stage: Stage, first: int) -> list[float]:
    """Send single tasks to the idle system; return the milliseconds from each call to its handler's start."""
    stage.send(Command("paced", first, PICKUPS, PICKUPS_PER_SECOND), STAGE_SECONDS)
    stage.wait_until_done(first, PICKUPS, first, STAGE_SECONDS)
    pairs = zip(stage.marks.sent_ns(first, PICKUPS), stage.marks.started_ns(first, PICKUPS), strict=True)
    return [(started - sent) / 1e6 for sent, started in pairs]


def _end_to_end(stage: Stage, first: int, count: int) -> float:
    """Send batches to the idle workers; the clock runs from the first call to the last durable completion."""
    began_ns = time.monotonic_ns()
    stage.begin(Command("batch", first, count))
    ended_ns = stage.wait_until_done(first, count, first, STAGE_SECONDS)
    stage.finish(STAGE_SECONDS)
    return count / ((ended_ns - began_ns) / 1e9)
