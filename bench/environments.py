"""The peers' own environments, made once and kept: `.venv-bench`, and `.venv-bench-312` for what needs Python 3.12."""

import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from bench.system import ROOT

_NEWER = ("python3.14", "python3.13", "python3.12")


@dataclass(frozen=True, slots=True)
class Environment:
    """Where an environment lives, and the pinned packages that belong in it."""

    folder: Path
    lock: Path

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"


COMMON = Environment(ROOT / ".venv-bench", ROOT / "bench" / "requirements.lock")
NEWER = Environment(ROOT / ".venv-bench-312", ROOT / "bench" / "requirements-oban.lock")


class EnvironmentMissing(Exception):
    """An environment cannot be made; the text is the reason that the peer's row shows."""


def ensure(environment: Environment) -> Path:
    """Make the environment, or bring it to its lock file; return its interpreter. Raises EnvironmentMissing."""
    stamp = environment.folder / "installed.lock"
    wanted = environment.lock.read_text()
    if stamp.exists() and stamp.read_text() == wanted:
        return environment.python
    base = sys.executable if environment is COMMON else _newer_python()
    print(f"installing {environment.lock.name} into {environment.folder.name} …", file=sys.stderr, flush=True)
    for command in (
        [base, "-m", "venv", str(environment.folder)],
        [str(environment.python), "-m", "pip", "install", "--quiet", "-r", str(environment.lock)],
    ):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise EnvironmentMissing(f"pip could not install {environment.lock.name}: {_last_line(done.stderr)}")
    stamp.write_text(wanted)
    return environment.python


def _newer_python() -> str:
    """Find an interpreter of 3.12 or newer: in PATH, or among pyenv's."""
    found = [path for name in _NEWER if (path := shutil.which(name)) and _works(path)]
    kept = (
        path
        for name in _NEWER
        for path in Path.home().glob(f".pyenv/versions/{name.removeprefix('python')}*/bin/python")
    )
    for path in (*found, *map(str, kept)):
        if _works(path):
            return path
    running = ".".join(map(str, sys.version_info[:2]))
    raise EnvironmentMissing(f"needs Python 3.12 or newer; this is {running} and no newer one was found")


def _works(path: str) -> bool:
    check = [path, "-c", "import sys, venv; sys.exit(sys.version_info < (3, 12))"]
    return subprocess.run(check, capture_output=True, check=False).returncode == 0


def _last_line(text: str) -> str:
    return (text.strip().split("\n") or ["no output"])[-1]
