"""Start a program of PostgreSQL under the guard: as the right account, and never longer than we live."""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from app.embedded import guard
from app.embedded.account import Account


class GuardedProcess:
    """One program under its guard; its output is appended to `log`."""

    def __init__(self, account: Account, command: list[str], environment: Mapping[str, str], log: Path) -> None:
        ids = [str(account.uid), str(account.gid), str(account.capability)]
        descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        with os.fdopen(descriptor, "ab") as output:
            self._guard = subprocess.Popen(  # noqa: S603
                [sys.executable, "-I", "-S", guard.__file__, *ids, *command],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=output,
                cwd="/",
                env={**plain_environment(), **environment},
                start_new_session=True,
            )
        line = self._guard.stdout.readline() if self._guard.stdout is not None else b""
        self.pid = int(line) if line.strip().isdigit() else None

    @property
    def guard_pid(self) -> int:
        """Return the process id of the guard, which is also the id of its process group."""
        return self._guard.pid

    @property
    def has_ended(self) -> bool:
        """Return whether the program and its guard have ended."""
        return self._guard.poll() is not None

    def wait(self, within_seconds: float) -> int:
        """Return the exit code of the program. Raises TimeoutError when it still runs."""
        try:
            return self._guard.wait(within_seconds)
        except subprocess.TimeoutExpired:
            raise TimeoutError(f"process {self.pid} still runs after {within_seconds:g} s") from None

    def close(self) -> None:
        """Let go: the guard stops a program that still runs, and this returns when both have ended."""
        for pipe in (self._guard.stdin, self._guard.stdout):
            if pipe is not None:
                pipe.close()
        self._guard.wait()


def plain_environment() -> dict[str, str]:
    """Return our environment without what would steer PostgreSQL's programs, and with plain English messages."""
    return {**{name: value for name, value in os.environ.items() if not name.startswith("PG")}, "LC_ALL": "C"}
