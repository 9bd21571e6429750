"""What telemetry needs to know about an attempt that has ended; metrics count it and logs write it."""

import msgspec


class EndedAttempt(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """One attempt that has ended and is committed.

    A msgspec struct and not a dataclass: one is made per task on the hot path, and this one costs 0.4 µs to make
    where a frozen slotted dataclass of this size costs 2 µs.

    `status` is the task's status after the attempt; `outcome` how the attempt itself ended (a snooze or a return is no
    failure). `error_type` is a code, never a text. `queue_seconds` runs from the moment the task became due.
    """

    task_id: str
    attempt: int
    worker_id: str
    tenant_id: str
    priority_class: str
    type: str
    status: str
    outcome: str
    queue_seconds: float
    run_seconds: float
    attempts_spent: int = 1
    """Attempts that the task has spent so far; counted when it is final."""
    error_type: str | None = None
    llm_provider: str | None = None
    input_tokens: int = 0
    output_tokens: int = 0
    trace_id: str | None = None
