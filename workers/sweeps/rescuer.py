"""Takes running tasks back from workers that are gone: those whose lease is over.

The attempt stays charged, because the worker may have died of it; it is a crash of the task. The task comes back at
once the first time and a little later each further time; from now on its worker runs it alone in a child process, and
a crash there is that worker's to settle. Only a task that kills whole workers even so ends here, `CRASHES_SPARE`
crashes beyond its attempts. Whom somebody asked to cancel is cancelled.
"""

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Row

from app.domain.lifecycle import Move, is_final, target
from app.domain.outcome import Settlement
from app.ids import mint
from app.runtime import Runtime
from app.store import flights
from app.store.settlements import settle
from app.telemetry.attempts import EndedAttempt
from app.telemetry.logs import log_attempts
from app.telemetry.tracing import trace_id_of

INTERVAL_SECONDS = 0.5
_AWAY_AFTER_SECONDS = 3.0
CRASHES_SPARE = 5
_BATCH = 200
_LONGEST_PAUSE_SECONDS = 60.0


def decide(row: Row[Any], draw: float) -> Settlement:
    """Decide about one lost flight; `draw` is from [0, 1)."""
    if row.cancel:
        return Settlement(row.task_id, row.fence, Move.CANCEL, "cancelled", spent=False)
    message = f"the worker {row.worker_id} stopped renewing its lease"
    dead = row.crashes + 1 >= row.max_attempts + CRASHES_SPARE
    pause = min(_LONGEST_PAUSE_SECONDS, 2.0**row.crashes) * (0.5 + draw / 2) if row.crashes else 0.0
    return Settlement(
        row.task_id,
        row.fence,
        Move.DEAD_LETTER if dead else Move.FAIL,
        "worker_lost",
        error_type="worker_lost",
        error_message=message,
        error_retryable=not dead,
        after_seconds=None if dead else pause,
        dead_letter_id=mint("dead") if dead else None,
        crashed=True,
    )


@dataclass(slots=True)
class Watch:
    """Whether leases that are over mean anything: not right after nobody could renew them.

    A database that was away (or whose successor was promoted) lets every lease run out. Whoever watches sees that by
    its own silence, and gives the workers `patience_seconds` to come back; so does a new leader, who knows nothing yet.
    """

    patience_seconds: float
    _looked_at: float | None = None
    _believes_at: float = 0.0

    def looked(self, now: float) -> None:
        """Note at `now` (`time.monotonic()`) that the database has answered."""
        if self._looked_at is None or now - self._looked_at > _AWAY_AFTER_SECONDS:
            self._believes_at = now + self.patience_seconds
        self._looked_at = now

    def believes(self, now: float) -> bool:
        """Say whether a lease that is over at `now` is its worker's own fault."""
        return now >= self._believes_at


def watch_of(runtime: Runtime) -> Watch:
    """Begin to watch; a worker reconnects and renews within a connection's time and a few heartbeats."""
    worker = runtime.settings.worker
    comes_back = runtime.settings.database.connect_timeout_seconds + 3 * worker.heartbeat_seconds
    return Watch(min(comes_back, worker.lease_seconds / 3))


async def run_once(runtime: Runtime, watch: Watch | None = None) -> int:
    """Settle flights whose lease is over; returns how many were taken back."""
    taken = 0
    while True:
        async with runtime.database.transaction() as connection:
            rows = await flights.lost(connection, _BATCH)
        if watch is not None:
            watch.looked(time.monotonic())
            if not watch.believes(time.monotonic()):
                return taken
        decided = [(row, decide(row, runtime.draw())) for row in rows]
        settled: set[str] = set()
        for move in (Move.FAIL, Move.CANCEL, Move.DEAD_LETTER):
            batch = [settlement for _, settlement in decided if settlement.move is move]
            if batch:
                settled |= await settle(runtime.database, batch)
        _tell(runtime, [(row, settlement) for row, settlement in decided if row.task_id in settled])
        taken += len(settled)
        if len(rows) < _BATCH or not settled:
            break
    if taken:
        runtime.dispatcher_poke.poke()
    return taken


def _tell(runtime: Runtime, taken: Sequence[tuple[Row[Any], Settlement]]) -> None:
    """Count and log the attempts that ended here; whoever waits for their tasks in this process hears of it at once."""
    for priority_class, count in Counter(row.priority_class for row, _ in taken).items():
        runtime.metrics.workers_lost(priority_class, count)
    ended = [_ended(row, settlement) for row, settlement in taken]
    runtime.metrics.attempts_ended(ended)
    log_attempts(ended)
    runtime.tell_ended([one.task_id for one in ended if is_final(one.status)])


def _ended(row: Row[Any], settlement: Settlement) -> EndedAttempt:
    return EndedAttempt(
        task_id=row.task_id,
        attempt=row.attempts,
        worker_id=row.worker_id,
        tenant_id=row.tenant_id,
        priority_class=row.priority_class,
        type=row.task_type,
        status=target(settlement.move).value,
        outcome=settlement.outcome,
        queue_seconds=max(0.0, (row.claimed_at - row.queued_at).total_seconds()),
        run_seconds=(row.now - row.claimed_at).total_seconds(),
        attempts_spent=row.attempts,
        error_type=settlement.error_type,
        trace_id=trace_id_of(row.traceparent),
    )
