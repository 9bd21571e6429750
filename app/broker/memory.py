"""A broker inside this process, for `despacho up` and for tests: RabbitMQ's semantics as Despacho uses them, without
persistence. Redelivery with a limit, prefetch, dead letters with their reason, and unroutable messages are the same.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from app.broker.arrivals import Arrivals
from app.broker.base import BrokerUnreachable, Delivery, Depth, Malformed, Published, TaskMessage
from app.broker.message import MAX_BODY_BYTES, decode_body, encode_body, sane_trace
from app.broker.topology import Topology
from app.settings import BrokerSettings


@dataclass(slots=True)
class _Entry:
    """A message in a queue."""

    priority_class: str
    message: TaskMessage | Malformed
    returns: int = 0
    """How often it came back unsettled or requeued."""
    dead_reason: str | None = None


@dataclass(slots=True, eq=False)
class _Queue:
    """The ready messages of one queue, and who takes them in turn."""

    delivery_limit: int | None
    max_length: int | None = None
    ready: deque[_Entry] = field(default_factory=deque)
    consumers: deque["MemoryConsumer"] = field(default_factory=deque)

    def put(self, entry: _Entry) -> None:
        """Append a message; a bounded queue drops its oldest."""
        self.ready.append(entry)
        if self.max_length is not None and len(self.ready) > self.max_length:
            self.ready.popleft()
        self.pump()

    def pump(self) -> None:
        """Hand ready messages to the consumers in turn while one has room."""
        refusals = 0
        while self.ready and refusals < len(self.consumers):
            consumer = self.consumers[0]
            self.consumers.rotate(-1)
            if consumer.has_room(self):
                refusals = 0
                consumer.take(self, self.ready.popleft())
            else:
                refusals += 1


class MemoryConsumer:
    """The `Consumer` of the in-process broker; see `base.py`."""

    def __init__(
        self,
        queues: Iterable[_Queue],
        prefetch: int,
        return_: Callable[[_Queue, _Entry], None],
        bury: Callable[[_Entry, str], None],
        queue_of: Callable[[str], _Queue],
    ) -> None:
        if not 1 <= prefetch <= 65_535:
            raise ValueError("prefetch is a number of deliveries from 1 to 65535")
        self._prefetch = prefetch
        self._return = return_
        self._bury = bury
        self._arrivals = Arrivals()
        self._out: dict[int, tuple[_Queue, _Entry]] = {}
        self._taken: dict[_Queue, int] = {}
        self._queue_of = queue_of
        self._stopped = False
        self.closed = False
        self._tag = 0
        for queue in queues:
            self._subscribe(queue)

    def has_room(self, queue: _Queue) -> bool:
        """Whether a further message of this queue may be out."""
        return self._taken[queue] < self._prefetch

    def take(self, queue: _Queue, entry: _Entry) -> None:
        """Deliver a message."""
        self._tag += 1
        self._out[self._tag] = (queue, entry)
        self._taken[queue] += 1
        redelivered = entry.returns > 0
        delivery = Delivery(entry.priority_class, entry.message, redelivered, self._tag, dead_reason=entry.dead_reason)
        self._arrivals.put(delivery)

    async def receive(self, max_items: int) -> list[Delivery]:
        """See Consumer."""
        return await self._arrivals.receive(max_items)

    def ack(self, deliveries: Iterable[Delivery]) -> None:
        """See Consumer."""
        self._settle(deliveries)
        self._pump()

    def requeue(self, deliveries: Iterable[Delivery]) -> None:
        """See Consumer."""
        self._give_back(self._settle(deliveries))

    def reject(self, deliveries: Iterable[Delivery]) -> None:
        """See Consumer."""
        for _, entry in self._settle(deliveries):
            self._bury(entry, "rejected")
        self._pump()

    def extend(self, classes: Collection[str]) -> None:
        """See Consumer."""
        for queue in [self._queue_of(name) for name in classes]:
            self._subscribe(queue)

    def _subscribe(self, queue: _Queue) -> None:
        if queue not in self._taken and not self._stopped:
            self._taken[queue] = 0
            queue.consumers.append(self)
            queue.pump()

    async def pause(self) -> None:
        """See Consumer."""
        self._leave()
        self.requeue(self._arrivals.stop())

    async def close(self) -> None:
        """See Consumer."""
        self.closed = True
        self._leave()
        self._arrivals.stop()
        out = list(self._out.values())
        self._out.clear()
        self._give_back(out)

    def _give_back(self, returned: list[tuple[_Queue, _Entry]]) -> None:
        # The last first, since each goes to the head of its queue; none is delivered before all are back.
        for queue, entry in reversed(returned):
            self._return(queue, entry)
        self._pump()

    def _leave(self) -> None:
        self._stopped = True
        for queue in self._taken:
            if self in queue.consumers:
                queue.consumers.remove(self)

    def _settle(self, deliveries: Iterable[Delivery]) -> list[tuple[_Queue, _Entry]]:
        settled = [found for delivery in deliveries if (found := self._out.pop(delivery.tag, None)) is not None]
        for queue, _ in settled:
            self._taken[queue] -= 1
        return settled

    def _pump(self) -> None:
        for queue in self._taken:
            queue.pump()


class MemoryBroker:
    """The in-process `Broker`; see `base.py`."""

    def __init__(self, settings: BrokerSettings) -> None:
        self._topology = Topology.of(settings)
        self._queues: dict[str, _Queue] = {}
        self._dead = _Queue(None, settings.dead_letter_max_length)
        self._consumers: list[MemoryConsumer] = []
        self._problem: str | None = "not started yet"

    async def start(self) -> None:
        """See Broker."""
        self._problem = None

    async def close(self) -> None:
        """See Broker."""
        self._problem = "closed"
        for consumer in self._consumers:
            await consumer.close()

    async def declare(self, classes: Collection[str]) -> None:
        """See Broker."""
        self._refuse_when_down()
        for name in classes:
            self._queue(name)

    async def publish(self, items: Sequence[tuple[str, TaskMessage]]) -> list[Published]:
        """See Broker."""
        await asyncio.sleep(0)  # as with a real broker, publishing lets others run
        if self._problem is not None:
            return [Published.UNREACHABLE] * len(items)
        return [
            Published.REFUSED
            if len(body := encode_body(message)) > MAX_BODY_BYTES
            else self._put(priority_class, body, sane_trace(message.trace) if message.trace else {})
            for priority_class, message in items
        ]

    def publish_body(self, priority_class: str, body: bytes) -> Published:
        """Put a body of any origin into a queue, as other clients of a real broker can."""
        return self._put(priority_class, body, {})

    def consumer(self, classes: Collection[str], prefetch: int) -> MemoryConsumer:
        """See Broker."""
        return self._consume([self._queue(name) for name in classes], prefetch)

    def dead_letter_consumer(self, prefetch: int) -> MemoryConsumer:
        """See Broker."""
        return self._consume([self._dead], prefetch)

    async def depths(self, classes: Collection[str]) -> Mapping[str, Depth]:
        """See Broker."""
        self._refuse_when_down()
        found = {name: self._queues[name] for name in classes if name in self._queues}
        return {name: Depth(len(queue.ready), len(queue.consumers)) for name, queue in found.items()}

    @property
    def connected(self) -> bool:
        """See Broker."""
        return self._problem is None

    @property
    def problem(self) -> str | None:
        """See Broker."""
        return self._problem

    def _refuse_when_down(self) -> None:
        if self._problem is not None:
            raise BrokerUnreachable(f"the in-process broker is {self._problem}")

    def _queue(self, priority_class: str) -> _Queue:
        self._topology.queue(priority_class)
        return self._queues.setdefault(priority_class, _Queue(self._topology.delivery_limit))

    def _put(self, priority_class: str, body: bytes, trace: Mapping[str, str]) -> Published:
        """Queue what a consumer will read; encoding and decoding in between cost 1 µs and keep the semantics alike."""
        queue = self._queues.get(priority_class)
        if queue is None:
            self._topology.queue(priority_class)
            return Published.UNROUTABLE
        queue.put(_Entry(priority_class, decode_body(body, trace)))
        return Published.CONFIRMED

    def _consume(self, queues: list[_Queue], prefetch: int) -> MemoryConsumer:
        consumer = MemoryConsumer(queues, prefetch, self._take_back, self._bury, self._queue)
        self._consumers = [known for known in self._consumers if not known.closed] + [consumer]
        return consumer

    def _take_back(self, queue: _Queue, entry: _Entry) -> None:
        entry.returns += 1
        if queue.delivery_limit is not None and entry.returns > queue.delivery_limit:
            self._bury(entry, "delivery_limit")
        else:
            queue.ready.appendleft(entry)

    def _bury(self, entry: _Entry, reason: str) -> None:
        """Dead-letter a message; a rejected dead letter is gone, since nothing comes after the dead-letter queue."""
        if entry.dead_reason is None:
            self._dead.put(_Entry(entry.priority_class, entry.message, dead_reason=reason))
