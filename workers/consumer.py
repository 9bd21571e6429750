"""The walk of a delivery: received → claimed → run → settled (commit) → acked.

Everything here works on as many deliveries as have arrived together; nothing per task costs a round trip. Claims and
settlements are two pipelines of one flush at a time each: what arrives meanwhile goes in the next.
"""

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence

from app.broker.base import BrokerClosed, Consumer, Delivery, Malformed, TaskMessage
from app.domain.lifecycle import Move, is_final, target
from app.domain.outcome import Settlement
from app.runtime import Runtime
from app.store import flights, settlements
from app.store.database import is_data_error, is_transient
from app.store.flights import Claimed
from app.telemetry.attempts import EndedAttempt
from app.telemetry.logs import event, log_attempts
from app.telemetry.tracing import trace_id_of
from workers.context import ReadInput, TaskContext
from workers.run import Interrupt, Run
from workers.runner import Runner

log = logging.getLogger("despacho.worker")
BATCH = 500
RecordMalformed = Callable[[Delivery], Awaitable[None]]


class TaskConsumer:
    """Turns deliveries into settled tasks, as many at a time as it has slots."""

    def __init__(
        self,
        runtime: Runtime,
        consumer: Consumer,
        runner: Runner,
        *,
        worker_id: str,
        slots: int,
        read_input: ReadInput,
        record_malformed: RecordMalformed,
    ) -> None:
        self.runtime = runtime
        self.consumer = consumer
        self.runner = runner
        self.worker_id = worker_id
        self.slots = slots
        self.runs: dict[tuple[str, int], Run] = {}
        self.tails = 0
        self._settings = runtime.settings.worker
        self._read_input = read_input
        self._record_malformed = record_malformed
        self._inbox: deque[tuple[float, Delivery]] = deque()
        self._ended: list[tuple[Run, Settlement]] = []
        self._claim_now = asyncio.Event()
        self._settle_now = asyncio.Event()
        self._draining = False
        self._claiming = False
        self._settling = False
        self._moved = asyncio.Event()

    @property
    def free_slots(self) -> int:
        """How many more attempts may start. Unwritten settlements beyond a few batches hold new work back too."""
        backlog = max(0, len(self._ended) - 4 * BATCH)
        return max(0, self.slots - len(self.runs) - self.tails - backlog)

    # --- receive -----------------------------------------------------------------------------------------------

    async def receive_forever(self) -> None:
        """Take deliveries as they come, until the consumer is closed."""
        loop = asyncio.get_running_loop()
        while True:
            try:
                deliveries = await self.consumer.receive(BATCH)
            except BrokerClosed:
                return
            now = loop.time()
            for delivery in deliveries:
                if isinstance(delivery.message, Malformed):
                    await self._park(delivery)
                else:
                    self._inbox.append((now, delivery))
            self._claim_now.set()

    async def _park(self, delivery: Delivery) -> None:
        try:
            await self._record_malformed(delivery)
        except Exception as error:
            event(log, "malformed_message_not_recorded", level=logging.ERROR, error=error)
            self.consumer.requeue([delivery])
            return
        self.consumer.ack([delivery])

    # --- claim -------------------------------------------------------------------------------------------------

    async def claim_forever(self) -> None:
        """Claim what waits whenever slots are free; give back what has waited too long for one."""
        loop = asyncio.get_running_loop()
        while True:
            if not self._inbox:
                self._claim_now.clear()
                await self._claim_now.wait()
                continue
            room = 0 if self._draining else min(self.free_slots, BATCH)
            if room:
                batch = [self._inbox.popleft()[1] for _ in range(min(room, len(self._inbox)))]
                self._claiming = True
                await self._claim(batch)
                self._claiming = False
                self._moved.set()
                continue
            patience = 0.0 if self._draining else self._settings.hand_back_seconds
            wait = self._inbox[0][0] + patience - loop.time()
            if wait > 0:
                self._claim_now.clear()
                try:
                    async with asyncio.timeout(wait):
                        await self._claim_now.wait()
                except TimeoutError:
                    pass
                continue
            late = loop.time() - patience
            batch = []
            while self._inbox and self._inbox[0][0] <= late and len(batch) < BATCH:
                batch.append(self._inbox.popleft()[1])
            self._claiming = True
            await self._hand_back(batch, "worker_full" if not self._draining else "worker_draining")
            self._claiming = False
            self._moved.set()

    async def _claim(self, batch: Sequence[Delivery]) -> None:
        by_id: dict[str, Delivery] = {}
        doubles: list[Delivery] = []
        wants: list[tuple[str, int, str, str]] = []
        for delivery in batch:
            message = delivery.message
            assert isinstance(message, TaskMessage)  # noqa: S101 - the inbox holds nothing else
            if message.task_id in by_id:
                doubles.append(delivery)
                continue
            by_id[message.task_id] = delivery
            wants.append((message.task_id, message.dispatch, message.type, message.tenant_id))
        for claimed in await self._claimed(wants):
            run = self._run_of(claimed, by_id.pop(claimed.task_id))
            if self._draining:
                run.interrupt = Interrupt.SHUTDOWN
                self.end(run, self.runner.interrupted(run))
            else:
                self._start(run)
        # Stale, doubled, running elsewhere, cancelled or expired: the row has decided, the message is done.
        not_ours = [*by_id.values(), *doubles]
        if not_ours:
            self.consumer.ack(not_ours)
            for delivery in not_ours:
                self.runtime.metrics.deliveries_stale(delivery.priority_class)

    async def _claimed(self, wants: Sequence[tuple[str, int, str, str]]) -> list[Claimed]:
        """Claim, for as long as it takes: the deliveries stay ours until the database has answered."""
        in_doubt = False
        while True:
            try:
                return await flights.claim(
                    self.runtime.database,
                    wants,
                    worker_id=self.worker_id,
                    lease_seconds=self._settings.lease_seconds,
                    retry_for_seconds=0.0,
                    in_doubt=in_doubt,
                )
            except Exception as error:
                if not is_transient(error):
                    event(log, "claim_failed", level=logging.ERROR, error=error)
                in_doubt = True
                await asyncio.sleep(0.05 + 0.2 * self.runtime.draw())

    def _run_of(self, claimed: Claimed, delivery: Delivery) -> Run:
        context = TaskContext(
            task_id=claimed.task_id,
            task_type=claimed.type,
            tenant_id=claimed.tenant_id,
            attempt=claimed.attempt,
            priority_class=claimed.priority_class,
            traceparent=claimed.traceparent,
            read_input=self._read_input,
        )
        return Run(claimed, delivery, context, asyncio.get_running_loop().time())

    def _start(self, run: Run) -> None:
        loop = asyncio.get_running_loop()
        claimed, delivery = run.claimed, run.delivery
        self.runs[claimed.task_id, claimed.fence] = run
        if delivery is not None and claimed.timeout_seconds > self._settings.ack_after_settle_max_seconds:
            # The broker would close the channel of a delivery held for long; the claim is committed, and the lease
            # alone guards the task from here on.
            self.consumer.ack([delivery])
            run.delivery = None
        run.timer = loop.call_later(claimed.timeout_seconds, run.stop, Interrupt.TIMEOUT)
        run.task = loop.create_task(self.runner.run(run))
        run.task.add_done_callback(lambda task: self._ran(run, task))

    def _ran(self, run: Run, task: asyncio.Task[Settlement | None]) -> None:
        """The handler has ended: free its slot and queue its settlement."""
        # A task that is cancelled before its first step never runs a line: then the interruption decides.
        settlement = self.runner.interrupted(run) if task.cancelled() else task.result()
        if run.timer is not None:
            run.timer.cancel()
        del self.runs[run.claimed.task_id, run.claimed.fence]
        if run.tail is not None and not run.tail.done():
            self.tails += 1
            run.tail.add_done_callback(self._tail_ended)
        self.end(run, settlement)
        self._moved.set()
        self._claim_now.set()

    def _tail_ended(self, tail: asyncio.Future[object]) -> None:
        if not tail.cancelled():
            tail.exception()
        self.tails -= 1
        self._claim_now.set()

    def end(self, run: Run, settlement: Settlement | None) -> None:
        """Queue the one settlement of a run; without one (the attempt is no longer ours) only its message is done."""
        if run.settled:
            return
        run.settled = True
        if settlement is None:
            self._ack([run])
            return
        self._ended.append((run, settlement))
        self._settle_now.set()

    async def _hand_back(self, batch: Sequence[Delivery], why: str) -> None:
        rows = [(m.task_id, m.dispatch) for m in (d.message for d in batch) if isinstance(m, TaskMessage)]
        while True:
            try:
                await flights.hand_back(
                    self.runtime.database, rows, worker_id=self.worker_id, why=why, retry_for_seconds=0.0
                )
                break
            except Exception as error:
                if not is_transient(error):
                    event(log, "hand_back_failed", level=logging.ERROR, error=error)
                await asyncio.sleep(0.05 + 0.2 * self.runtime.draw())
        self.consumer.ack(batch)
        for delivery in batch:
            self.runtime.metrics.handed_back(delivery.priority_class)
        self.runtime.dispatcher_poke.poke()

    # --- settle ------------------------------------------------------------------------------------------------

    async def settle_forever(self) -> None:
        """Write settlements as they come: commit, then ack."""
        while True:
            if not self._ended:
                self._settle_now.clear()
                await self._settle_now.wait()
            batch = self._ended[:BATCH]
            del self._ended[: len(batch)]
            self._settling = True
            groups: dict[Move, list[tuple[Run, Settlement]]] = {}
            for entry in batch:
                groups.setdefault(entry[1].move, []).append(entry)
            for group in groups.values():
                await self._settle(group)
            self._settling = False
            self._moved.set()
            self._claim_now.set()

    async def _settle(self, group: list[tuple[Run, Settlement]]) -> None:
        owned, in_doubt = await self._written(group)
        self._ack(run for run, _ in group)
        self._tell(group, owned, in_doubt)

    async def _written(self, group: list[tuple[Run, Settlement]]) -> tuple[set[str], bool]:
        """Commit settlements of one move, for as long as it takes; tells which were ours to write."""
        in_doubt = False
        while True:
            try:
                written = await settlements.settle(
                    self.runtime.database, [settlement for _, settlement in group], retry_for_seconds=0.0
                )
                return written, in_doubt
            except Exception as error:
                if is_data_error(error):
                    return await self._split(group), in_doubt
                if not is_transient(error):
                    event(log, "settlement_failed", level=logging.ERROR, error=error)
                in_doubt = True
                await asyncio.sleep(0.05 + 0.2 * self.runtime.draw())

    async def _split(self, group: list[tuple[Run, Settlement]]) -> set[str]:
        """Find the settlement that cannot be stored: it becomes a failure that says so, the others stay as they are."""
        if len(group) > 1:
            middle = len(group) // 2
            first, _ = await self._written(group[:middle])
            second, _ = await self._written(group[middle:])
            return first | second
        run, _ = group[0]
        replaced = self.runner.unstorable(run)
        written, _ = await self._written([(run, replaced)])
        return written

    def _ack(self, runs: Iterable[Run]) -> None:
        deliveries = [run.delivery for run in runs if run.delivery is not None]
        if deliveries:
            self.consumer.ack(deliveries)

    def _tell(self, group: list[tuple[Run, Settlement]], owned: set[str], in_doubt: bool) -> None:
        """Count and log what was written; whoever waits for these tasks in this process hears of it at once."""
        now = asyncio.get_running_loop().time()
        status = target(group[0][1].move).value
        ended: list[EndedAttempt] = []
        for run, settlement in group:
            claimed = run.claimed
            if claimed.task_id not in owned:
                if not in_doubt:
                    event(log, "stale_attempt", task_id=claimed.task_id, attempt=claimed.attempt, fence=claimed.fence)
                    self.runtime.metrics.leases_lost(claimed.priority_class)
                continue
            ended.append(
                EndedAttempt(
                    task_id=claimed.task_id,
                    attempt=claimed.attempt,
                    worker_id=self.worker_id,
                    tenant_id=claimed.tenant_id,
                    priority_class=claimed.priority_class,
                    type=claimed.type,
                    status=status,
                    outcome=settlement.outcome,
                    queue_seconds=max(0.0, (claimed.claimed_at - claimed.queued_at).total_seconds()),
                    run_seconds=now - run.started_at,
                    attempts_spent=claimed.attempt,
                    error_type=settlement.error_type,
                    trace_id=trace_id_of(claimed.traceparent),
                )
            )
        self.runtime.metrics.attempts_ended(ended)
        log_attempts(ended)
        if is_final(status) and self.runtime.ended:
            self.runtime.tell_ended([attempt.task_id for attempt in ended])

    # --- drain -------------------------------------------------------------------------------------------------

    async def drain(self, grace_seconds: float) -> None:
        """Take nothing more, hand back what waits, let what runs end within the grace, return the rest unspent."""
        loop = asyncio.get_running_loop()
        self._draining = True
        await self.consumer.pause()
        self._claim_now.set()
        give_up_at = loop.time() + grace_seconds
        while (self.runs or self._claiming) and loop.time() < give_up_at:
            self._moved.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(give_up_at):
                    await self._moved.wait()
        for run in list(self.runs.values()):
            run.stop(Interrupt.SHUTDOWN)
        if tasks := [run.task for run in self.runs.values() if run.task is not None]:
            await asyncio.wait(tasks, timeout=min(self._settings.cancel_grace_seconds, 3.0))
        for run in list(self.runs.values()):
            self.end(run, self.runner.interrupted(run))
        while self._inbox or self._ended or self._claiming or self._settling:
            self._moved.clear()
            await self._moved.wait()
