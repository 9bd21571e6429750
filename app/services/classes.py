"""How the priority classes stand: counted here, with the seats and waits that the dispatcher last wrote down."""

from dataclasses import dataclass
from datetime import datetime

import msgspec
from sqlalchemy.ext.asyncio import AsyncConnection

from app.runtime import Runtime
from app.store import standing, workers
from app.store.standing import ClassCounts


class Figures(msgspec.Struct, frozen=True):
    """What the dispatcher writes down of a class, as JSON in `class_figures`; seats are concurrent tasks."""

    nominal: int | None = None
    maximum: int | None = None
    lent: int | None = None
    borrowed: int | None = None
    oldest_waiting_seconds: float | None = None
    wait_p50_seconds: float | None = None
    wait_p95_seconds: float | None = None
    wait_p99_seconds: float | None = None
    started_within_target: float | None = None


_NOTHING = Figures()


@dataclass(frozen=True, slots=True)
class ClassStanding:
    """One class. What only the platform may see is None for a tenant."""

    name: str
    rank: int
    start_within_seconds: float
    waiting: int
    running: int
    released: int | None
    consumers: int | None
    figures: Figures
    measured_at: datetime | None


async def read_classes(runtime: Runtime, tenant_id: str | None) -> list[ClassStanding]:
    """Read every class of the policy in force, by rank; for a tenant its own counts alone."""

    async def work(connection: AsyncConnection) -> list[ClassStanding]:
        counts = await standing.counts_of(connection, tenant_id)
        platform = tenant_id is None
        measured = await standing.class_figures(connection) if platform else {}
        serving = consumers_of([row.classes for row in await workers.live(connection)]) if platform else {}
        found: list[ClassStanding] = []
        for one in runtime.policy.current.classes:
            count = counts.get(one.name, ClassCounts())
            row = measured.get(one.name)
            found.append(
                ClassStanding(
                    name=one.name,
                    rank=one.rank,
                    start_within_seconds=one.start_within_seconds,
                    waiting=count.waiting,
                    running=count.running,
                    released=count.released if platform else None,
                    consumers=serving.get(one.name, 0) if platform else None,
                    figures=msgspec.json.decode(row.figures, type=Figures) if row is not None else _NOTHING,
                    measured_at=row.at if row is not None else None,
                )
            )
        return found

    return await runtime.database.run(work)


def consumers_of(served: list[list[str]]) -> dict[str, int]:
    """Count per class the live workers that serve it."""
    counts: dict[str, int] = {}
    for classes in served:
        for name in classes:
            counts[name] = counts.get(name, 0) + 1
    return counts
