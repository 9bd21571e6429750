"""A process that gives birth to children at once: forked from the worker while that was small, with all imports done.

A start from nothing takes a second of processor time, and a worker that was lost leaves as many suspects as it had
slots. The nursery is forked before there is a loop, a thread, a connection or a module of somebody else's; those are
imported in the child. Whatever keeps it away (no Linux, a thread that runs already) only makes children slower.
"""

import asyncio
import contextlib
import os
import select
import signal
import socket
import sys
from collections.abc import Sequence

from app.settings import Settings
from app.task_modules import load
from workers.child import die_with, serve
from workers.llm.pricing import read_list

_open: "Nursery | None" = None


def open_nursery(settings: Settings) -> None:
    """Fork the nursery of this process, where that is safe; called once, before anything else is begun."""
    global _open
    if sys.platform != "linux" or len(os.listdir("/proc/self/task")) != 1:  # noqa: PTH208
        return
    load(())
    if any(not provider.prices for provider in settings.llm.providers.values()):
        read_list()
    worker, ours = socket.socketpair()
    parent = os.getpid()
    if (pid := os.fork()) == 0:
        code = 1
        try:
            worker.close()
            die_with(parent)
            _tend(ours, settings.task_modules)
            code = 0
        finally:
            os._exit(code)
    ours.close()
    _open = Nursery(worker, pid)


def nursery() -> "Nursery | None":
    """Give the nursery of this process, where it has one that lives."""
    return _open if _open is not None and _open.pid_of_owner == os.getpid() and not _open.closed else None


class ForkedProcess:
    """A child of the nursery, with what `asyncio.subprocess.Process` offers for one of our own."""

    def __init__(self, pid: int, told: asyncio.StreamReader) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._ending = asyncio.create_task(self._hear(told))

    async def _hear(self, told: asyncio.StreamReader) -> int:
        line = await told.readline()
        # Without a word the nursery has died, and its children with it.
        self.returncode = int(line) if line.endswith(b"\n") else -signal.SIGKILL
        return self.returncode

    async def wait(self) -> int:
        """Wait for its end and give its exit code, negative for a signal."""
        return await asyncio.shield(self._ending)

    def send_signal(self, number: int) -> None:
        """Send a signal. Raises ProcessLookupError once it has ended."""
        if self.returncode is not None:
            raise ProcessLookupError
        os.kill(self.pid, number)


class Nursery:
    """The worker's side: asks for children."""

    def __init__(self, line: socket.socket, pid: int) -> None:
        self.pid = pid
        self.pid_of_owner = os.getpid()
        self.closed = False
        self._line = line

    async def birth(self, reads: int, writes: int) -> ForkedProcess:
        """Have a child that reads its tasks from one descriptor and writes to the other. Raises OSError without one."""
        told_read, told_write = os.pipe()
        try:
            socket.send_fds(self._line, [b"c"], [reads, writes, told_write])
        except OSError:
            self.closed = True
            os.close(told_read)
            raise
        finally:
            os.close(told_write)
        told = asyncio.StreamReader()
        await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(told), os.fdopen(told_read, "rb", buffering=0)
        )
        line = await told.readline()
        if not line.endswith(b"\n"):
            self.closed = True
            raise ChildProcessError("the nursery has ended")
        return ForkedProcess(int(line), told)


def _tend(line: socket.socket, modules: Sequence[str]) -> None:
    """Fork a child for every request and tell its end, until the worker is gone."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    woken, wakes = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(wakes, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    told: dict[int, int] = {}
    while True:
        ready, _, _ = select.select([line.fileno(), woken], [], [])
        if woken in ready:
            with contextlib.suppress(BlockingIOError):
                os.read(woken, 4096)
            _tell_ended(told)
        if line.fileno() in ready:
            request, given, _, _ = socket.recv_fds(line, 1, 3)
            if not request:
                return
            reads, writes, tells = given
            parent = os.getpid()
            if (pid := os.fork()) == 0:
                line.close()
                for held in (woken, wakes, tells, *told.values()):
                    os.close(held)
                _live(reads, writes, parent, modules)
            os.close(reads)
            os.close(writes)
            told[pid] = tells
            _say(tells, pid)


def _tell_ended(told: dict[int, int]) -> None:
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        if (tells := told.pop(pid, None)) is not None:
            _say(tells, os.waitstatus_to_exitcode(status))
            os.close(tells)


def _say(descriptor: int, number: int) -> None:
    with contextlib.suppress(BrokenPipeError):
        os.write(descriptor, f"{number}\n".encode())


def _live(reads: int, writes: int, parent: int, modules: Sequence[str]) -> None:
    """Live as a child; never returns. The handler's prints go to stderr, as in a child that was started."""
    code = 1
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.dup2(2, 1)
        serve(reads, writes, parent, modules)
        code = 0
    except BaseException as error:
        sys.excepthook(type(error), error, error.__traceback__)
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)
