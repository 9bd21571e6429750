"""Measure what a message costs between a publisher and a consumer of the broker seam.

    python -m bench.broker amqp://user:password@host:port/vhost [--messages 40000] [--pid BROKER_PID]

Publishes pre-made messages in batches, a few in flight, then consumes and acks them, and prints Python's CPU per
message for either, the broker's (with `--pid`), and messages per second. The queue is emptied, not deleted.
"""

import argparse
import asyncio
import time
from dataclasses import dataclass

import psutil  # type: ignore[import-untyped]
import uvloop

from app.broker.base import Published, TaskMessage
from app.broker.rabbitmq import RabbitBroker
from app.settings import BrokerSettings

CLASS = "bench"
TRACE = {"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}


@dataclass(frozen=True, slots=True)
class Cost:
    """What one phase took."""

    phase: str
    messages: int
    python_seconds: float
    broker_seconds: float
    elapsed_seconds: float

    def __str__(self) -> str:
        python_us = self.python_seconds / self.messages * 1e6
        broker_us = self.broker_seconds / self.messages * 1e6
        rate = self.messages / self.elapsed_seconds
        return f"{self.phase:<20} {python_us:6.1f} µs Python {broker_us:6.1f} µs broker {rate:9,.0f} messages/s"


class Meter:
    """Takes the CPU time of this process and of the broker's between two moments."""

    def __init__(self, broker_pid: int | None) -> None:
        self._broker = psutil.Process(broker_pid) if broker_pid else None
        self._before = self._now()

    def _now(self) -> tuple[float, float, float]:
        broker = self._broker.cpu_times() if self._broker else None
        return time.process_time(), broker.user + broker.system if broker else 0.0, time.monotonic()

    def cost(self, phase: str, messages: int) -> Cost:
        """Return what happened since the meter was made."""
        python, broker, elapsed = (after - before for after, before in zip(self._now(), self._before, strict=True))
        return Cost(phase, messages, python, broker, elapsed)


def _messages(count: int, trace: dict[str, str]) -> list[tuple[str, TaskMessage]]:
    return [
        (CLASS, TaskMessage(f"01KB{n:022d}", "classify_document", "acme", 1, 1, "2026-11-30T12:00:00.000000Z", trace))
        for n in range(count)
    ]


async def _publish(broker: RabbitBroker, messages: list[tuple[str, TaskMessage]], batch: int, in_flight: int) -> None:
    batches = iter([messages[start : start + batch] for start in range(0, len(messages), batch)])

    async def one_after_the_other() -> None:
        for items in batches:
            outcomes = await broker.publish(items)
            assert set(outcomes) == {Published.CONFIRMED}, set(outcomes)

    await asyncio.gather(*(one_after_the_other() for _ in range(in_flight)))


async def _consume(broker: RabbitBroker, count: int, prefetch: int) -> None:
    consumer = broker.consumer([CLASS], prefetch)
    received = 0
    while received < count:
        deliveries = await consumer.receive(1000)
        consumer.ack(deliveries)
        received += len(deliveries)
    await consumer.close()


async def _run(arguments: argparse.Namespace) -> None:
    settings = BrokerSettings(queue_prefix="despacho-bench", publish_deadline_seconds=30)
    broker = RabbitBroker(arguments.url, settings)
    await broker.start()
    await broker.declare([CLASS])
    for trace in ({}, TRACE):
        print("with a traceparent:" if trace else "without trace headers:")
        messages = _messages(arguments.messages, trace)
        meter = Meter(arguments.pid)
        await _publish(broker, messages, arguments.batch, arguments.in_flight)
        print("  ", meter.cost("publish + confirm", len(messages)))
        meter = Meter(arguments.pid)
        await _consume(broker, len(messages), arguments.prefetch)
        print("  ", meter.cost("deliver + ack", len(messages)))
        meter = Meter(arguments.pid)
        await asyncio.gather(
            _publish(broker, messages, arguments.batch, arguments.in_flight),
            _consume(broker, len(messages), arguments.prefetch),
        )
        print("  ", meter.cost("both at once", len(messages)))
    await broker.close()


def main() -> None:
    """Run the benchmark from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url")
    parser.add_argument("--messages", type=int, default=40_000)
    parser.add_argument("--batch", type=int, default=200)
    parser.add_argument("--in-flight", type=int, default=4, help="batches that wait for their confirms at a time")
    parser.add_argument("--prefetch", type=int, default=1000)
    parser.add_argument("--pid", type=int, help="process id of the broker, to measure its CPU too")
    uvloop.run(_run(parser.parse_args()))


if __name__ == "__main__":
    main()
