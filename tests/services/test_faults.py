"""Services while the database goes away under them: nothing is half done, nothing is done twice."""

import asyncio

from app.runtime import Runtime
from app.services import dead_letters
from app.services.actors import ServiceActor
from app.services.cancellation import cancel_task
from app.store.database import DatabaseUnavailable
from tests.support.postgres import PrivatePostgres
from tests.support.work import dead, rows, submitted

ACME = ServiceActor("ana", "key_1", "acme")


async def test_sessions_that_are_ended_under_cancel_and_reprocess_lose_and_double_nothing(
    runtime: Runtime, postgres: PrivatePostgres, database_url: str
) -> None:
    waiting = await submitted(runtime, 30)
    letters = await submitted(runtime, 30)
    await dead(runtime, letters)

    async def keep_ending() -> None:
        for _ in range(6):
            await postgres.terminate_backends(database_url)
            await asyncio.sleep(0)

    async def cancel(task_id: str) -> str:
        try:
            return str((await cancel_task(runtime, ACME, task_id)).task.status)
        except DatabaseUnavailable:
            return "unavailable"

    async def reprocess(task_id: str) -> str:
        try:
            return str((await dead_letters.reprocess(runtime, ACME, task_id, "again")).status)
        except DatabaseUnavailable:
            return "unavailable"

    *answers, _ = await asyncio.gather(
        *(cancel(task_id) for task_id in waiting), *(reprocess(task_id) for task_id in letters), keep_ending()
    )

    ended = {row["task_id"]: row["status"] for row in await rows(runtime, "SELECT task_id, status FROM tasks")}
    for task_id, said in zip([*waiting, *letters], answers, strict=True):
        assert said in ("unavailable", ended[task_id]), task_id
    places = await rows(
        runtime,
        "SELECT (SELECT count(*) FROM delayed) AS delayed, (SELECT count(*) FROM dead_letters) AS dead, "
        "(SELECT count(*) FROM ready) AS ready, "
        "(SELECT count(*) FROM events WHERE kind = 'reprocessed') AS reprocessed, "
        "(SELECT count(*) FROM audit WHERE action = 'dead_letter.reprocess') AS audited",
    )
    queued = sum(ended[task_id] == "queued" for task_id in letters)
    assert places[0]["delayed"] == places[0]["reprocessed"] == places[0]["audited"] == queued
    assert places[0]["dead"] == 30 - queued
    assert places[0]["ready"] == sum(ended[task_id] == "queued" for task_id in waiting)
