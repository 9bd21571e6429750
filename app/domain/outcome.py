"""What came of one attempt, as a value: every way a run can end, and what the store is to write for it."""

import msgspec

from app.domain.lifecycle import Move


class Settlement(msgspec.Struct, frozen=True, gc=False):
    """One attempt's end, decided: the move to make and what to record. JSON fields hold exact JSON text.

    A msgspec struct and not a dataclass: one is made per task, for a fifth of the cost.

    `after_seconds` is counted from the database's clock; `spent` says whether the attempt counts against the budget;
    `approval_id` is what a suspended task waits for;
    `crashed` adds to the task's crash count, `cleared` forgets it (the task ended without taking its worker along).
    """

    task_id: str
    fence: int
    move: Move
    outcome: str
    spent: bool = True
    result: str | None = None
    error_type: str | None = None
    error_message: str | None = None
    error_retryable: bool | None = None
    after_seconds: float | None = None
    dead_letter_id: str | None = None
    approval_id: str | None = None
    crashed: bool = False
    cleared: bool = False
