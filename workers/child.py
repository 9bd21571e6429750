"""The child's side of `children.py`: reads one task after the other, runs its handler, answers.

One loop for the child's life, and facilities of its own, so that a handler here has all that it has elsewhere; a
handler that asks for none of them costs no connection.

Usage: python -m workers.child READ_FD WRITE_FD PARENT_PID [MODULE …]; not meant to be started by hand.
"""

import asyncio
import base64
import ctypes
import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import IO, Any

from app.domain.errors import DeadLetter, yielded_as_message, yielded_in
from app.domain.failure import Failure, classify
from app.domain.task_types import Executor
from app.task_modules import Registry, load
from app.telemetry.logs import configure, redact, redact_settings
from workers.attempt import Attempt
from workers.blocking_context import BlockingTaskContext
from workers.child_runtime import child_runtime, refresh
from workers.context import TaskContext
from workers.facilities import Facilities, open_facilities

_PR_SET_PDEATHSIG = 1


def die_with(parent: int) -> None:
    """End this process when its worker ends, however that happens."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit(0)


class _Pipe:
    def __init__(self, reader: IO[bytes], writer: IO[bytes]) -> None:
        self._reader = reader
        self._writer = writer
        self._lock = threading.Lock()
        self._asking = threading.Lock()

    def hear(self) -> dict[str, Any] | None:
        line = self._reader.readline()
        return json.loads(line) if line else None

    def say(self, message: dict[str, Any]) -> None:
        line = json.dumps(message, default=lambda _: None).encode() + b"\n"
        with self._lock:
            self._writer.write(line)
            self._writer.flush()

    async def read_input(self, tenant_id: str, ref: str) -> tuple[bytes, str]:
        return await asyncio.to_thread(self._ask, ref)

    def _ask(self, ref: str) -> tuple[bytes, str]:
        # One question at a time: answers do not say what they answer.
        with self._asking:
            self.say({"read": ref})
            heard = self.hear()
        match heard:
            case {"content": str(content), "content_type": str(content_type)}:
                return base64.b64decode(content), content_type
            case {"missing": [error_type, message]}:
                raise DeadLetter(error_type, message)
            case _:
                raise DeadLetter("missing_input", "the worker did not give the input")


class _PipedContext(TaskContext):
    """A context that passes progress on at once: nobody here takes it with a heartbeat."""

    __slots__ = ("_pipe",)

    def __init__(self, pipe: _Pipe, owner: Attempt, facilities: Facilities) -> None:
        super().__init__(owner, facilities)
        self._pipe = pipe

    def progress(self, fraction: float, message: str = "") -> None:
        super().progress(fraction, message)
        if (said := self.take_progress()) is not None:
            self._pipe.say({"progress": list(said)})


def _called(handler: Callable[..., Any], *arguments: Any) -> Any:
    """Call a handler; StopIteration, which a future refuses, comes out as another error: else nobody ever hears."""
    try:
        return handler(*arguments)
    except StopIteration as error:
        raise RuntimeError("the handler raised StopIteration") from error


async def _run(registry: Registry, pipe: _Pipe, facilities: Facilities, task: dict[str, Any]) -> dict[str, Any]:
    task_type = registry[task["type"]]
    owner = Attempt(spec=task_type.spec, **task["owner"])
    context = _PipedContext(pipe, owner, facilities)
    context.book.take_in_message(task["journal"])
    context.secrets = task["secrets"]
    for value in context.secrets.values():
        redact(value)
    try:
        value = task_type.validate_input(task["input"])
        arguments = (value,) if task_type.takes_input else ()
        if task_type.spec.executor is Executor.ASYNC:
            returned = await task_type.handler(context, *arguments)
        else:
            blocking = BlockingTaskContext(context, asyncio.get_running_loop())
            returned = await asyncio.to_thread(_called, task_type.handler, blocking, *arguments)
    except BaseException as error:
        return _ended_badly(error)
    try:
        return {"result": task_type.encode_result(returned)}
    except Exception as error:
        message = f"what the handler returned is not JSON ({type(error).__name__})"
        return {"failure": asdict(Failure("invalid_result", message, False))}


def _ended_badly(error: BaseException) -> dict[str, Any]:
    if (how := yielded_in(error)) is not None:
        return {"yielded": yielded_as_message(how)}
    return {"failure": asdict(classify(error, datetime.now(UTC)))}


async def _serve(pipe: _Pipe, registry: Registry) -> None:
    """Serve tasks until the parent closes the pipe."""
    given = await asyncio.to_thread(pipe.hear)
    if given is None:
        return
    runtime = child_runtime(given, registry, pipe.say)
    # What a handler logs here goes out as from its worker: as JSON lines, without secrets.
    configure(runtime.settings.log_level, "worker-child")
    redact_settings(runtime.settings)
    facilities = open_facilities(runtime, read_input=pipe.read_input)
    try:
        while (task := await asyncio.to_thread(pipe.hear)) is not None:
            refresh(runtime, task)
            running = asyncio.create_task(_run(registry, pipe, facilities, task))
            await asyncio.wait((running,))
            # A handler that cancels its own task may end it before it answers.
            pipe.say(_ended_badly(asyncio.CancelledError()) if running.cancelled() else running.result())
    finally:
        await facilities.close()
        await runtime.close()


def serve(read_fd: int, write_fd: int, parent: int, modules: Sequence[str]) -> None:
    """Serve tasks until the parent closes the pipe."""
    die_with(parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    with os.fdopen(read_fd, "rb") as reader, os.fdopen(write_fd, "wb") as writer:
        asyncio.run(_serve(_Pipe(reader, writer), load(modules)))


def main() -> None:
    """Serve as the command line says."""
    read_fd, write_fd, parent = (int(value) for value in sys.argv[1:4])
    serve(read_fd, write_fd, parent, sys.argv[4:])


if __name__ == "__main__":
    main()
