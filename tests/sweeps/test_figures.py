"""The figures of a class are what lies in its places."""

import json

from app.domain.capacity import Pool, seat_book
from app.runtime import Runtime
from app.store.workers import Identity, beat
from tests.support.work import claimed, dead, finished, released, rows, submitted
from workers.sweeps.figures import lending, percentile, run_once


async def test_figures_count_every_place_and_the_waits(runtime: Runtime) -> None:
    task_ids = await submitted(runtime, 12)
    await finished(runtime, task_ids[:4])
    await dead(runtime, task_ids[4:5])
    await claimed(runtime, task_ids[5:7])
    await released(runtime, task_ids[7:8])
    await rows(
        runtime,
        "UPDATE ready SET queued_at = clock_timestamp() - interval '90 seconds' WHERE task_id = :id",
        id=task_ids[8],
    )
    await rows(
        runtime, "UPDATE attempts SET started_at = queued_at + interval '1 hour' WHERE task_id = :id", id=task_ids[0]
    )
    classes = tuple(runtime.policy.current.by_name)
    await beat(
        runtime.database, Identity("w", "p", classes, ("echo",), 10, "h", 1, "0"), draining=False, alive_seconds=60
    )

    await run_once(runtime)

    (row,) = await rows(runtime, "SELECT figures FROM class_figures WHERE priority_class = 'common'")
    figures = json.loads(row["figures"])
    counts = (figures["waiting"], figures["released"], figures["running"], figures["delayed"])
    assert counts == (4, 1, 2, 0)
    assert 90 <= figures["oldest_waiting_seconds"] < 120
    assert figures["nominal"] == 2
    assert figures["started_within_target"] == 0.8
    assert figures["wait_p50_seconds"] < 60 <= figures["wait_p99_seconds"]
    assert len(await rows(runtime, "SELECT 1 FROM class_figures")) == 4


def test_borrowed_seats_are_those_beyond_the_reserve_and_beyond_what_is_nobodys(runtime: Runtime) -> None:
    policy = runtime.policy.current
    book = seat_book(policy, (Pool(frozenset(policy.by_name), 10),))
    reserve = {name: one.reserve for name, one in book.allotments.items()}
    nobodys = 10 - sum(reserve.values())

    lent, borrowed = lending(policy.classes, book, {"common": reserve["common"] + nobodys + 2})

    assert borrowed == {"critical": 0, "short_deadline": 0, "common": 2, "deferrable": 0}
    assert lent == {"critical": 2, "short_deadline": 0, "common": 0, "deferrable": 0}


def test_percentiles() -> None:
    ordered = [float(n) for n in range(1, 101)]

    assert (percentile(ordered, 0.5), percentile(ordered, 0.95), percentile([7.0], 0.99)) == (51.0, 96.0, 7.0)
    assert percentile([], 0.5) is None
