"""Programs that the tests need and no Python package brings: found, or installed by apt where that is allowed.

As a program (`python -m tests.support.install`), it does so before a test run.
"""

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

_RABBITMQ_FOLDERS = (Path("/usr/lib/rabbitmq/bin"), Path("/usr/local/sbin"), Path("/opt/rabbitmq/sbin"))
_POLICY = Path("/usr/sbin/policy-rc.d")


class MissingProgram(Exception):
    """A program is missing and cannot be installed here; the text has the command that does it."""


def ensure_rabbitmq() -> Path:
    """Return the folder with RabbitMQ's programs, installing them when needed. Raises MissingProgram."""
    return _find_rabbitmq() or _install_rabbitmq()


def ensure_curl() -> None:
    """Have curl, with which the printed requests are tried as they are printed. Raises MissingProgram."""
    if shutil.which("curl") is None:
        _apt_install("curl", "curl")


def ensure_faketime() -> Path:
    """Return the library that shifts a process's clock, installing it when needed. Raises MissingProgram."""
    found = next(iter(sorted(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"))), None)
    if found is None:
        _apt_install("faketime", "faketime")
        found = next(iter(sorted(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"))), None)
    if found is None:
        raise MissingProgram("faketime is installed, but /usr/lib has no faketime/libfaketime.so.1")
    return found


def _find_rabbitmq() -> Path | None:
    # Debian's programs in the PATH switch to the user rabbitmq and its directories; those behind them do not.
    folders = [folder for folder in _RABBITMQ_FOLDERS if (folder / "rabbitmq-server").exists()]
    return folders[0] if folders and shutil.which("epmd") else None


def _install_rabbitmq() -> Path:
    _apt_install("rabbitmq-server", "RabbitMQ")
    found = _find_rabbitmq()
    if found is None:
        places = ", ".join(str(folder) for folder in _RABBITMQ_FOLDERS)
        raise MissingProgram(
            f"RabbitMQ is installed, but its programs are in none of {places}, or epmd is not in the PATH"
        )
    return found


def _apt_install(package: str, what: str) -> None:
    if shutil.which("apt-get") is None:
        raise MissingProgram(f"{what} is missing and this machine has no apt-get; install {package} by its own means")
    if os.geteuid() != 0:
        raise MissingProgram(f"{what} is missing; install it with: sudo apt-get install {package}")
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    with _no_services_are_started():
        for command in (["update"], ["install", "-y", "--no-install-recommends", package]):
            answer = subprocess.run(
                ["apt-get", "-q", *command],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                check=False,
            )
            if answer.returncode != 0:
                raise MissingProgram(
                    f"{what} is missing and 'apt-get {' '.join(command)}' failed; "
                    f"install {package} yourself:\n{answer.stdout[-2000:]}"
                )


@contextlib.contextmanager
def _no_services_are_started() -> Iterator[None]:
    """Tell Debian's package scripts to start nothing while we install; put back what was said before."""
    kept = _POLICY.with_name("policy-rc.d.before-despacho")
    if _POLICY.exists():
        _POLICY.replace(kept)
    _POLICY.write_text("#!/bin/sh\nexit 101\n")
    _POLICY.chmod(0o755)
    try:
        yield
    finally:
        _POLICY.unlink()
        if kept.exists():
            kept.replace(_POLICY)


def main() -> int:
    """Make sure of every program; print what is missing and return 1 when one is."""
    try:
        ensure_rabbitmq()
    except MissingProgram as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
