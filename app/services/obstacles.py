"""What stands in the way of one waiting task beside its turn: dependencies that are closed, budgets that are spent."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Row
from sqlalchemy.ext.asyncio import AsyncConnection

from app.domain.breaker import Phase, phase_at
from app.domain.budgets import NOTHING, passed_by
from app.domain.dependencies import gate_of
from app.domain.lifecycle import WAITING
from app.runtime import Runtime
from app.services.budgets import estimates, expected, standings_of
from app.store import dependencies


@dataclass(frozen=True, slots=True)
class Obstacles:
    """By name, a sentence for people; `saturated` are dependencies whose calls wait for their limits."""

    dependencies: Mapping[str, str] = field(default_factory=dict)
    saturated: frozenset[str] = frozenset()
    budgets: Mapping[str, str] = field(default_factory=dict)


async def read(runtime: Runtime, connection: AsyncConnection, task: Row[Any]) -> Obstacles:
    """Read what stops the task; nothing where it does not wait."""
    known = runtime.registry.get(task.type)
    if task.status not in WAITING or known is None:
        return Obstacles()
    closed, saturated = await _dependencies(runtime, connection, known.spec.depends_on, task.priority_class)
    return Obstacles(closed, saturated, await _budgets(runtime, connection, task))


async def _dependencies(
    runtime: Runtime, connection: AsyncConnection, depends_on: tuple[str, ...], priority_class: str
) -> tuple[dict[str, str], frozenset[str]]:
    if not depends_on:
        return {}, frozenset()
    standings, now = await dependencies.standings(connection)
    closed: dict[str, str] = {}
    saturated = set()
    for name in depends_on:
        if (standing := standings.get(name)) is None:
            continue
        match phase_at(standing.breaker, now):
            case Phase.OPEN:
                why = "it asked for a pause" if standing.breaker.told else "its calls failed"
                closed[name] = f"The dependency {name} is closed until {spelt(standing.breaker.until)}: {why}."
            case Phase.HALF_OPEN:
                closed[name] = (
                    f"The dependency {name} is tried again by a few tasks; the others follow when it answers."
                )
        gate = gate_of(runtime.policy.current.dependency(name), standing, now, in_flight=0, probes_released=0)
        if gate.is_saturated(priority_class):
            saturated.add(name)
    return closed, frozenset(saturated)


async def _budgets(runtime: Runtime, connection: AsyncConnection, task: Row[Any]) -> dict[str, str]:
    found = await standings_of(runtime, connection, task.tenant_id, task.type)
    if not found:
        return {}
    costs = await estimates(runtime, connection)
    cost = costs.get(task.type)
    if cost is None:
        return {}
    gone = await expected(connection, [one.budget for one in found], costs)
    stopped = {}
    for one in found:
        share = 1 - one.budget.retry_margin if task.attempts == 0 else 1.0
        if passed_by(one.budget, gone.get(one.budget.on, NOTHING), cost, share=share):
            margin = " beside the part kept for retries" if task.attempts == 0 else ""
            stopped[one.budget.on] = (
                f"The budget {one.budget.on} of today has no room for it{margin}; it opens again at 00:00 UTC."
            )
    return stopped


def spelt(seconds: float) -> str:
    """Spell a time of the database's clock, in seconds, as people read it."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
