"""Who uses a data directory: the lock that its owner holds, and the server that an owner who died left behind."""

import fcntl
import os
import subprocess
from pathlib import Path
from typing import Final

from app.embedded.errors import AlreadyRunning

MARK: Final = "cluster_name=despacho-embedded"
"""On the command line of every server that we start, and of no other."""


class DirectoryLock:
    """A lock on a directory that the kernel frees when its owner ends, however it ends."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._descriptor: int | None = None

    def take(self) -> None:
        """Take the lock. Raises AlreadyRunning, naming the process that has it."""
        descriptor = os.open(self._directory / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = os.read(descriptor, 32).decode(errors="replace").strip() or "unknown"
            os.close(descriptor)
            raise AlreadyRunning(
                f"the data directory {self._directory} is in use by process {owner}; "
                "stop that one first, or give another directory with --data-dir"
            ) from None
        os.ftruncate(descriptor, 0)
        os.write(descriptor, f"{os.getpid()}\n".encode())
        self._descriptor = descriptor

    def release(self) -> None:
        """Free the lock; one that is not held is left alone."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def postmaster_pid(cluster: Path) -> int | None:
    """Return the process id in the cluster's pid file, which may be stale, or None when there is none."""
    lines = _pid_file_lines(cluster)
    return int(lines[0]) if lines and lines[0].strip().isdigit() else None


def says_ready(cluster: Path, pid: int) -> bool:
    """Return whether the server with this process id has written that it accepts connections."""
    lines = _pid_file_lines(cluster)
    return len(lines) >= 8 and lines[0].strip() == str(pid) and lines[7].strip() == "ready"


def is_alive(pid: int) -> bool:
    """Return whether a process with this id exists, whoever owns it."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def is_our_server(pid: int, cluster: Path) -> bool:
    """Return whether the process is a server that we started on this cluster, by its command line."""
    arguments = _command_line(pid)
    return MARK in arguments and str(cluster) in arguments


def _pid_file_lines(cluster: Path) -> list[str]:
    try:
        return (cluster / "postmaster.pid").read_text().splitlines()
    except FileNotFoundError:
        return []


def _command_line(pid: int) -> list[str]:
    if Path("/proc/self").exists():
        try:
            return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
        except OSError:
            return []
    answer = subprocess.run(["ps", "-o", "args=", "-p", str(pid)], capture_output=True, text=True, check=False)  # noqa: S603, S607
    return answer.stdout.split()
