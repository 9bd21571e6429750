"""Real processes for crash tests: start one, wait for facts in its log, freeze, thaw, stop or kill it."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence

from tests.support.eventually import eventually
from tests.support.postgres import ROOT
from tests.support.reaper import reaper


class RoleProcess:
    """One process with its output in a file; it and its children die with the test run."""

    def __init__(
        self, arguments: Sequence[str], environment: Mapping[str, str] | None = None, name: str = "role"
    ) -> None:
        """Start `python -m app` with the arguments, unless the first one names another way (`-c`, `-m`)."""
        own_way = bool(arguments) and arguments[0].startswith("-")
        command = [sys.executable, *([] if own_way else ["-m", "app"]), *arguments]
        self.log_path = reaper().directory(name) / "output"
        with self.log_path.open("ab") as output:
            self.process = subprocess.Popen(
                command,
                cwd=ROOT,
                env={**os.environ, "PYTHONUNBUFFERED": "1", **(environment or {})},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        reaper().watch(self.process.pid)

    @property
    def pid(self) -> int:
        """Return the process id, which is also the id of its process group."""
        return self.process.pid

    def output(self) -> str:
        """Return everything that it printed so far."""
        return self.log_path.read_text(errors="replace")

    def log_lines(self) -> list[dict[str, object]]:
        """Return the JSON lines of its output; other lines are left out."""
        lines = [line for line in self.output().splitlines() if line.startswith("{") and line.endswith("}")]
        return [json.loads(line) for line in lines]

    async def says(self, text: str, within_seconds: float = 20.0) -> None:
        """Wait until its output has the text. Raises RuntimeError, with the output, when it ended before."""

        def said() -> bool:
            if text in self.output():
                return True
            if self.process.poll() is not None:
                raise RuntimeError(f"ended with {self.process.returncode} before it said {text!r}:\n{self.output()}")
            return False

        await eventually(said, within_seconds=within_seconds, what=f"the output has {text!r}")

    def freeze(self) -> None:
        """Stop the whole group in its tracks, as a paused machine does."""
        os.killpg(self.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        """Let a frozen group go on."""
        os.killpg(self.pid, signal.SIGCONT)

    async def kill(self) -> None:
        """Kill the process and its children as a crash would."""
        if self.process.returncode is None:
            os.killpg(self.pid, signal.SIGKILL)
        await self._ended(10.0)

    async def stop(self, within_seconds: float = 40.0) -> int:
        """Ask it to drain and end (SIGTERM); return its exit code."""
        self.process.terminate()
        return await self._ended(within_seconds)

    async def _ended(self, within_seconds: float) -> int:
        code = await asyncio.to_thread(self.process.wait, within_seconds)
        reaper().forget(self.pid)
        return code
