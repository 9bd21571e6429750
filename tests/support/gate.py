"""Every check of `make test`, each with its time, and a summary at the end. The exit code is 0 when all passed.

All of them run, whatever the first says: one run tells everything that is wrong.
"""

import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from tests.support.install import MissingProgram, ensure_curl, ensure_faketime, ensure_rabbitmq
from tests.support.prometheus import ensure_prometheus

ROOT = Path(__file__).resolve().parents[2]
_BIN = Path(sys.executable).parent


@dataclass(frozen=True, slots=True)
class Check:
    """One command and what it proves."""

    name: str
    command: tuple[str, ...]


CHECKS = (
    Check("format", (str(_BIN / "ruff"), "format", "--check", ".")),
    Check("lint", (str(_BIN / "ruff"), "check", ".")),
    Check("types", (str(_BIN / "mypy"),)),
    Check("import contracts", (str(_BIN / "lint-imports"),)),
    Check("tests", (sys.executable, "-m", "pytest")),
)


@dataclass(frozen=True, slots=True)
class Verdict:
    """How one check went."""

    name: str
    passed: bool
    seconds: float


def run(check: Check) -> Verdict:
    """Run one check; its output goes straight to the terminal."""
    sys.stdout.write(f"\n== {check.name}: {' '.join(Path(part).name for part in check.command)}\n")
    sys.stdout.flush()
    started = time.monotonic()
    code = subprocess.run(check.command, cwd=ROOT, env={**os.environ, "PYTHONUNBUFFERED": "1"}, check=False).returncode
    return Verdict(check.name, code == 0, time.monotonic() - started)


def ensure_programs() -> Verdict:
    """Make sure of the programs that no Python package brings."""
    started = time.monotonic()
    passed = True
    for ensure in (ensure_rabbitmq, ensure_prometheus, ensure_curl, ensure_faketime):
        try:
            ensure()
        except MissingProgram as error:
            sys.stdout.write(f"{error}\n")
            passed = False
    return Verdict("programs", passed, time.monotonic() - started)


def main() -> int:
    """Run everything and print the summary."""
    verdicts = [ensure_programs(), *(run(check) for check in CHECKS)]
    lines = [f"{'passed' if one.passed else 'FAILED':<8}{one.name:<20}{one.seconds:>8.1f} s" for one in verdicts]
    sys.stdout.write("\n" + "\n".join(lines) + "\n")
    failed = [one.name for one in verdicts if not one.passed]
    sys.stdout.write(f"\nmake test: {'failed: ' + ', '.join(failed) if failed else 'everything passed'}\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
