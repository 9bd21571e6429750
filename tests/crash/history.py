"""What must be true of every task after the storm, read from the rows and from the marks of the handlers."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

import asyncpg

EXPECTED: Mapping[str, tuple[str, str | None]] = {
    "quick": ("done", None),
    "slow": ("done", None),
    "slow_thread": ("done", None),
    "slow_process": ("done", None),
    "flaky": ("done", None),
    "deadly_once": ("done", None),
    "hopeless": ("dead_lettered", "connection"),
    "deadly": ("dead_lettered", "worker_lost"),
}
"""The only right ending of each type: its status and error type."""

_BUDGET_OF_FAILURES = {"flaky": 3, "hopeless": 3}


def violations(
    tasks: Sequence[asyncpg.Record],
    attempts: Iterable[asyncpg.Record],
    dead_letters: Iterable[asyncpg.Record],
    starts: Iterable[str],
    submitted: Mapping[str, int],
) -> list[str]:
    """Hold the whole history against the promises; `submitted` has the number of each accepted task."""
    rows_of: dict[str, list[asyncpg.Record]] = defaultdict(list)
    for row in attempts:
        rows_of[row["task_id"]].append(row)
    dead = Counter(row["task_id"] for row in dead_letters)
    started = Counter(line.split()[0] for line in starts)
    found = [f"accepted and gone: {task_id}" for task_id in submitted.keys() - {task["task_id"] for task in tasks}]
    found += [f"never asked for: {task['task_id']}" for task in tasks if task["task_id"] not in submitted]
    for task in tasks:
        rows = sorted(rows_of[task["task_id"]], key=lambda row: int(row["fence"]))
        for wrong in (
            *_ending(task, submitted.get(task["task_id"])),
            *_attempts(task, rows),
            *_budget(task, rows),
            *_traces(task, rows, dead[task["task_id"]], started[task["task_id"]]),
        ):
            story = [(row["fence"], row["attempt"], row["outcome"], row["error_type"]) for row in rows]
            found.append(
                f"{task['type']} {task['task_id']}: {wrong}; attempts {story}, starts {started[task['task_id']]}"
            )
    return found


def _ending(task: asyncpg.Record, number: int | None) -> Iterable[str]:
    status, error_type = EXPECTED[task["type"]]
    if (task["status"], task["error_type"]) != (status, error_type):
        yield f"is {task['status']} ({task['error_type']}: {task['error_message']}), should be {status} ({error_type})"
    elif status == "done" and task["result"].replace(" ", "") != f'{{"n":{number}}}':
        yield f"has the result {task['result']}, should have number {number}"


def _attempts(task: asyncpg.Record, rows: Sequence[asyncpg.Record]) -> Iterable[str]:
    """One owner at a time, one success at most, and nothing after the end."""
    if not rows:
        yield "ended without an attempt"
        return
    for before, after in pairwise(rows):
        if after["started_at"] < before["finished_at"]:
            yield f"attempt {after['fence']} began before {before['fence']} had ended"
        if after["released_at"] < before["finished_at"]:
            yield f"was released for {after['fence']} while {before['fence']} ran"
    finished = [row for row in rows if row["outcome"] == "done"]
    if len(finished) != (task["status"] == "done"):
        yield f"has {len(finished)} successful attempts"
    if task["status"] == "done" and rows[-1]["outcome"] != "done":
        yield f"its last attempt was {rows[-1]['outcome']}"
    if task["finished_at"] != rows[-1]["finished_at"]:
        yield "did not end with its last attempt"


def _budget(task: asyncpg.Record, rows: Sequence[asyncpg.Record]) -> Iterable[str]:
    """What failed by itself is charged, exactly; what was lost with a worker is forgiven to the innocent."""
    failures = sum(1 for row in rows if row["outcome"] == "failed" and row["error_type"] != "worker_lost")
    if (most := _BUDGET_OF_FAILURES.get(task["type"])) is not None and failures > most:
        yield f"failed {failures} times, its budget is {most}"
    if task["type"] == "hopeless" and (failures, task["attempts"]) != (3, 3):
        yield f"failed {failures} times and was charged {task['attempts']}, should be 3 and 3"
    if task["type"] == "deadly" and task["attempts"] < 3:
        yield f"was given up after {task['attempts']} attempts, should have had 3"
    if task["attempts"] != (should := _charged(rows)):
        yield f"was charged {task['attempts']} attempts, should be {should}"


def _charged(rows: Sequence[asyncpg.Record]) -> int:
    """Count as the budget does: every claim, less what was returned, less the crashes before a failure of its own."""
    charged = crashes = 0
    for row in rows:
        charged += row["spent"]
        if row["error_type"] == "worker_lost":
            crashes += 1
        elif row["outcome"] == "failed":
            charged, crashes = charged - crashes, 0
    return charged


def _traces(task: asyncpg.Record, rows: Sequence[asyncpg.Record], dead: int, started: int) -> Iterable[str]:
    if dead != (task["status"] == "dead_lettered"):
        yield f"has {dead} dead letters"
    ran = sum(1 for row in rows if row["outcome"] in ("done", "failed"))
    if not ran <= started <= len(rows):
        yield f"was started {started} times, with {len(rows)} attempts of which {ran} ran to their end"
