"""The command line as a user has it: real processes, their output and their exit codes."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.support.processes import RoleProcess

ROOT = Path(__file__).resolve().parents[2]
KEY = "dsp_a-key-that-only-these-tests-know"
_SAID_LAST = "Ctrl-C stops."


@dataclass(frozen=True, slots=True)
class Ended:
    """What a command left behind."""

    code: int
    out: str
    err: str


def clean_environment() -> dict[str, str]:
    """Return the environment without any setting of Despacho."""
    return {name: value for name, value in os.environ.items() if not name.startswith("DESPACHO_")}


async def shell(line: str, environment: Mapping[str, str] | None = None) -> Ended:
    """Run a line in a shell; `despacho` is the command line of this tree."""
    environment = {**clean_environment(), "PYTHONPATH": str(ROOT), **(environment or {})}
    prelude = f'despacho() {{ "{sys.executable}" -m app "$@"; }}\n'
    done = await asyncio.to_thread(
        subprocess.run, ["bash", "-o", "pipefail", "-c", prelude + line], env=environment, cwd="/",
        capture_output=True, text=True, check=False, timeout=120, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    return Ended(done.returncode, done.stdout, done.stderr)


class Up:
    """A running `despacho up`."""

    def __init__(self, process: RoleProcess) -> None:
        self.process = process

    @classmethod
    async def start(cls, data_dir: Path, **environment: str) -> "Up":
        """Start it on a free port and return when it says that it runs."""
        given = {name: "" for name in os.environ if name.startswith("DESPACHO_")}
        process = RoleProcess(["up", "--port", "0", "--data-dir", str(data_dir)], {**given, **environment}, name="up")
        await process.says(_SAID_LAST, within_seconds=90)
        return cls(process)

    @property
    def url(self) -> str:
        """Return the address that it printed."""
        return self._after("Despacho is running:")

    @property
    def curl(self) -> str:
        """Return the command that it printed."""
        return next(line.strip() for line in self.process.output().splitlines() if line.strip().startswith("curl"))

    @property
    def printed_key(self) -> str | None:
        """Return the admin key that it printed, if it did."""
        return self._after("admin key").split()[0] if "admin key" in self.process.output() else None

    def _after(self, words: str) -> str:
        text = self.process.output()
        return text[text.index(words) + len(words) :].split("\n", 1)[0].strip()
