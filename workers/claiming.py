"""From deliveries to owned tasks: the pipeline of claims, one flush at a time; what finds no slot goes back in time.

A delivery whose task is not ours to run (stale, doubled, running elsewhere, cancelled, expired) is simply acked: the
row decides. While one claim is in flight, what arrives waits and goes in the next.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Sequence

from app.broker.base import Consumer, Delivery, TaskMessage
from app.runtime import Runtime
from app.store import flights
from app.store.database import is_data_error, is_transient
from app.store.flights import Claimed
from app.telemetry.logs import event
from workers.inbox import Inbox

log = logging.getLogger("despacho.worker")
BATCH = 500
_NEWEST_SHARE = 0.1


class Claims:
    """Claims what waits in its inbox whenever there is `room()`, and hands each owned task to `on_claimed`.

    `mean_seconds` is how long a claim has taken lately.
    """

    def __init__(
        self,
        runtime: Runtime,
        consumer: Consumer,
        *,
        worker_id: str,
        room: Callable[[], int],
        on_claimed: Callable[[Claimed, Delivery], None],
    ) -> None:
        self._runtime = runtime
        self._consumer = consumer
        self._worker_id = worker_id
        self._room = room
        self.mean_seconds = 0.0
        self._on_claimed = on_claimed
        self._settings = runtime.settings.worker
        self._inbox = Inbox(self._rank_of)
        self._wake = asyncio.Event()
        self._draining = False
        self._flushing = False
        self._known_fence = 0

    @property
    def busy(self) -> bool:
        """Whether deliveries wait here or a statement is in flight."""
        return len(self._inbox) > 0 or self._flushing

    def add(self, delivery: Delivery, message: TaskMessage) -> None:
        """Take in a delivery."""
        self._inbox.add(asyncio.get_running_loop().time(), delivery, message)
        self._wake.set()

    def look(self) -> None:
        """Look again: a slot may be free now."""
        self._wake.set()

    def drain(self) -> None:
        """Claim nothing more: what waits goes back at once."""
        self._draining = True
        self._wake.set()

    async def forever(self) -> None:
        """Claim what waits whenever slots are free; give back what has waited too long for one."""
        loop = asyncio.get_running_loop()
        while True:
            if not self._inbox:
                self._wake.clear()
                await self._wake.wait()
                continue
            room = 0 if self._draining else min(self._room(), BATCH)
            if room:
                await self._flush(self._claim, self._inbox.take(room))
                continue
            patience = 0.0 if self._draining else self._settings.hand_back_seconds
            give_back_at = self._inbox.oldest_seconds() + patience
            if give_back_at > loop.time():
                self._wake.clear()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout_at(give_back_at):
                        await self._wake.wait()
                continue
            await self._flush(self._hand_back, self._inbox.take_older(loop.time() - patience, BATCH))

    def _rank_of(self, priority_class: str) -> int:
        known = self._runtime.policy.current.by_name.get(priority_class)
        return known.rank if known is not None else len(self._runtime.policy.current.classes)

    async def _flush(
        self,
        flush: Callable[[Sequence[tuple[Delivery, TaskMessage]]], Awaitable[None]],
        batch: Sequence[tuple[Delivery, TaskMessage]],
    ) -> None:
        self._flushing = True
        try:
            await flush(batch)
        finally:
            self._flushing = False

    async def _claim(self, batch: Sequence[tuple[Delivery, TaskMessage]]) -> None:
        # Of two messages for one task the newer stay in the queue is the one that can be ours.
        batch = sorted(batch, key=lambda entry: entry[1].dispatch)
        by_id = {message.task_id: delivery for delivery, message in batch}
        wants = {
            message.task_id: (message.task_id, message.dispatch, message.type, message.tenant_id)
            for _, message in batch
        }
        self._runtime.metrics.batch_flushed("claim", len(batch))
        owned: set[Delivery] = set()
        loop = asyncio.get_running_loop()
        began = loop.time()
        ours = await self._claimed(list(wants.values()))
        self.mean_seconds += (loop.time() - began - self.mean_seconds) * _NEWEST_SHARE
        for claimed in ours:
            delivery = by_id[claimed.task_id]
            owned.add(delivery)
            self._on_claimed(claimed, delivery)
        if len(owned) < len(batch):
            not_ours = [delivery for delivery, _ in batch if delivery not in owned]
            self._consumer.ack(not_ours)
            for delivery in not_ours:
                self._runtime.metrics.deliveries_stale(delivery.priority_class)

    async def _claimed(self, wants: Sequence[tuple[str, int, str, str]]) -> list[Claimed]:
        """Claim, for as long as it takes: the deliveries stay ours until the database has answered."""
        in_doubt_after: int | None = None
        while True:
            try:
                found = await flights.claim(
                    self._runtime.database,
                    wants,
                    worker_id=self._worker_id,
                    lease_seconds=self._settings.lease_seconds,
                    retry_for_seconds=0.0,
                    in_doubt_after=in_doubt_after,
                )
            except Exception as error:
                if is_data_error(error):
                    return await self._split(wants)
                await self._rest("claim_failed", error)
                in_doubt_after = self._known_fence
            else:
                self._known_fence = max(self._known_fence, *(one.fence for one in found), 0)
                return found

    async def _split(self, wants: Sequence[tuple[str, int, str, str]]) -> list[Claimed]:
        """Find the message that no row can match, because no row can hold what it says; the others are claimed."""
        if len(wants) > 1:
            middle = len(wants) // 2
            return [*await self._claimed(wants[:middle]), *await self._claimed(wants[middle:])]
        event(log, "claim_impossible", level=logging.ERROR)
        return []

    async def _hand_back(self, batch: Sequence[tuple[Delivery, TaskMessage]]) -> None:
        """Return rows to the waiting as a new stay, then ack: a requeue would spend the broker's delivery limit."""
        rows = [(message.task_id, message.dispatch) for _, message in batch]
        why = "worker_draining" if self._draining else "worker_full"
        while True:
            try:
                await flights.hand_back(
                    self._runtime.database, rows, worker_id=self._worker_id, why=why, retry_for_seconds=0.0
                )
                break
            except Exception as error:
                await self._rest("hand_back_failed", error)
        self._consumer.ack([delivery for delivery, _ in batch])
        for delivery, _ in batch:
            self._runtime.metrics.handed_back(delivery.priority_class)
        self._runtime.dispatcher_poke.poke()

    async def _rest(self, what: str, error: Exception) -> None:
        if not is_transient(error):
            event(log, what, level=logging.ERROR, error=error)
        await asyncio.sleep(0.05 + 0.2 * self._runtime.draw())
