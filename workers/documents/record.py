"""What the filters found, into the histories of the tasks: what arrives together goes in one statement."""

from collections.abc import Sequence

from app.coalescer import Coalescer
from app.runtime import Runtime
from app.store import input_filters as store
from app.store.database import LockTimeout, is_data_error
from app.store.input_filters import FilterEvent
from workers.attempt import Attempt

_MOST = 100


class FilterRecord:
    """The events `input_filtered` of the tasks of one process."""

    def __init__(self, runtime: Runtime) -> None:
        self._database = runtime.database
        self._retry_for_seconds = runtime.settings.database.retry_for_seconds
        self._events: Coalescer[FilterEvent, bool] = Coalescer(
            self._store,
            max_items=_MOST,
            splits_on=lambda error: is_data_error(error) or isinstance(error, LockTimeout),
            observe=lambda size: runtime.metrics.batch_flushed("input_filter", size),
        )

    async def record(self, owner: Attempt, verdict: str, detail: str) -> bool:
        """Write one event; returns whether the attempt still owns its task."""
        return await self._events.submit(FilterEvent(owner.task_id, owner.fence, verdict, detail))

    async def _store(self, events: Sequence[FilterEvent]) -> Sequence[bool]:
        owned = await store.record(self._database, events, retry_for_seconds=self._retry_for_seconds)
        return [(one.task_id, one.fence) in owned for one in events]
