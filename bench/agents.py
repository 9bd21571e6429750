"""What the ledger and the journal cost: the drain of no-op tasks with one step or one effect each, beside plain ones.

The kinds take turns within each round, so that a machine that slows down slows all of them; ratios are of one round.
"""

import math
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from bench import cpu
from bench.scenarios import operate
from bench.services import Postgres, Rabbit
from bench.system import Command, Stage, System, staged

KINDS = {"no-op": "bench_noop", "one step": "bench_step", "one effect": "bench_effect"}
"""What is drained, and as which task type; the first is what the others are compared with."""
_WARM_UP = 500
_WITHIN_SECONDS = 180.0
_SETTLED_SECONDS = 1.2
"""PostgreSQL tells what a session has committed within a second."""


@dataclass(frozen=True, slots=True)
class AgentDrain:
    """One drain: tasks a second; commits and CPU microseconds a task, of PostgreSQL and of all Python processes."""

    kind: str
    rate: float
    commits: float
    postgres_us: float
    python_us: float


def run_agents(system: System, postgres: Postgres, rabbit: Rabbit, rounds: int, tasks: int) -> list[AgentDrain]:
    """Drain every kind in each round; raises RunError where a task is missing or not recorded."""
    kinds = list(KINDS)
    found = []
    for turn in range(rounds):
        for kind in kinds[turn % len(kinds) :] + kinds[: turn % len(kinds)]:
            environment = (*system.spec.environment, ("BENCH_TASK_TYPE", KINDS[kind]))
            with staged(
                replace(system, spec=replace(system.spec, environment=environment)), postgres, rabbit, _WARM_UP + tasks
            ) as stage:
                found.append(_drain(stage, kind, tasks))
                stage.check(_WARM_UP + tasks)
    return found


def _drain(stage: Stage, kind: str, tasks: int) -> AgentDrain:
    """Warm the workers up, hold the type back by a pause, submit, release."""
    stage.start_workers()
    stage.send(Command("batch", 0, _WARM_UP), _WITHIN_SECONDS)
    stage.wait_until_done(0, _WARM_UP, 0, _WITHIN_SECONDS)
    pause = operate(stage, "POST", "/v1/pauses", {"on": f"type:{KINDS[kind]}", "reason": "loading"}, 201)
    stage.send(Command("batch", _WARM_UP, tasks), _WITHIN_SECONDS)
    stage.database.execute("ANALYZE")
    time.sleep(_SETTLED_SECONDS)
    commits, used = _commits(stage), _used(stage)
    operate(stage, "DELETE", f"/v1/pauses/{pause['pause_id']}", None, 204)
    ended_ns = stage.wait_until_done(_WARM_UP, tasks, _WARM_UP, _WITHIN_SECONDS)
    spent = [(after - before) * 1e6 / tasks for before, after in zip(used, _used(stage), strict=True)]
    time.sleep(_SETTLED_SECONDS)
    began_ns = min(stage.marks.started_ns(_WARM_UP, tasks))
    rate = tasks / ((ended_ns - began_ns) / 1e9)
    return AgentDrain(kind, rate, (_commits(stage) - commits) / tasks, *spent)


def _commits(stage: Stage) -> int:
    return stage.database.number("SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()")


def _used(stage: Stage) -> tuple[float, float]:
    return cpu.cpu_seconds([stage.postgres.pid]), cpu.cpu_seconds(stage.python_pids())


def ratio(drains: Sequence[AgentDrain], kind: str) -> float:
    """Give the median over the rounds of how a kind's rate compares with the plain one of its round."""
    plain = [each.rate for each in drains if each.kind == next(iter(KINDS))]
    rates = [each.rate for each in drains if each.kind == kind]
    return statistics.median(rate / base for rate, base in zip(rates, plain, strict=True)) if rates else math.nan
