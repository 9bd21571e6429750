"""Task types whose handlers leave marks on the disk and wait for files, so that tests hold and count them.

Every input names a directory (`at`). A start appends one line to `starts`; an effect appends one to `effects`; a
handler that holds waits until the file `go` is there.
"""

import asyncio
import gc
import os
import signal
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from app.domain.errors import Snoozed
from despacho import BlockingTaskContext, DeadLetter, Retry, TaskContext, task_type

_LOOK_SECONDS = 0.01
_FAST = {"backoff_base_seconds": 0.05, "backoff_cap_seconds": 0.2}


class At(BaseModel):
    """Where the marks go; `n` tells the tasks of one test apart, `seconds` and `kind` are the type's own business."""

    at: str
    n: int = 0
    seconds: float = 0.0
    kind: str = ""


def mark(at: str, name: str, *words: object) -> None:
    """Append one line to a file of marks, whole or not at all."""
    line = " ".join(str(word) for word in words) + "\n"
    file = os.open(Path(at) / name, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(file, line.encode())
    finally:
        os.close(file)


def _started(ctx: TaskContext | BlockingTaskContext, task: At) -> None:
    mark(task.at, "starts", ctx.task_id, ctx.attempt, task.n, os.getpid())


def _may_go(task: At) -> bool:
    return (Path(task.at) / "go").exists()


@task_type("quick", timeout_seconds=30)
async def quick(ctx: TaskContext, task: At) -> dict[str, Any]:
    """Mark and return."""
    _started(ctx, task)
    return {"n": task.n}


@task_type("hold", timeout_seconds=60, **_FAST)  # type: ignore[arg-type]
async def hold(ctx: TaskContext, task: At) -> dict[str, Any]:
    """Hold on the loop until told to go; the effect comes last."""
    _started(ctx, task)
    while not _may_go(task):  # noqa: ASYNC110 - the word to go is a file of another process
        await asyncio.sleep(_LOOK_SECONDS)
    mark(task.at, "effects", ctx.task_id, ctx.attempt)
    return {"n": task.n, "attempt": ctx.attempt}


@task_type("hold_thread", timeout_seconds=60, **_FAST)  # type: ignore[arg-type]
def hold_thread(ctx: BlockingTaskContext, task: At) -> dict[str, Any]:
    """Hold in a thread until told to go."""
    _started(ctx, task)
    while not _may_go(task):
        time.sleep(_LOOK_SECONDS)
    mark(task.at, "effects", ctx.task_id, ctx.attempt)
    return {"n": task.n, "attempt": ctx.attempt}


@task_type("hold_process", timeout_seconds=60, executor="process", **_FAST)  # type: ignore[arg-type]
def hold_process(ctx: BlockingTaskContext, task: At) -> dict[str, Any]:
    """Hold in a process until told to go."""
    _started(ctx, task)
    ctx.progress(0.25, "holding")
    while not _may_go(task):
        time.sleep(_LOOK_SECONDS)
    mark(task.at, "effects", ctx.task_id, ctx.attempt)
    return {"n": task.n, "pid": os.getpid()}


@task_type("brief", timeout_seconds=1.0, max_attempts=1)
async def brief(ctx: TaskContext, task: At) -> None:
    """Hold on the loop for longer than allowed."""
    await hold(ctx, task)


@task_type("brief_thread", timeout_seconds=1.0, max_attempts=1)
def brief_thread(ctx: BlockingTaskContext, task: At) -> None:
    """Hold in a thread for longer than allowed."""
    hold_thread(ctx, task)


@task_type("brief_process", timeout_seconds=2.0, max_attempts=1, executor="process")
def brief_process(ctx: BlockingTaskContext, task: At) -> None:
    """Hold in a process for longer than allowed."""
    hold_thread(ctx, task)


@task_type("deaf", timeout_seconds=60)
async def deaf(ctx: TaskContext, task: At) -> dict[str, Any]:
    """Swallow every cancellation until told to go."""
    _started(ctx, task)
    while not _may_go(task):
        try:
            await asyncio.sleep(_LOOK_SECONDS)
        except asyncio.CancelledError:
            mark(task.at, "swallowed", ctx.task_id)
    return {"n": task.n}


@task_type("brief_deaf", timeout_seconds=0.5, max_attempts=1)
async def brief_deaf(ctx: TaskContext, task: At) -> None:
    """Swallow the cancellation of a timeout, too."""
    await deaf(ctx, task)


@task_type("slow", timeout_seconds=60, **_FAST)  # type: ignore[arg-type]
async def slow(ctx: TaskContext, task: At) -> dict[str, Any]:
    """Take `seconds` on the loop."""
    _started(ctx, task)
    await asyncio.sleep(task.seconds)
    mark(task.at, "effects", ctx.task_id, ctx.attempt)
    return {"n": task.n}


@task_type("slow_thread", timeout_seconds=60, **_FAST)  # type: ignore[arg-type]
def slow_thread(ctx: BlockingTaskContext, task: At) -> dict[str, Any]:
    """Take `seconds` in a thread."""
    _started(ctx, task)
    time.sleep(task.seconds)
    mark(task.at, "effects", ctx.task_id, ctx.attempt)
    return {"n": task.n}


@task_type("slow_process", timeout_seconds=60, executor="process", **_FAST)  # type: ignore[arg-type]
def slow_process(ctx: BlockingTaskContext, task: At) -> dict[str, Any]:
    """Take `seconds` in a process."""
    return slow_thread(ctx, task)


@task_type("spin", timeout_seconds=60, **_FAST)  # type: ignore[arg-type]
def spin(ctx: BlockingTaskContext, task: At) -> dict[str, Any]:
    """Burn `seconds` of pure Python in a thread: the interpreter's lock is hardly ever free."""
    _started(ctx, task)
    end_at = time.monotonic() + task.seconds
    turns = 0
    while time.monotonic() < end_at:
        turns += 1
    mark(task.at, "effects", ctx.task_id, ctx.attempt)
    return {"n": task.n}


@task_type("block", timeout_seconds=60, **_FAST)  # type: ignore[arg-type]
async def block(ctx: TaskContext, task: At) -> dict[str, Any]:
    """Block the worker's loop for `seconds`, as a careless handler does."""
    _started(ctx, task)
    time.sleep(task.seconds)  # noqa: ASYNC251 - the carelessness is the point
    mark(task.at, "effects", ctx.task_id, ctx.attempt)
    return {"n": task.n}


@task_type("collect", timeout_seconds=60, **_FAST)  # type: ignore[arg-type]
async def collect(ctx: TaskContext, task: At) -> dict[str, Any]:
    """Collect garbage all the time for `seconds`: a task that only the loop refers to would be lost."""
    _started(ctx, task)
    end_at = time.monotonic() + task.seconds
    while time.monotonic() < end_at:
        gc.collect()
        await asyncio.sleep(0.1)
    return {"n": task.n}


@task_type("flaky", timeout_seconds=30, max_attempts=5, **_FAST)  # type: ignore[arg-type]
async def flaky(ctx: TaskContext, task: At) -> dict[str, Any]:
    """Fail at the first two runs that this task marks as failed, then succeed."""
    _started(ctx, task)
    failures = Path(task.at) / f"failed-{ctx.task_id}"
    if not failures.exists() or failures.read_text().count("\n") < 2:
        mark(task.at, failures.name, ctx.attempt)
        raise ConnectionError("not yet")
    return {"n": task.n}


@task_type("hopeless", timeout_seconds=30, max_attempts=3, **_FAST)  # type: ignore[arg-type]
async def hopeless(ctx: TaskContext, task: At) -> None:
    """Fail every time."""
    _started(ctx, task)
    raise ConnectionError("never")


@task_type("retry_after", timeout_seconds=30, max_attempts=3)
async def retry_after(ctx: TaskContext, task: At) -> dict[str, Any]:
    """Ask for `seconds` until the next attempt, the way that `kind` names."""
    mark(task.at, "starts", ctx.task_id, ctx.attempt, task.n, time.time())
    if ctx.attempt > 1:
        return {"n": task.n}
    if task.kind == "retry":
        raise Retry(after_seconds=task.seconds)
    ahead = datetime.now(UTC) + timedelta(seconds=task.seconds)
    value = f"{task.seconds:g}" if task.kind == "seconds" else ahead.strftime("%a, %d %b %Y %H:%M:%S GMT")
    raise _Refused(503 if task.n % 2 else 429, value)


class _Answer:
    def __init__(self, status_code: int, retry_after_value: str) -> None:
        self.status_code = status_code
        self.headers = {"retry-after": retry_after_value}


class _Refused(Exception):
    def __init__(self, status_code: int, retry_after_value: str) -> None:
        super().__init__(f"answered {status_code}")
        self.response = _Answer(status_code, retry_after_value)


@task_type("delayed", timeout_seconds=30, max_attempts=3)
async def delayed(ctx: TaskContext, task: At) -> dict[str, Any]:
    """Fail once, to be tried again after `seconds`."""
    mark(task.at, "starts", ctx.task_id, ctx.attempt, task.n, time.time())
    if ctx.attempt == 1:
        raise Retry(after_seconds=task.seconds)
    return {"n": task.n}


@task_type("deadly", timeout_seconds=30, max_attempts=3, **_FAST)  # type: ignore[arg-type]
async def deadly(ctx: TaskContext, task: At) -> None:
    """Take the whole process along, as a crash or the system's out-of-memory killer does."""
    _started(ctx, task)
    os._exit(137)


@task_type("deadly_once", timeout_seconds=30, max_attempts=3, executor="process", **_FAST)  # type: ignore[arg-type]
def deadly_once(ctx: BlockingTaskContext, task: At) -> dict[str, Any]:
    """Crash the child at the first attempt."""
    _started(ctx, task)
    if ctx.attempt == 1:
        os._exit(137)
    return {"n": task.n}


def _once(ctx: TaskContext | BlockingTaskContext, task: At, name: str) -> None:
    """Do something that is remembered: a run from the top does it no second time."""
    path = Path(task.at) / name
    if not path.exists() or ctx.task_id not in path.read_text():
        mark(task.at, name, ctx.task_id)


@task_type("asks", timeout_seconds=30, approval_expires_seconds=600)
async def asks(ctx: TaskContext, task: At) -> Any:
    """Do one thing, have a person agree, do the other; of the other kinds, ask in other ways."""
    _started(ctx, task)
    match task.kind:
        case "loop":
            return [(await ctx.approval("refund", {"n": n})).comment for n in range(3)]
        case "together":
            async with asyncio.TaskGroup() as group:
                both = [group.create_task(ctx.approval(action)) for action in ("one", "two")]
            return [one.result().comment for one in both]
        case "swallows":
            try:
                return (await ctx.approval("refund")).comment
            except Exception:
                return "swallowed"
        case "nul":
            return await ctx.approval("refund", {"text": "a\0b"})
        case "brief":
            return await ctx.approval("refund", expires_seconds=0.2)
    _once(ctx, task, "first")
    given = await ctx.approval("refund", {"n": task.n, "text": "<script>"})
    mark(task.at, "second", ctx.task_id)
    return {"by": given.decided_by, "comment": given.comment, "at": given.decided_at.isoformat()}


def _asks_blocking(ctx: BlockingTaskContext, task: At) -> Any:
    _started(ctx, task)
    if task.kind == "nul":
        return ctx.approval("refund", {"text": "a\0b"})
    _once(ctx, task, "first")
    given = ctx.approval("refund", {"n": task.n, "text": "<script>"})
    mark(task.at, "second", ctx.task_id)
    return {"by": given.decided_by, "comment": given.comment, "at": given.decided_at.isoformat()}


@task_type("asks_thread", timeout_seconds=30)
def asks_thread(ctx: BlockingTaskContext, task: At) -> Any:
    """Ask from a thread."""
    return _asks_blocking(ctx, task)


@task_type("asks_process", timeout_seconds=30, executor="process")
def asks_process(ctx: BlockingTaskContext, task: At) -> Any:
    """Ask from a process."""
    return _asks_blocking(ctx, task)


async def _outside(at: str, name: str, task_id: str) -> str:
    """Stand for an outside system that counts its calls."""
    mark(at, name, task_id)
    return name


@task_type("destroys", timeout_seconds=30, max_attempts=1, effects=("create", "delete"), destructive=("delete",))
async def destroys(ctx: TaskContext, task: At) -> list[str | None]:
    """Create, have a person agree, delete; of the other kinds, delete something else, or without having asked."""
    key = f"{ctx.task_id}.delete"
    first = await ctx.effect("create", f"{ctx.task_id}.create", _outside, task.at, "created", ctx.task_id)
    if task.kind != "unasked":
        await ctx.approval("delete", {"key": "something else" if task.kind == "other" else key})
    return [first, await ctx.effect("delete", key, _outside, task.at, "deleted", ctx.task_id)]


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text for you")


class TwoArguments(Exception):
    def __init__(self, one: object, two: object) -> None:
        super().__init__(one)
        self.two = two


class Exit(SystemExit):
    pass


class Interrupt(KeyboardInterrupt):
    pass


class Bare(BaseException):
    pass


def raise_(kind: str) -> None:
    """Raise the error of that kind."""
    match kind:
        case "object":
            raise Exception(object())
        case "unprintable":
            raise Unprintable
        case "group":
            raise ExceptionGroup("both", [ValueError("a"), KeyError("b")])
        case "two_arguments":
            raise TwoArguments(object(), lambda: None)
        case "base":
            raise Bare("bare")
        case "exit":
            raise Exit(3)
        case "interrupt":
            raise Interrupt
        case "generator_exit":
            raise GeneratorExit
        case "stop_iteration":
            raise StopIteration(1)
        case "cancelled":
            raise asyncio.CancelledError
        case "nul":
            raise ValueError("a\0b")
        case "surrogate":
            raise ValueError("a\ud800b")
        case "long":
            raise ValueError("x" * 5_000_000)
        case "recursion":
            raise_(kind)
        case "dead_letter":
            raise DeadLetter("business_rule", "closed already")
        case _:
            raise LookupError(kind)


ERRORS: dict[str, str] = {
    "object": "Exception",
    "unprintable": "Unprintable",
    "group": "ExceptionGroup",
    "two_arguments": "TwoArguments",
    "base": "Bare",
    "exit": "Exit",
    "interrupt": "Interrupt",
    "generator_exit": "GeneratorExit",
    "stop_iteration": "RuntimeError",
    "cancelled": "CancelledError",
    "nul": "ValueError",
    "surrogate": "ValueError",
    "long": "ValueError",
    "recursion": "RecursionError",
    "dead_letter": "business_rule",
}
"""Every kind of error, with the name under which it is recorded."""


@task_type("raises", timeout_seconds=30, max_attempts=1)
async def raises(ctx: TaskContext, task: At) -> None:
    """Raise on the loop."""
    raise_(task.kind)


@task_type("raises_thread", timeout_seconds=30, max_attempts=1)
def raises_thread(ctx: BlockingTaskContext, task: At) -> None:
    """Raise in a thread."""
    raise_(task.kind)


@task_type("raises_process", timeout_seconds=30, max_attempts=1, executor="process")
def raises_process(ctx: BlockingTaskContext, task: At) -> None:
    """Raise in a process."""
    raise_(task.kind)


RESULTS: dict[str, Any] = {
    "nan": float("nan"),
    "infinity": [1, float("inf")],
    "surrogate": "a\ud800b",
    "surrogate_key": {"\ud800": 1},
    "nul": "a\0b",
    "big": "x" * 5_000_000,
    "wide": "\N{EURO SIGN}" * 500_000,
    "object": object(),
    "set": {1, 2},
    "fine": {"text": "naïve \N{EURO SIGN}", "n": 1e22, "literal": "\\u0000"},
}
"""What handlers return, by kind."""


@task_type("returns", timeout_seconds=30)
async def returns(ctx: TaskContext, task: At) -> Any:
    """Return something from the loop."""
    return RESULTS[task.kind]


@task_type("returns_process", timeout_seconds=30, executor="process")
def returns_process(ctx: BlockingTaskContext, task: At) -> Any:
    """Return something from a process."""
    return RESULTS[task.kind]


@task_type("cancels_itself", timeout_seconds=30, max_attempts=1)
async def cancels_itself(ctx: TaskContext, task: At) -> None:
    """Cancel the task that runs the handler and return as if nothing were."""
    current = asyncio.current_task()
    assert current is not None
    current.cancel()


@task_type("leaves_a_child", timeout_seconds=30, max_attempts=1, executor="process")
def leaves_a_child(ctx: BlockingTaskContext, task: At) -> None:
    """End the process, and leave another one behind that keeps its pipes open until told to go."""
    if os.fork() == 0:
        while not _may_go(task):
            time.sleep(_LOOK_SECONDS)
        os._exit(0)
    os._exit(3)


ASKED = "tell me about {n}"


async def _asked(ctx: TaskContext, task: At) -> dict[str, Any]:
    _started(ctx, task)
    asked = [{"role": "user", "content": ASKED.format(n=task.n)}]
    first = await ctx.llm.chat(asked)
    if task.kind == "fails" and ctx.attempt == 1:
        raise Retry(0.05, "after the first answer")
    if task.kind == "dies" and ctx.attempt == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    second = await ctx.llm.chat([*asked, {"role": "assistant", "content": first.text}], stream=True)
    return {"answers": [first.text, second.text], "replayed": [first.replayed, second.replayed], "pid": os.getpid()}


@task_type("models", timeout_seconds=30, **_FAST)  # type: ignore[arg-type]
async def models(ctx: TaskContext, task: At) -> dict[str, Any]:
    """Ask a model twice; by `kind`, the first attempt fails or takes its process along in between."""
    return await _asked(ctx, task)


@task_type("models_thread", timeout_seconds=30, **_FAST)  # type: ignore[arg-type]
def models_thread(ctx: BlockingTaskContext, task: At) -> dict[str, Any]:
    """Ask a model from a thread; the first attempt fails after the answer."""
    _started(ctx, task)
    answer = ctx.llm.chat([{"role": "user", "content": ASKED.format(n=task.n)}])
    if ctx.attempt == 1:
        raise Retry(0.05, "after the answer")
    return {"answers": [answer.text], "replayed": [answer.replayed]}


@task_type("models_process", timeout_seconds=30, executor="process", **_FAST)  # type: ignore[arg-type]
def models_process(ctx: BlockingTaskContext, task: At) -> dict[str, Any]:
    """Ask a model from a process of its own; the first attempt fails after the answer."""
    return models_thread(ctx, task)


@task_type("journey", timeout_seconds=60, max_attempts=4, **_FAST)  # type: ignore[arg-type]
async def journey(ctx: TaskContext, task: At) -> dict[str, Any]:
    """Do a step, save a state, end as `kind` says; the run that finds the state goes on from there."""
    _started(ctx, task)

    async def inner() -> float:
        mark(task.at, "calls", ctx.task_id)
        return 1e22

    async def outer() -> dict[str, Any]:
        return {"n": task.n, "inner": await ctx.step("inner", inner)}

    kept = await ctx.step("outer", outer, returns=dict[str, Any])
    if ctx.state is None:
        await ctx.checkpoint({"done": [task.n]})
        _interrupted(task.kind)
    while task.kind == "hold" and not _may_go(task):  # noqa: ASYNC110 - the word to go is a file of another process
        await asyncio.sleep(_LOOK_SECONDS)
    return {"kept": kept, "again": await ctx.step("outer", outer), "state": ctx.state, "pid": os.getpid()}


def _journey(ctx: BlockingTaskContext, task: At) -> dict[str, Any]:
    _started(ctx, task)

    def inner() -> float:
        mark(task.at, "calls", ctx.task_id)
        return 1e22

    def outer() -> dict[str, Any]:
        return {"n": task.n, "inner": ctx.step("inner", inner)}

    kept = ctx.step("outer", outer, returns=dict[str, Any])
    if ctx.state is None:
        ctx.checkpoint({"done": [task.n]})
        _interrupted(task.kind)
    return {"kept": kept, "again": ctx.step("outer", outer), "state": ctx.state, "pid": os.getpid()}


def _interrupted(kind: str) -> None:
    match kind:
        case "fails":
            raise ConnectionError("not yet")
        case "snoozes":
            raise Snoozed(0.05, "not_yet", "the sun is up")
        case "snoozes_in_a_group":
            raise BaseExceptionGroup("together", [Snoozed(0.01, "soon"), Snoozed(0.05, "not_yet", "the sun is up")])
        case "crashes":
            os._exit(137)


@task_type("journey_thread", timeout_seconds=60, max_attempts=4, **_FAST)  # type: ignore[arg-type]
def journey_thread(ctx: BlockingTaskContext, task: At) -> dict[str, Any]:
    """Make the journey in a thread."""
    return _journey(ctx, task)


@task_type("journey_process", timeout_seconds=60, max_attempts=4, executor="process", **_FAST)  # type: ignore[arg-type]
def journey_process(ctx: BlockingTaskContext, task: At) -> dict[str, Any]:
    """Make the journey in a process."""
    return _journey(ctx, task)


@task_type("strides", timeout_seconds=60)
def strides(ctx: BlockingTaskContext, task: At) -> None:
    """Go on in a thread, one step after the other, until told to go; `kind` says whether it saves its state instead."""
    _started(ctx, task)
    n = 0
    while not _may_go(task):
        time.sleep(_LOOK_SECONDS)
        n += 1
        if task.kind == "saves":
            ctx.checkpoint(n)
        elif n < 900:
            ctx.step("stride", abs, n)
