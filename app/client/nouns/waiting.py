"""Waiting for the end of tasks: long polls in slices, never longer than the service holds an answer back."""

import time
from collections.abc import Mapping, Sequence
from typing import Any

from app.client.errors import StillRunning, Unsendable
from app.client.nouns.task import Task, is_final
from app.client.request import Flow, Pause, Request, member_of, part

LONGEST_SLICE_SECONDS = 55.0
_SOONEST_SECONDS = 1.0
"""An answer that comes before the end of its slice and is no end is not asked for again sooner than this."""


def read_task(task_id: str, *, include_input: bool = False, wait: float | None = None) -> Request[Task]:
    """Ask for a task, and have the service hold the answer back for up to `wait` seconds (55 at most)."""
    held = min(max(0.0, wait), LONGEST_SLICE_SECONDS) if wait is not None else None
    parameters: tuple[tuple[str, str], ...] = () if held is None else (("wait", f"{held:.3f}".rstrip("0").rstrip(".")),)
    if include_input:
        parameters += (("include", "input"),)
    return Request("GET", f"/v1/tasks/{part(task_id)}", Task, parameters, wait_seconds=held or 0.0)


def until_final(task_id: str, wait: float | None) -> Flow[Task]:
    """Wait until a task has ended, for at most `wait` seconds (None: as long as it takes). Raises StillRunning."""
    end = _end(wait)
    while True:
        task: Task
        task, left = yield from _look(task_id, end)
        if is_final(member_of(task, "status")):
            return task
        if left <= 0:
            raise StillRunning((task,), f"{task_id} is still {member_of(task, 'status')} after {wait:g} s")


def until_all_final(task_ids: Sequence[str], wait: float | None, known: Mapping[str, Task]) -> Flow[dict[str, Task]]:
    """Wait for many in turn, over one connection; what ended meanwhile answers at once. Returns each as last seen."""
    end = _end(wait)
    seen = dict(known)
    for task_id in task_ids:
        left = 1.0
        while left > 0 and not (task_id in seen and seen[task_id].is_final):
            seen[task_id], left = yield from _look(task_id, end)
    return seen


def _look(task_id: str, end: float) -> Flow[tuple[Any, float]]:
    """Read a task with one slice of waiting; returns it and how many seconds are left."""
    began = time.monotonic()
    held = min(LONGEST_SLICE_SECONDS, max(0.0, end - began))
    task = yield read_task(task_id, wait=held)
    left = end - time.monotonic()
    early = min(began + min(held, _SOONEST_SECONDS) - time.monotonic(), left)
    if early > 0 and not is_final(member_of(task, "status")):
        yield Pause(early)
        left -= early
    return task, left if held > 0 else 0.0


def _end(wait: float | None) -> float:
    if wait is not None and not wait >= 0:
        raise Unsendable("wait should be a number of seconds from 0, or None for as long as it takes")
    return float("inf") if wait is None else time.monotonic() + wait
