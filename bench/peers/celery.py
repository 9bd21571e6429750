"""Celery on RabbitMQ with its results in PostgreSQL through SQLAlchemy."""

# The peer lives in its own environment, where no type checker looks.
# mypy: disable-error-code="import-not-found,untyped-decorator"

import os
from collections.abc import Sequence

from celery import Celery

from bench.marks import mark
from bench.peers.base import Spec, amqp_url, database_url

PREFETCH = 64
WITH_RESULTS = os.environ.get("BENCH_CELERY_RESULTS", "1") == "1"

SPEC = Spec(
    title="Celery, results in PostgreSQL",
    settings=(
        "prefork, 2 child processes; acks_late; quorum queue; publisher confirms; prefetch 64 per process; "
        "no gossip, mingle, heartbeat or events"
    ),
    batch="one by one on one kept connection (Celery has no batch call)",
    worker_commands=(
        (
            "{python}",
            *("-m", "celery", "-A", "bench.peers.celery", "worker", "--pool", "prefork", "--concurrency", "2"),
            *("--without-gossip", "--without-mingle", "--without-heartbeat", "--loglevel", "WARNING"),
        ),
    ),
    done_sql="SELECT count(*) FROM celery_taskmeta WHERE status = 'SUCCESS'",
    packages=("celery", "kombu", "amqp", "sqlalchemy", "psycopg2-binary"),
    uses_broker=True,
)


def _make_app() -> Celery:
    made = Celery("bench", broker=amqp_url())
    made.conf.update(
        task_acks_late=True,
        task_default_queue="celery_bench",
        task_default_queue_type="quorum",
        worker_prefetch_multiplier=PREFETCH,
        broker_transport_options={"confirm_publish": True},
        task_ignore_result=not WITH_RESULTS,
        task_store_errors_even_if_ignored=False,
        result_expires=None,
    )
    if WITH_RESULTS:
        made.conf.result_backend = "db+" + database_url().replace("postgresql://", "postgresql+psycopg2://")
    return made


if "BENCH_AMQP_URL" in os.environ:
    app = _make_app()

    @app.task(name="noop")
    def noop(number: int) -> None:
        """Do nothing but mark the task."""
        mark(number)


def setup() -> None:
    """Create the result tables, so that two workers do not race to."""
    if WITH_RESULTS:
        app.backend.ResultSession().close()


class Producer:
    """Publishes with confirms on one connection."""

    async def open(self) -> None:
        self._connection = app.connection_for_write()
        self._producer = app.amqp.Producer(self._connection)

    async def send_one(self, number: int) -> None:
        noop.apply_async((number,), producer=self._producer)

    async def send_batch(self, numbers: Sequence[int]) -> None:
        for number in numbers:
            noop.apply_async((number,), producer=self._producer)

    async def close(self) -> None:
        self._connection.release()
