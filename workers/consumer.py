"""The walk of a delivery: received → claimed → run → settled (commit) → acked.

`TaskConsumer.handle` shows it from top to bottom. The steps that touch the database work on as many as have arrived
together (`claiming`, `settling`); nothing per task costs a round trip. Handlers never run inside a broker callback.
"""

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from math import ceil

from app.broker.base import BrokerClosed, Consumer, Delivery, Malformed, TaskMessage
from app.domain.outcome import Settlement
from app.runtime import Runtime
from app.store.flights import Claimed
from app.telemetry.logs import event
from workers.attempt import Attempt
from workers.claiming import BATCH, Claims
from workers.context import TaskContext
from workers.facilities import Facilities
from workers.run import Interrupt, Run
from workers.runner import Runner
from workers.settling import Settlements

log = logging.getLogger("despacho.worker")
_LAST_WORDS_SECONDS = 3.0
_SHORT_RUN_SECONDS = 0.05
_NEWEST_SHARE = 0.05


class TaskConsumer:
    """Turns deliveries into settled tasks, as many at a time as it has slots.

    `runs` are the attempts that it owns. While tasks are so short that slots would stand empty for the length of a
    claim, a few are claimed ahead: they wait in `_next` for a slot, for milliseconds, and go back if that fails.
    """

    def __init__(
        self,
        runtime: Runtime,
        consumer: Consumer,
        runner: Runner,
        *,
        worker_id: str,
        slots: int,
        facilities: Facilities,
        record_malformed: Callable[[Delivery], Awaitable[None]],
    ) -> None:
        self.consumer = consumer
        self.slots = slots
        self.runs: dict[tuple[str, int], Run] = {}
        self._next: deque[Run] = deque()
        self._mean_run_seconds = 1.0
        self._settings = runtime.settings.worker
        self._last_writes_seconds = runtime.settings.database.retry_for_seconds
        self._runner = runner
        self._facilities = facilities
        self._worker_id = worker_id
        self._record_malformed = record_malformed
        self._tails = 0
        self._draining = False
        self._moved = asyncio.Event()
        self.claims = Claims(runtime, consumer, worker_id=worker_id, room=lambda: self.room, on_claimed=self.start)
        self.settlements = Settlements(
            runtime, consumer, worker_id=worker_id, unstorable=runner.unstorable, on_written=self._look
        )

    @property
    def free_slots(self) -> int:
        """How many more handlers may start."""
        return max(0, self.slots - (len(self.runs) - len(self._next)) - self._tails)

    @property
    def room(self) -> int:
        """How many more tasks may be claimed. Unwritten settlements beyond a few batches hold new work back."""
        backlog = max(0, self.settlements.backlog - 4 * BATCH)
        room = max(0, self.free_slots + self._ahead - len(self._next) - backlog)
        # With a reserve claimed ahead no slot stands empty while a few more come together for one statement.
        return room if len(self._next) == 0 or room >= self.slots // 2 else 0

    @property
    def _ahead(self) -> int:
        if self._mean_run_seconds > _SHORT_RUN_SECONDS:
            return 0
        return min(self.slots, ceil(self.slots * self.claims.mean_seconds / max(self._mean_run_seconds, 0.001)))

    async def receive_forever(self) -> None:
        """Handle deliveries as they come, until the consumer is closed."""
        with contextlib.suppress(BrokerClosed):
            while True:
                for delivery in await self.consumer.receive(BATCH):
                    await self.handle(delivery)

    async def handle(self, delivery: Delivery) -> None:
        """Handle one delivery: what cannot be read is parked; a task is claimed, run, settled and acked."""
        match delivery.message:
            case Malformed():
                await self._park(delivery)  # a dead letter without a task, committed, then acked
            case TaskMessage() as message:
                self.claims.add(delivery, message)  # → start, when its row is ours; otherwise acked

    def start(self, claimed: Claimed, delivery: Delivery) -> None:
        """Run a claimed task; when it ends, its settlement is written and its delivery acked."""
        run = self._run_of(claimed, delivery)
        if self._draining:
            run.interrupt = Interrupt.SHUTDOWN
            self.end(run)
            return
        is_slot_free = self.free_slots > 0
        self.runs[claimed.task_id, claimed.fence] = run
        if claimed.timeout_seconds > self._settings.ack_after_settle_max_seconds:
            # The broker would close the channel of a delivery held for long; the claim is committed, and the lease
            # alone guards the task from here on.
            self.consumer.ack([delivery])
            run.delivery = None
        if is_slot_free:
            self._launch(run)
        else:
            self._next.append(run)

    def _launch(self, run: Run) -> None:
        loop = asyncio.get_running_loop()
        run.started_at = loop.time()
        run.timer = loop.call_later(run.claimed.timeout_seconds, run.stop, Interrupt.TIMEOUT)
        run.task = loop.create_task(self._runner.run(run))
        run.task.add_done_callback(lambda task: self._ran(run, task))

    def _launch_next(self) -> None:
        while self._next and self.free_slots > 0:
            run = self._next.popleft()
            if run.interrupt is None:
                self._launch(run)
            else:
                self._give_up(run)

    def _give_up(self, run: Run) -> None:
        """Settle a claimed task that never started, by its interruption."""
        del self.runs[run.claimed.task_id, run.claimed.fence]
        self.end(run)

    def give_back_late(self) -> None:
        """Return what was claimed ahead and found no slot in time: longer tasks than expected hold them all."""
        late = asyncio.get_running_loop().time() - self._settings.hand_back_seconds
        while self._next and self._next[0].started_at < late:
            run = self._next.popleft()
            run.interrupt = run.interrupt or Interrupt.SHUTDOWN
            self._give_up(run)

    def _ran(self, run: Run, task: asyncio.Task[Settlement | None]) -> None:
        """The handler has ended: free its slot and have its settlement written."""
        # A task that is cancelled before its first step never runs a line: then the interruption decides.
        settlement = self._runner.interrupted(run) if task.cancelled() else task.result()
        if run.timer is not None:
            run.timer.cancel()
        took = asyncio.get_running_loop().time() - run.started_at
        self._mean_run_seconds += (took - self._mean_run_seconds) * _NEWEST_SHARE
        del self.runs[run.claimed.task_id, run.claimed.fence]
        if run.tail is not None and not run.tail.done():
            self._tails += 1
            run.tail.add_done_callback(self._tail_ended)
        self.settlements.add(run, settlement)
        self._launch_next()
        self._look()

    def end(self, run: Run) -> None:
        """Settle an interrupted attempt now, whatever its handler does; its slot stays taken until that has ended."""
        self.settlements.add(run, self._runner.interrupted(run))

    async def drain(self, grace_seconds: float) -> None:
        """Take nothing more, hand back what waits, let what runs end within the grace, return the rest unspent."""
        give_up_at = asyncio.get_running_loop().time() + grace_seconds
        self._draining = True
        while self._next:
            run = self._next.popleft()
            run.interrupt = run.interrupt or Interrupt.SHUTDOWN
            self._give_up(run)
        await self.consumer.pause()
        self.claims.drain()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(give_up_at):
                await self._until(lambda: not self.runs and not self.claims.busy)
        for run in list(self.runs.values()):
            run.stop(Interrupt.SHUTDOWN)
        if tasks := [run.task for run in self.runs.values() if run.task is not None]:
            await asyncio.wait(tasks, timeout=min(self._settings.cancel_grace_seconds, _LAST_WORDS_SECONDS))
        for run in list(self.runs.values()):
            self.end(run)
        try:
            async with asyncio.timeout(self._last_writes_seconds):
                await self._until(lambda: not self.claims.busy and not self.settlements.busy)
        except TimeoutError:
            # The database stays away: the leases run out, and others take these tasks back.
            event(log, "drained_without_database", level=logging.ERROR, unwritten=self.settlements.backlog)

    async def _until(self, quiet: Callable[[], bool]) -> None:
        while not quiet():
            self._moved.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(0.05):
                    await self._moved.wait()

    def _look(self) -> None:
        self._moved.set()
        self.claims.look()

    def _run_of(self, claimed: Claimed, delivery: Delivery) -> Run:
        spec = self._runner.spec_of(claimed.type)
        owner = Attempt(
            claimed.task_id,
            claimed.tenant_id,
            spec,
            claimed.attempt,
            claimed.fence,
            claimed.dispatch,
            claimed.priority_class,
            self._worker_id,
            claimed.timeout_seconds,
            claimed.traceparent,
            claimed.tracestate,
        )
        context = TaskContext(owner, self._facilities)
        return Run(claimed, delivery, context, asyncio.get_running_loop().time())

    def _tail_ended(self, tail: asyncio.Future[object]) -> None:
        if not tail.cancelled():
            tail.exception()  # looked at, so that nobody reports it as never retrieved
        self._tails -= 1
        self._look()

    async def _park(self, delivery: Delivery) -> None:
        try:
            await self._record_malformed(delivery)
        except Exception as error:
            event(log, "malformed_message_not_recorded", level=logging.ERROR, error=error)
            self.consumer.requeue([delivery])
            return
        self.consumer.ack([delivery])
