"""Run one command, with fewer rights and never longer than the process that asked for it.

Started by file path with a bare interpreter (`python -I -S guard.py …`), so it imports the standard library alone.
It sits between this application and the PostgreSQL server because neither of the two can do its work: a parent-death
signal follows the *thread* that started the child, and a pool thread may end long before its process does.

    guard.py UID GID CAPABILITY COMMAND [ARGUMENT…]

UID and GID of -1 keep the caller's. CAPABILITY is the number of the one Linux capability that the command keeps
although it is not root (-1: none). The first line on stdout is the command's process id. When stdin ends or the
parent is gone, the command gets SIGINT (PostgreSQL: fast shutdown), and SIGQUIT ten seconds later. The exit code is
the command's.
"""

import contextlib
import ctypes
import os
import select
import signal
import struct
import sys
import time
from types import FrameType

QUIT_AFTER_SECONDS = 10.0
CHECK_SECONDS = 0.2
_PR_SET_PDEATHSIG = 1
_PR_SET_KEEPCAPS = 8
_PR_CAP_AMBIENT = 47
_PR_CAP_AMBIENT_RAISE = 2
_CAPABILITY_VERSION_3 = 0x20080522


def _check(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def _become(uid: int, gid: int, capability: int) -> None:
    """Drop to `uid`:`gid`, keeping one capability across the next exec when it is not negative."""
    libc = ctypes.CDLL(None, use_errno=True)
    if uid >= 0:
        if capability >= 0:
            _check(libc.prctl(_PR_SET_KEEPCAPS, 1, 0, 0, 0), "PR_SET_KEEPCAPS")
        os.setgroups([])
        os.setgid(gid)
        os.setuid(uid)
        if capability >= 0:
            bit = 1 << capability
            header = struct.pack("Ii", _CAPABILITY_VERSION_3, 0)
            sets = struct.pack("6I", bit, bit, bit, 0, 0, 0)
            _check(libc.capset(header, sets), "capset")
            _check(libc.prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_RAISE, capability, 0, 0), "PR_CAP_AMBIENT")
    if sys.platform == "linux":
        _check(libc.prctl(_PR_SET_PDEATHSIG, signal.SIGINT, 0, 0, 0), "PR_SET_PDEATHSIG")


def _start(arguments: list[str]) -> int:
    """Fork and exec the command; return its process id."""
    uid, gid, capability = (int(number) for number in arguments[:3])
    guard_pid = os.getpid()
    pid = os.fork()
    if pid:
        return pid
    try:
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.dup2(2, 1)
        signal.pthread_sigmask(signal.SIG_SETMASK, [])
        _become(uid, gid, capability)
        if os.getppid() != guard_pid:
            os._exit(1)
        os.execv(arguments[3], arguments[3:])  # noqa: S606
    except OSError as error:
        os.write(2, f"cannot run {arguments[3]}: {error}\n".encode())
    os._exit(127)


def main(arguments: list[str]) -> int:
    """Run the command until it ends or the parent does; return the command's exit code."""
    parent = os.getppid()
    asked_to_stop = False

    def ask(_number: int, _frame: FrameType | None) -> None:
        nonlocal asked_to_stop
        asked_to_stop = True

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, ask)
    child = _start(arguments)
    os.write(1, f"{child}\n".encode())
    os.close(1)
    quit_at = None
    watched = [0]
    while True:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code
        readable, _, _ = select.select(watched, [], [], CHECK_SECONDS)
        ended = bool(readable) and not os.read(0, 64)
        if ended:
            watched = []
        if quit_at is None and (asked_to_stop or ended or os.getppid() != parent):
            quit_at = time.monotonic() + QUIT_AFTER_SECONDS
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGINT)
        elif quit_at is not None and time.monotonic() > quit_at:
            quit_at = float("inf")
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGQUIT)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
