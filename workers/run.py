"""One attempt in progress: what was claimed, whence it came, how it may be interrupted, and when its slot is free."""

import asyncio
from enum import StrEnum
from typing import Any

from app.broker.base import Delivery
from app.store.flights import Claimed
from workers.context import TaskContext


class Interrupt(StrEnum):
    """Why a running handler is asked to end."""

    TIMEOUT = "timeout"
    CANCEL = "cancel"
    LOST = "lost"
    SHUTDOWN = "shutdown"


class Run:
    """The state of one attempt in this worker.

    `delivery` is None once it has been acked; `started_at` and `interrupted_at` are seconds of the loop's clock;
    `tail` is a thread that still runs after its attempt was settled: the slot is free only when it has ended.
    """

    __slots__ = (
        "claimed", "context", "delivery", "interrupt", "interrupted_at", "overdue", "settled", "started_at", "tail",
        "task", "timer",
    )  # fmt: skip

    def __init__(self, claimed: Claimed, delivery: Delivery | None, context: TaskContext, started_at: float) -> None:
        self.claimed = claimed
        self.delivery = delivery
        self.context = context
        self.started_at = started_at
        self.interrupt: Interrupt | None = None
        self.interrupted_at: float | None = None
        self.overdue = False
        self.settled = False
        self.task: asyncio.Task[Any] | None = None
        self.timer: asyncio.TimerHandle | None = None
        self.tail: asyncio.Future[Any] | None = None

    def stop(self, why: Interrupt) -> None:
        """Ask the handler to end. The first reason stays the reason, except that a lost lease outranks all."""
        if why is Interrupt.TIMEOUT:
            self.overdue = True
        if self.interrupt is None or why is Interrupt.LOST:
            self.interrupt = why
        self.context.book.over = True
        if self.interrupted_at is None:
            self.interrupted_at = asyncio.get_running_loop().time()
        if self.task is not None and not self.task.done():
            self.task.cancel()
