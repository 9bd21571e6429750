"""A span of the past as a load for the simulation: what came, from whom, how long it ran and how often it failed."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Row

from app.domain.simulation.load import Arrivals, Load, SeatPool, Tenant, Work
from app.domain.task_types import CostClass, TaskTypeSpec
from app.ids import least_at
from app.services.releases import pools_of
from app.store import replays, workers
from app.store.database import Database
from app.task_modules import TaskType

BATCH = 2_000
LEAST_RUN_SECONDS = 0.001


@dataclass(slots=True)
class _Type:
    """What the span tells of one type."""

    row: Row[Any]
    ran: int = 0
    run_seconds: float = 0.0
    ended: int = 0
    failed: int = 0


@dataclass(slots=True)
class _Names:
    """Names as they are, or numbered in the order in which they first appear."""

    kind: str
    anonymous: bool
    given: dict[str, str] = field(default_factory=dict)

    def of(self, name: str) -> str:
        """Give the name that the load uses."""
        if not self.anonymous or not name:
            return name
        return self.given.setdefault(name, f"{self.kind}-{len(self.given) + 1}")


class TooMuch(Exception):
    """The span holds more tasks than can be replayed at once."""


async def load_of(
    database: Database, registry: Mapping[str, TaskType], *, start: datetime, hours: float, seats: int | None,
    anonymous: bool, most_tasks: int,
) -> Load:  # fmt: skip
    """Read the tasks submitted in `hours` from `start` on as a load; raises TooMuch, and database errors.

    The seats are those of the live workers unless `seats` says how many. What a requester claimed is not kept with a
    task, so claims are not replayed; tasks that never ran take the mean of their type.
    """
    first, past = least_at("task", start), least_at("task", start + timedelta(hours=hours))
    tenants, groups = _Names("tenant", anonymous), _Names("group", anonymous)
    known: dict[str, Tenant] = {}
    types: dict[str, _Type] = {}
    arrivals: list[Arrivals] = []
    after = ""
    while True:
        rows = await database.run(
            lambda connection, after=after: replays.batch(  # type: ignore[misc]
                connection, first=first, past=past, after=after, size=BATCH
            )
        )
        for row in rows:
            name = tenants.of(row.tenant_id)
            known[name] = Tenant(name, row.weight, row.service_class)
            _count(types.setdefault(row.type, _Type(row)), row)
            arrivals.append(_arrival(row, name, groups.of(row.task_group), start))
        if len(arrivals) > most_tasks:
            raise TooMuch
        if len(rows) < BATCH:
            break
        after = rows[-1].task_id
    pools = await _pools(database) if seats is None else (SeatPool("main", seats),)
    work = {name: _work(name, one, registry) for name, one in types.items()}
    title = f"what came from {start.isoformat()} on"
    return Load(title, hours, known, work, pools, tuple(arrivals), start_at=start)


def _count(one: _Type, row: Row[Any]) -> None:
    one.ended += row.ended
    one.failed += row.failed
    if row.run_seconds is not None:
        one.ran += 1
        one.run_seconds += row.run_seconds


def _arrival(row: Row[Any], tenant: str, group: str, start: datetime) -> Arrivals:
    def after_submission(moment: datetime | None) -> float | None:
        return None if moment is None else max(0.0, (moment - row.submitted_at).total_seconds())

    return Arrivals(
        row.type, (tenant,), max(0.0, (row.submitted_at - start).total_seconds()), group=group,
        due_in_seconds=after_submission(row.due_at), valid_for_seconds=after_submission(row.valid_until),
        not_before_seconds=after_submission(row.not_before) or 0.0,
        run_seconds=None if row.run_seconds is None else max(LEAST_RUN_SECONDS, row.run_seconds),
    )  # fmt: skip


def _work(name: str, one: _Type, registry: Mapping[str, TaskType]) -> Work:
    """Take a type as it is declared here; of one that is not, what its tasks say of it."""
    declared = registry.get(name)
    spec = declared.spec if declared is not None else TaskTypeSpec(name)
    spec = replace(
        spec, timeout_seconds=one.row.timeout_seconds, cost_class=CostClass(one.row.cost_class),
        preemptible=one.row.preemptible,
    )  # fmt: skip
    mean = one.run_seconds / one.ran if one.ran else 1.0
    return Work(spec, max(LEAST_RUN_SECONDS, mean), fails=min(1.0, one.failed / one.ended) if one.ended else 0.0)


async def _pools(database: Database) -> tuple[SeatPool, ...]:
    live = pools_of(await database.run(workers.live))
    seats = Counter({pool.classes: pool.seats for pool in live})
    return tuple(SeatPool(f"pool-{at}", count, classes) for at, (classes, count) in enumerate(seats.items(), start=1))
