"""The protocol between the benchmark and a system under test: what to start, and a producer that is told what to send.

Each peer's module offers `SPEC`, `setup()` and `Producer`. `python -m bench.peers.run <module> spec|setup|produce` runs
them in the peer's own environment; the benchmark speaks to the producer over its standard input and output, one JSON
object a line, so that no interpreter start lies inside a measured time. The standard library alone is used here.
"""

import asyncio
import json
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from bench.marks import MARKS_VARIABLE, Marks

DATABASE_VARIABLE = "BENCH_DATABASE_URL"
AMQP_VARIABLE = "BENCH_AMQP_URL"
BATCH = 1000
"""Tasks per call where a system has a batch call: the product's own limit for one request."""


@dataclass(frozen=True, slots=True)
class Spec:
    """What a system is and how it is run.

    In a command `{python}` is the interpreter of its environment; in a command or the environment `{database}` and
    `{amqp}` are the URLs of this run.
    """

    title: str
    settings: str
    batch: str
    worker_commands: tuple[tuple[str, ...], ...]
    done_sql: str | None
    """Counts the durably recorded completions; None: the system records none, and its queues must be empty."""
    packages: tuple[str, ...] = ()
    services: tuple[tuple[str, ...], ...] = ()
    """Processes beside the workers that run from before the first task is sent."""
    environment: tuple[tuple[str, str], ...] = ()
    uses_broker: bool = False


class Producer(Protocol):
    """Sends numbered no-op tasks to one system."""

    async def open(self) -> None: ...

    async def send_one(self, number: int) -> None:
        """Return when the task is durably accepted."""

    async def send_batch(self, numbers: Sequence[int]) -> None:
        """Send at most `BATCH` tasks in the fastest documented way; return when all are durably accepted."""

    async def close(self) -> None: ...


def database_url() -> str:
    return os.environ[DATABASE_VARIABLE]


def amqp_url() -> str:
    return os.environ[AMQP_VARIABLE]


async def serve(producer: Producer) -> None:
    """Carry out commands from standard input until it ends; answer each with its duration in seconds."""
    marks = Marks(Path(os.environ[MARKS_VARIABLE]))
    await producer.open()
    _answer({"ready": True})
    while line := await asyncio.to_thread(sys.stdin.readline):
        command = json.loads(line)
        began = time.monotonic()
        await _carry_out(producer, marks, command)
        _answer({"began_ns": int(began * 1e9), "seconds": time.monotonic() - began})
    await producer.close()


async def _carry_out(producer: Producer, marks: Marks, command: dict[str, object]) -> None:
    first, count = int(str(command["first"])), int(str(command["count"]))
    match command["how"]:
        case "batch":
            for start in range(first, first + count, BATCH):
                await producer.send_batch(range(start, min(start + BATCH, first + count)))
        case "one_by_one":
            for number in range(first, first + count):
                marks.send(number)
                await producer.send_one(number)
        case "paced":
            pause_seconds = 1 / float(str(command["per_second"]))
            due = time.monotonic()
            for number in range(first, first + count):
                await asyncio.sleep(max(0.0, due - time.monotonic()))
                due += pause_seconds
                marks.send(number)
                await producer.send_one(number)
        case other:
            raise ValueError(f"unknown command {other!r}: batch, one_by_one or paced")


def _answer(message: dict[str, object]) -> None:
    print(json.dumps(message), flush=True)
