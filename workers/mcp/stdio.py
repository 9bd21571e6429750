"""An MCP server as a child process that speaks JSON lines: bounded lines, the given environment alone, no survivors.

The SDK's own stdio transport passes parts of the worker's environment on, buffers lines without a bound, and leaves a
call without an answer when its line cannot be read. Here a line that is too long or unreadable fails its call alone.
"""

import asyncio
import contextlib
import json
import os
import re
import signal
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from app.domain.tool_output import cleaned
from workers.mcp.errors import ANSWER_TOO_LARGE, ANSWER_UNREADABLE

_CHUNK_BYTES = 64 * 1024
_KEPT_OF_LONG_LINES = 256
_ID = re.compile(rb'"id"\s*:\s*("[^"\\]{1,64}"|\d{1,18})')
_GRACE_SECONDS = 2.0
# Started through Python: the kernel then ends the server with its worker, however that ends; exec keeps the setting.
_LAUNCHER = (
    "import ctypes,os,sys\n"
    "p=int(sys.argv[1])\n"
    "sys.platform=='linux' and ctypes.CDLL(None).prctl(1,9)\n"
    "os.getppid()==p or os._exit(0)\n"
    "try: os.execvp(sys.argv[2],sys.argv[2:])\n"
    "except OSError: os._exit(127)\n"
)


@contextlib.asynccontextmanager
async def stdio_transport(
    command: str,
    args: Sequence[str],
    environment: Mapping[str, str],
    cwd: Path | None,
    max_answer_bytes: int,
) -> AsyncIterator[tuple[Any, Any]]:
    """Start the program and give the session's two streams; its whole process group is gone afterwards.

    Raises OSError where it cannot be started.
    """
    import anyio

    process = await asyncio.create_subprocess_exec(
        sys.executable, "-I", "-S", "-c", _LAUNCHER, str(os.getpid()), command, *args,
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL,
        env={"PATH": os.defpath, **environment}, cwd=cwd, start_new_session=True, limit=_CHUNK_BYTES,
    )  # fmt: skip
    to_session, from_server = anyio.create_memory_object_stream[Any](0)
    to_server, from_session = anyio.create_memory_object_stream[Any](0)
    wire = _Wire(process, to_session, from_session, max_answer_bytes)
    tasks = [asyncio.create_task(wire.read()), asyncio.create_task(wire.write())]
    try:
        yield from_server, to_server
    finally:
        await _end(process, tasks)
        for stream in (to_session, from_server, to_server, from_session):
            stream.close()


async def _end(process: asyncio.subprocess.Process, tasks: Sequence["asyncio.Task[None]"]) -> None:
    """Close its input, give it a moment, then kill its group; a cancel in between does not leave it behind."""
    try:
        if process.stdin is not None:
            process.stdin.close()
        for task in tasks:
            task.cancel()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_GRACE_SECONDS):
                await process.wait()
    finally:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_GRACE_SECONDS):
                await process.wait()
        transport = getattr(process, "_transport", None)
        if transport is not None:
            transport.close()
    await asyncio.gather(*tasks, return_exceptions=True)


class _Wire:
    def __init__(
        self, process: asyncio.subprocess.Process, to_session: Any, from_session: Any, max_answer_bytes: int
    ) -> None:
        self._process = process
        self._to_session = to_session
        self._from_session = from_session
        self._most = max_answer_bytes
        self._open: dict[bytes, Any] = {}

    async def write(self) -> None:
        """Write what the session sends; the end of the pipe ends the session."""
        from mcp_types import JSONRPCRequest

        stdin = self._process.stdin
        assert stdin is not None  # noqa: S101 - it was started with a pipe
        try:
            async for sent in self._from_session:
                if isinstance(sent.message, JSONRPCRequest):
                    self._open[json.dumps(sent.message.id).encode()] = sent.message.id
                stdin.write(sent.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n")
                await stdin.drain()
        except (OSError, ConnectionError):
            self._to_session.close()

    async def read(self) -> None:
        """Hand on what the server says, line by line, until it ends."""
        import anyio

        with contextlib.suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
            async for line, is_whole in self._lines():
                if is_whole and not line.lstrip().startswith((b"{", b"[")):
                    continue  # some servers print to where only messages belong
                for message in self._messages(line, is_whole):
                    await self._to_session.send(message)
        self._to_session.close()

    async def _lines(self) -> AsyncIterator[tuple[bytes, bool]]:
        """Give each line; of one that is too long its beginning and its end, and False."""
        stdout = self._process.stdout
        assert stdout is not None  # noqa: S101 - it was started with a pipe
        parts: list[bytes] = []
        size, tail = 0, b""
        while chunk := await stdout.read(_CHUNK_BYTES):
            *ends, rest = chunk.split(b"\n")
            for end in ends:
                size += len(end)
                if size <= self._most:
                    yield b"".join((*parts, end)), True
                else:
                    yield b"".join(parts)[:_KEPT_OF_LONG_LINES] + (tail + end)[-_KEPT_OF_LONG_LINES:], False
                parts, size, tail = [], 0, b""
            size += len(rest)
            if size <= self._most:
                parts.append(rest)
            else:
                parts = [b"".join(parts)[:_KEPT_OF_LONG_LINES]]
                tail = (tail + rest)[-_KEPT_OF_LONG_LINES:]

    def _messages(self, line: bytes, is_whole: bool) -> list[Any]:
        from mcp.shared.message import SessionMessage

        if is_whole and (message := _read(line)) is not None:
            self._open.pop(json.dumps(getattr(message, "id", None)).encode(), None)
            return [SessionMessage(message)]
        return [SessionMessage(error) for error in self._failing(line, is_whole)]

    def _failing(self, line: bytes, is_whole: bool) -> list[Any]:
        """Make the errors for the calls that a bad line may have answered: those whose id is in it."""
        from mcp_types import ErrorData, JSONRPCError

        named = [found for found in _ID.findall(line) if found in self._open]
        code = ANSWER_UNREADABLE if is_whole else ANSWER_TOO_LARGE
        error = ErrorData(code=code, message="the answer cannot be taken")
        ids = [self._open.pop(found) for found in dict.fromkeys(named)]
        return [JSONRPCError(jsonrpc="2.0", id=one, error=error) for one in ids]


def _read(line: bytes) -> Any:
    """Read a message; one with lone surrogates or NaN is cleaned first. None where it is no message."""
    from mcp_types import jsonrpc_message_adapter

    try:
        return jsonrpc_message_adapter.validate_json(line, by_name=False)
    except ValueError:
        pass
    try:
        return jsonrpc_message_adapter.validate_python(cleaned(json.loads(line)).value, by_name=False)
    except (ValueError, RecursionError):
        return None
