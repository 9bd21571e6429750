"""Waiting for the end of tasks: long polls in slices, never longer than the service holds an answer back."""

import time
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from app.client.errors import ApiError, StillRunning, Unsendable
from app.client.nouns.task import FINAL, Task, is_final
from app.client.request import PAGE_SIZE, Flow, Items, Parameter, Pause, Request, member_of, pages, part

LONGEST_SLICE_SECONDS = 55.0
_SOONEST_SECONDS = 1.0
"""An answer that comes before the end of its slice and is no end is not asked for again sooner than this."""
_WORTH_A_SWEEP = 20
_MARGIN = timedelta(milliseconds=1)
_FORBIDDEN = 403


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
    """Wait for many, over one connection; returns each as it was last seen.

    One is waited for at a time; what ended meanwhile is then read in whole pages, and only stragglers one by one.
    """
    end = _end(wait)
    seen = dict(known)
    sweeps = True
    swept_at = 0.0
    for task_id in task_ids:
        left = 1.0
        while left > 0 and not seen[task_id].is_final:
            seen[task_id], left = yield from _look(task_id, end)
        unfinished = [task for task in seen.values() if not task.is_final]
        if sweeps and len(unfinished) >= _WORTH_A_SWEEP and time.monotonic() - swept_at >= _SOONEST_SECONDS:
            swept_at = time.monotonic()
            sweeps = yield from _sweep(unfinished, seen)
    return seen


def _sweep(unfinished: Sequence[Task], seen: dict[str, Task]) -> Flow[bool]:
    """Read the page(s) on which unfinished tasks may be by now; says whether that is any use with this key."""
    times = [task.submitted_at for task in unfinished if task.submitted_at is not None]
    if len(times) < len(unfinished):
        return False
    parameters: dict[str, Parameter] = {
        "status": sorted(FINAL),
        "include": "result",
        "submitted_after": min(times) - _MARGIN,
        "submitted_before": max(times) + _MARGIN,
    }
    wanted = {task.task_id for task in unfinished}
    # Tasks of others may lie between ours: no more is read than what one by one would cost.
    steps = pages("/v1/tasks", Task, parameters, at_most=PAGE_SIZE * max(2, len(wanted) // 20))
    answer = None
    try:
        while True:
            step = steps.send(answer)
            if isinstance(step, Items):
                seen.update((task.task_id, task) for task in step.items if task.task_id in wanted)
                answer = None
            else:
                answer = yield step
    except StopIteration:
        return True
    except ApiError as error:
        if error.status == _FORBIDDEN:
            return False
        raise


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
