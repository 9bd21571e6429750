"""Dramatiq on RabbitMQ without results."""

# The peer lives in its own environment, where no type checker looks.
# mypy: disable-error-code="import-not-found,untyped-decorator"

import os
from collections.abc import Sequence

import dramatiq
from dramatiq.brokers.rabbitmq import RabbitmqBroker

from bench.marks import mark
from bench.peers.base import Spec, amqp_url

THREADS = 8
PREFETCH = 64

SPEC = Spec(
    title="Dramatiq, no results",
    settings=(
        f"2 processes of {THREADS} threads; prefetch {PREFETCH}; publisher confirms; durable classic queue "
        "(Dramatiq declares no quorum queues); acknowledged after the handler"
    ),
    batch="one by one (Dramatiq has no batch call)",
    worker_commands=(
        ("{python}", "-m", "dramatiq", "bench.peers.dramatiq", "--processes", "2", "--threads", str(THREADS)),
    ),
    done_sql=None,
    packages=("dramatiq", "pika"),
    environment=(("dramatiq_queue_prefetch", str(PREFETCH)),),
    uses_broker=True,
)

if "BENCH_AMQP_URL" in os.environ:
    broker = RabbitmqBroker(url=amqp_url(), confirm_delivery=True)
    dramatiq.set_broker(broker)

    @dramatiq.actor(queue_name="dramatiq_bench")
    def noop(number: int) -> None:
        """Do nothing but mark the task."""
        mark(number)


def setup() -> None:
    """Declare the queue."""
    broker.declare_queue("dramatiq_bench", ensure=True)
    broker.close()


class Producer:
    """Publishes with confirms on the broker's connection."""

    async def open(self) -> None:
        broker.declare_queue("dramatiq_bench", ensure=True)

    async def send_one(self, number: int) -> None:
        noop.send(number)

    async def send_batch(self, numbers: Sequence[int]) -> None:
        for number in numbers:
            noop.send(number)

    async def close(self) -> None:
        broker.close()
