"""Celery on RabbitMQ without results: nothing is recorded, a task is over when its message is acknowledged."""

import os
from dataclasses import replace

os.environ["BENCH_CELERY_RESULTS"] = "0"

from bench.peers import celery
from bench.peers.celery import Producer, setup

__all__ = ["SPEC", "Producer", "setup"]

SPEC = replace(
    celery.SPEC,
    title="Celery, no results",
    done_sql=None,
    packages=("celery", "kombu", "amqp"),
    environment=(("BENCH_CELERY_RESULTS", "0"),),
)
