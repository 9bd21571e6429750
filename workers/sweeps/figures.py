"""Counts how every class stands and writes it down, for the API, the metrics and whoever looks."""

import json
from collections.abc import Mapping, Sequence

from app.broker.base import BrokerUnreachable
from app.domain.capacity import SeatBook, seat_book
from app.domain.policy import PriorityClass
from app.runtime import Runtime
from app.services.releases import pools_of
from app.store import approvals, effect_lists, figures, workers
from app.store.figures import Counted
from app.telemetry.metrics import ClassFigures

INTERVAL_SECONDS = 2.0


async def run_once(runtime: Runtime) -> int:
    """Count and write down; returns how many classes there are."""
    policy = runtime.policy.current
    consumers = await _consumers(runtime, list(policy.by_name))
    async with runtime.database.transaction() as connection:
        counted, now = await figures.count(connection)
        asked = await approvals.waiting(connection)
        dead = await figures.dead_letters_by_error_type(connection)
        in_doubt = await effect_lists.in_doubt_by_type(connection)
        overdue = await effect_lists.count_overdue(connection)
        live = await workers.live(connection)
        book = seat_book(policy, pools_of(live))
        running = {name: one.running for name, one in counted.items()}
        lent, borrowed = lending(policy.classes, book, running)
        found = [
            _figures(one, counted.get(one.name, Counted()), book, now.timestamp(), lent, borrowed, consumers)
            for one in policy.classes
        ]
        await figures.write(
            connection,
            {
                row.priority_class: _spell(
                    row, counted.get(row.priority_class, Counted()), book.allotments[row.priority_class].reach
                )
                for row in found
            },
        )
    runtime.metrics.class_figures(found)
    runtime.metrics.dead_letters_open(dead)
    # A class that nobody waits in stays on the page, at zero: an alert sees it end.
    nobody = {one.name: (0, 0, 0.0) for one in policy.classes}
    runtime.metrics.approvals_waiting(
        nobody
        | {row.priority_class: (row.n, row.overdue, max(0.0, (now - row.oldest_at).total_seconds())) for row in asked}
    )
    runtime.metrics.effects_standing(in_doubt, overdue)
    return len(found)


def lending(
    classes: Sequence[PriorityClass], book: SeatBook, running: Mapping[str, int]
) -> tuple[dict[str, int], dict[str, int]]:
    """Say how many seats of its idle reserve each class has lent, and how many each has borrowed.

    Seats that are nobody's reserve are taken first; what is held beyond them is borrowed from the idle reserves, the
    highest rank's first.
    """
    seats = max((one.seats for rows in book.constraints.values() for one in rows), default=0)
    reserve = {one.name: book.allotments[one.name].reserve for one in classes}
    over = {one.name: max(0, running.get(one.name, 0) - reserve[one.name]) for one in classes}
    free = max(0, seats - sum(reserve.values()))
    borrowed: dict[str, int] = {}
    for one in classes:
        taken = min(free, over[one.name])
        free -= taken
        borrowed[one.name] = over[one.name] - taken
    owed = sum(borrowed.values())
    lent: dict[str, int] = {}
    for one in classes:
        lent[one.name] = min(owed, max(0, reserve[one.name] - running.get(one.name, 0)))
        owed -= lent[one.name]
    return lent, borrowed


def percentile(ordered: Sequence[float], share: float) -> float | None:
    """Give the value that `share` of the ordered values do not exceed; None where there are none."""
    if not ordered:
        return None
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def _figures(
    one: PriorityClass,
    counted: Counted,
    book: SeatBook,
    now: float,
    lent: Mapping[str, int],
    borrowed: Mapping[str, int],
    consumers: Mapping[str, int],
) -> ClassFigures:
    allotment = book.allotments[one.name]
    oldest = counted.oldest_at
    return ClassFigures(
        priority_class=one.name,
        waiting=counted.waiting,
        delayed=counted.delayed,
        released=counted.released,
        running=counted.running,
        seats_nominal=allotment.reserve,
        seats_maximum=allotment.maximum,
        seats_lent=lent[one.name],
        seats_borrowed=borrowed[one.name],
        oldest_waiting_seconds=0.0 if oldest is None else max(0.0, now - oldest.timestamp()),
        consumers=consumers.get(one.name, 0),
        start_within_seconds=one.start_within_seconds,
    )


def _spell(row: ClassFigures, counted: Counted, reach: int) -> str:
    waits = counted.waits
    in_time = [wait for wait in waits if row.start_within_seconds is None or wait <= row.start_within_seconds]
    return json.dumps(
        {
            "waiting": row.waiting,
            "delayed": row.delayed,
            "released": row.released,
            "running": row.running,
            "reach": reach,
            "nominal": row.seats_nominal,
            "maximum": row.seats_maximum,
            "lent": row.seats_lent,
            "borrowed": row.seats_borrowed,
            "oldest_waiting_seconds": row.oldest_waiting_seconds,
            "wait_p50_seconds": percentile(waits, 0.5),
            "wait_p95_seconds": percentile(waits, 0.95),
            "wait_p99_seconds": percentile(waits, 0.99),
            "started_within_target": len(in_time) / len(waits) if waits else None,
            "consumers": row.consumers,
        }
    )


async def _consumers(runtime: Runtime, classes: Sequence[str]) -> dict[str, int]:
    try:
        return {name: depth.consumers for name, depth in (await runtime.broker.depths(classes)).items()}
    except BrokerUnreachable:
        return {}
