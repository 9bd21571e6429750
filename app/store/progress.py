"""The progress that running attempts tell of."""

import json
from collections.abc import Sequence

from sqlalchemy import text

from app.store.database import Database

_WRITE = text("""
UPDATE tasks t SET progress = g.progress, updated_at = clock_timestamp()
FROM unnest(CAST(:ids AS text[]), CAST(:fences AS bigint[]), CAST(:progresses AS text[])) AS g(task_id, fence, progress)
JOIN flights f ON f.task_id = g.task_id AND f.fence = g.fence
WHERE t.task_id = g.task_id AND t.status = 'running'
""")


async def write(database: Database, said: Sequence[tuple[str, int, float, str]]) -> None:
    """Write (task_id, fence, fraction, message) of attempts that still own their tasks; the others write nothing."""
    ordered = sorted(said)
    await database.execute_hot(
        _WRITE,
        {
            "ids": [one[0] for one in ordered],
            "fences": [one[1] for one in ordered],
            "progresses": [json.dumps({"fraction": one[2], "message": one[3]}) for one in ordered],
        },
        retry_for_seconds=0.0,
    )
