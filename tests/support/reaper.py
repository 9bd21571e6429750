"""Nothing that a test run starts outlives it: a process of its own that waits for our end, however it comes.

The reaper holds the other end of a pipe. When the pipe closes (a normal end, Ctrl-C, or a kill of the test process),
it kills the process groups that are still registered and removes the registered directories.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from functools import cache
from pathlib import Path

REMOVE_WITHIN_SECONDS = 10.0


class Reaper:
    """Our end of the pipe."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-I", __file__], stdin=subprocess.PIPE, text=True, start_new_session=True
        )

    def watch(self, group: int) -> None:
        """Kill the process group when we end."""
        self._tell(f"watch {group}")

    def forget(self, group: int) -> None:
        """Leave a process group alone that has ended."""
        self._tell(f"forget {group}")

    def directory(self, name: str) -> Path:
        """Make a temporary directory that is removed when we end."""
        path = Path(tempfile.mkdtemp(prefix=f"despacho-test-{name}-"))
        self._tell(f"remove {path}")
        return path

    def _tell(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()


@cache
def reaper() -> Reaper:
    """Return the one reaper of this process, started at the first call."""
    return Reaper()


def _serve() -> None:
    groups: set[int] = set()
    directories: list[str] = []
    for line in sys.stdin:
        word, _, value = line.rstrip("\n").partition(" ")
        if word == "watch":
            groups.add(int(value))
        elif word == "forget":
            groups.discard(int(value))
        elif word == "remove":
            directories.append(value)
    for group in groups:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(group, signal.SIGKILL)
    deadline = time.monotonic() + REMOVE_WITHIN_SECONDS
    # A server that is just ending may still write, so once is not enough.
    while directories and time.monotonic() < deadline:
        for directory in directories:
            shutil.rmtree(directory, ignore_errors=True)
        directories = [directory for directory in directories if Path(directory).exists()]
        time.sleep(0.05)


if __name__ == "__main__":
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    _serve()
