"""How the dependencies stand: the breaker's word, what is in use, and the policy's limits."""

from dataclasses import dataclass
from datetime import UTC, datetime

from sqlalchemy.ext.asyncio import AsyncConnection

from app.domain.breaker import Phase, ceiling, phase_at
from app.domain.dependencies import Dependency, Standing
from app.runtime import Runtime
from app.store import dependencies


@dataclass(frozen=True, slots=True)
class DependencyStanding:
    """One dependency. `closed_until` is when probes may begin, while it lets nothing through."""

    dependency: Dependency
    state: Phase
    since: datetime | None
    closed_until: datetime | None
    openings: int
    ceiling: int | None
    in_use: int
    waiting: int
    workers: int


async def read_dependencies(runtime: Runtime) -> list[DependencyStanding]:
    """Read every dependency that a type declares, the policy names or somebody called, by name."""

    async def work(connection: AsyncConnection) -> list[DependencyStanding]:
        standings, now = await dependencies.standings(connection)
        used = await dependencies.in_use(connection)
        policy = runtime.policy.current
        names = {name for one in runtime.registry.values() for name in one.spec.depends_on}
        names |= {one.name for one in policy.dependencies} | standings.keys()
        found = []
        for name in sorted(names):
            state = standings.get(name, Standing()).breaker
            phase = phase_at(state, now)
            row = used.get(name)
            found.append(
                DependencyStanding(
                    dependency=policy.dependency(name),
                    state=phase,
                    since=datetime.fromtimestamp(state.since, UTC) if state.since else None,
                    closed_until=datetime.fromtimestamp(state.until, UTC) if phase is Phase.OPEN else None,
                    openings=state.openings,
                    ceiling=ceiling(policy.dependency(name).breaker, state, now),
                    in_use=row.in_use if row is not None else 0,
                    waiting=row.waiting if row is not None else 0,
                    workers=row.workers if row is not None else 0,
                )
            )
        return found

    return await runtime.database.run(work)
