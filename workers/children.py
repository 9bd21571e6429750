"""Child processes for handlers: for `executor="process"`, and alone for suspects of having taken a worker along.

Parent and child speak JSON lines over pipes of their own; the handler's prints go to stderr. A child that ends without
an answer has crashed, and that is known at once, not when a lease runs out.
"""

import asyncio
import base64
import contextlib
import json
import logging
import os
import signal
import sys
from typing import Any

from app.domain.errors import DeadLetter, Yielded, yielded_of_message
from app.domain.failure import Failure
from app.runtime import Runtime
from app.telemetry.logs import event
from workers.child_runtime import count_for_child, current, handed_over
from workers.context import ReadInput
from workers.nursery import ForkedProcess, nursery
from workers.run import Run

log = logging.getLogger("despacho.worker")
_LAST_WORDS_SECONDS = 0.5
_LINE_LIMIT = 64 * 1024 * 1024


class ChildCrashed(Exception):
    """The child process ended without an answer."""


class ChildFailed(Exception):
    """The handler failed in the child; `failure` says how."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.error_type)
        self.failure = failure


class _Child:
    def __init__(
        self,
        process: asyncio.subprocess.Process | ForkedProcess,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self.process = process
        self.reader = reader
        self.writer = writer

    @classmethod
    async def start(cls, runtime: Runtime) -> "_Child":
        to_child_read, to_child_write = os.pipe()
        from_child_read, from_child_write = os.pipe()
        try:
            process = await _begun(runtime, to_child_read, from_child_write)
        except BaseException:
            os.close(to_child_write)
            os.close(from_child_read)
            raise
        finally:
            os.close(to_child_read)
            os.close(from_child_write)
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(limit=_LINE_LIMIT)
        await loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(from_child_read, "rb", buffering=0)
        )
        transport, protocol = await loop.connect_write_pipe(
            lambda: asyncio.streams.FlowControlMixin(loop=loop), os.fdopen(to_child_write, "wb", buffering=0)
        )
        child = cls(process, reader, asyncio.StreamWriter(transport, protocol, None, loop))
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # it has crashed, as will be heard
            await child.say(handed_over(runtime))
        return child

    async def say(self, message: dict[str, Any]) -> None:
        self.writer.write(json.dumps(message).encode() + b"\n")
        await self.writer.drain()

    async def hear(self) -> dict[str, Any] | None:
        """Give the next message; None once the child has ended, also when processes that it left hold the pipe open."""
        reading, ending = asyncio.create_task(self.reader.readline()), asyncio.create_task(self.process.wait())
        try:
            await asyncio.wait((reading, ending), return_when=asyncio.FIRST_COMPLETED)
            # What it said before it ended lies in the pipe already.
            await asyncio.wait((reading,), timeout=_LAST_WORDS_SECONDS)
            line = reading.result() if reading.done() else b""
        finally:
            reading.cancel()
            ending.cancel()
        return json.loads(line) if line.endswith(b"\n") else None

    async def end(self) -> None:
        self.writer.close()
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(signal.SIGKILL)
        await self.process.wait()


async def _begun(runtime: Runtime, reads: int, writes: int) -> asyncio.subprocess.Process | ForkedProcess:
    """Begin a process for a child: a fork where there is a nursery, else one that is started from nothing."""
    if (born_in := nursery()) is not None:
        try:
            return await born_in.birth(reads, writes)
        except OSError as error:
            event(log, "nursery_lost", level=logging.WARNING, error=error)
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", "workers.child", str(reads), str(writes), str(os.getpid()),
        *runtime.settings.task_modules, pass_fds=(reads, writes), stdin=asyncio.subprocess.DEVNULL, stdout=2,
    )  # fmt: skip


class Children:
    """Keeps idle children for reuse; a suspect always gets a fresh one, which then ends."""

    def __init__(self, runtime: Runtime, *, read_input: ReadInput, keep: int) -> None:
        self._runtime = runtime
        self._read_input = read_input
        self._keep = keep
        self._idle: list[_Child] = []

    async def run(self, run: Run, input_text: str | bytes | None, *, fresh: bool) -> str:
        """Run the attempt in a child and return the result's exact JSON text.

        Raises ChildFailed, ChildCrashed, or how the handler yielded; when cancelled, the child is killed and really
        ended before it raises.
        """
        child = await self._started() if fresh else self._idle_one() or await self._started()
        reusable = False
        try:
            result = await self._converse(child, run, input_text)
            reusable = not fresh and len(self._idle) < self._keep
            return result
        except (ChildFailed, Yielded):
            reusable = not fresh and len(self._idle) < self._keep
            raise
        finally:
            if reusable:
                self._idle.append(child)
            else:
                await asyncio.shield(child.end())

    def _idle_one(self) -> _Child | None:
        """Take an idle child that still lives: one that died while idle is no crash of the next task."""
        while self._idle:
            child = self._idle.pop()
            if child.process.returncode is None:
                return child
            child.writer.close()
        return None

    async def _started(self) -> _Child:
        """Start a child; when cancelled meanwhile, the child that is just being born is ended."""
        starting = asyncio.ensure_future(_Child.start(self._runtime))
        try:
            return await asyncio.shield(starting)
        except asyncio.CancelledError:
            await (await starting).end()
            raise

    async def close(self) -> None:
        """End every idle child."""
        idle, self._idle = self._idle, []
        for child in idle:
            await child.end()

    async def _converse(self, child: _Child, run: Run, input_text: str | bytes | None) -> str:
        claimed = run.claimed
        text = input_text.decode("utf-8", "replace") if isinstance(input_text, bytes) else input_text
        try:
            await child.say(
                {
                    "type": claimed.type,
                    "input": text,
                    "owner": run.context.owner.as_message(),
                    "journal": run.context.book.as_message(),
                    "secrets": dict(run.context.secrets),
                    **current(self._runtime),
                }
            )
            while (heard := await child.hear()) is not None:
                match heard:
                    case {"result": str(result)}:
                        return result
                    case {"failure": dict(failure)}:
                        raise ChildFailed(Failure(**failure))
                    case {"yielded": list(parts)}:
                        raise yielded_of_message(parts)
                    case {"read": str(ref)}:
                        await child.say(await self._read(claimed.tenant_id, ref))
                    case _:
                        self._note(run, heard)
        except (BrokenPipeError, ConnectionResetError):
            pass
        code = await child.process.wait()
        how = f"killed by signal {-code}" if code < 0 else f"exit status {code}"
        raise ChildCrashed(f"the handler's process ended before it answered ({how})")

    def _note(self, run: Run, heard: dict[str, Any]) -> None:
        """Take up what the child tells in passing."""
        match heard:
            case {"progress": [fraction, message]}:
                run.context.progress(fraction, message)
            case {"metric": name, "arguments": list(arguments), "named": dict(named)}:
                count_for_child(self._runtime.metrics, name, arguments, named)
            case {"poke": _}:
                self._runtime.dispatcher_poke.poke()

    async def _read(self, tenant_id: str, ref: str) -> dict[str, Any]:
        try:
            content, content_type = await self._read_input(tenant_id, ref)
        except DeadLetter as error:
            return {"missing": [error.error_type, str(error)]}
        return {"content": base64.b64encode(content).decode(), "content_type": content_type}
