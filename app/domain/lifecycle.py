"""The life of a task: its statuses, the moves between them, and nothing else.

    scheduled ──due──▶ queued ──claim──▶ running ──finish──▶ done
        │                 ▲  │              │
        │                 │  │              ├──fail──▶ failed_retryable ──due──▶ queued
        │                 │  │              ├──dead_letter──▶ dead_lettered ──reprocess──▶ queued
        │                 │  │              ├──suspend──▶ awaiting_approval ──resume──▶ queued
        │                 └──┼──return_────-┤
        │                    │              └──snooze──▶ scheduled
        └──────cancel / expire / supersede / reject──▶ the four other endings

A running task is rejected too: its handler meets a no (or an expiry) that was decided while no place waited for it.

A move is legal only from the statuses that `TRANSITIONS` names; the store turns that into the guard of its one
UPDATE of `tasks.status`.
"""

from enum import StrEnum


class TaskStatus(StrEnum):
    """Where a task stands; the values are part of the REST contract."""

    SCHEDULED = "scheduled"
    QUEUED = "queued"
    RUNNING = "running"
    FAILED_RETRYABLE = "failed_retryable"
    AWAITING_APPROVAL = "awaiting_approval"
    DONE = "done"
    DEAD_LETTERED = "dead_lettered"
    CANCELLED = "cancelled"
    EXPIRED = "expired"
    SUPERSEDED = "superseded"
    REJECTED = "rejected"


FINAL = frozenset(
    {
        TaskStatus.DONE,
        TaskStatus.DEAD_LETTERED,
        TaskStatus.CANCELLED,
        TaskStatus.EXPIRED,
        TaskStatus.SUPERSEDED,
        TaskStatus.REJECTED,
    }
)
WAITING = frozenset({TaskStatus.SCHEDULED, TaskStatus.QUEUED, TaskStatus.FAILED_RETRYABLE})


class Move(StrEnum):
    """One legal change of status, named by what happened."""

    CLAIM = "claim"
    FINISH = "finish"
    FAIL = "fail"
    DEAD_LETTER = "dead_letter"
    RETURN = "return"
    SNOOZE = "snooze"
    DUE = "due"
    CANCEL = "cancel"
    EXPIRE = "expire"
    SUPERSEDE = "supersede"
    REJECT = "reject"
    SUSPEND = "suspend"
    RESUME = "resume"
    REPROCESS = "reprocess"


_UNFINISHED = WAITING | {TaskStatus.AWAITING_APPROVAL}

TRANSITIONS: dict[Move, tuple[frozenset[TaskStatus], TaskStatus]] = {
    Move.CLAIM: (frozenset({TaskStatus.QUEUED}), TaskStatus.RUNNING),
    Move.FINISH: (frozenset({TaskStatus.RUNNING}), TaskStatus.DONE),
    Move.FAIL: (frozenset({TaskStatus.RUNNING}), TaskStatus.FAILED_RETRYABLE),
    Move.DEAD_LETTER: (WAITING | {TaskStatus.RUNNING}, TaskStatus.DEAD_LETTERED),
    Move.RETURN: (frozenset({TaskStatus.RUNNING}), TaskStatus.QUEUED),
    Move.SNOOZE: (frozenset({TaskStatus.RUNNING}), TaskStatus.SCHEDULED),
    Move.DUE: (frozenset({TaskStatus.SCHEDULED, TaskStatus.FAILED_RETRYABLE}), TaskStatus.QUEUED),
    Move.CANCEL: (_UNFINISHED | {TaskStatus.RUNNING}, TaskStatus.CANCELLED),
    Move.EXPIRE: (_UNFINISHED, TaskStatus.EXPIRED),
    Move.SUPERSEDE: (_UNFINISHED, TaskStatus.SUPERSEDED),
    Move.REJECT: (_UNFINISHED | {TaskStatus.RUNNING}, TaskStatus.REJECTED),
    Move.SUSPEND: (frozenset({TaskStatus.RUNNING}), TaskStatus.AWAITING_APPROVAL),
    Move.RESUME: (frozenset({TaskStatus.AWAITING_APPROVAL}), TaskStatus.QUEUED),
    Move.REPROCESS: (frozenset({TaskStatus.DEAD_LETTERED}), TaskStatus.QUEUED),
}


def sources(move: Move) -> frozenset[TaskStatus]:
    """Name the statuses from which `move` is legal."""
    return TRANSITIONS[move][0]


def target(move: Move) -> TaskStatus:
    """Name the status that `move` leads to."""
    return TRANSITIONS[move][1]


def is_final(status: str) -> bool:
    """Say whether nothing more happens to a task in `status` unless a person asks."""
    return status in FINAL
