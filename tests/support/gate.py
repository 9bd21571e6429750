"""Every check of `make test`, each with its time, and a summary at the end. The exit code is 0 when all passed.

All of them run, whatever the first says: one run tells everything that is wrong.
"""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile

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
)
# Two parts of the suite run side by side, each with services of its own: one mostly waits for brokers and processes,
# the other computes. What measures time, or takes the whole machine, comes after them and runs alone.
_WAITING = ("broker", "cli", "deploy", "embedded", "mcp_server", "support", "sweeps", "telemetry")
_WAITING_INSTALLATIONS = ("agents", "approvals", "broker_faults", "llm_calls", "nursery")
_ALONE = ("crash", "e2e")


def parts_of_the_suite() -> tuple[Check, Check, Check]:
    """Divide all of `tests`: the part that waits, the part that computes, the part that runs alone."""
    found = sorted(path.name for path in (ROOT / "tests").iterdir() if path.is_dir() and any(path.rglob("test_*.py")))
    computing = [*(name for name in found if name not in _WAITING + _ALONE), *_files_in("tests")]
    waiting = [f"e2e/test_{name}.py" for name in _WAITING_INSTALLATIONS]
    alone = ["crash", *(f"e2e/{name}" for name in _files_in("tests/e2e") if f"e2e/{name}" not in waiting)]
    return (
        _suite("tests that wait", [*_WAITING, *waiting]),
        _suite("tests that compute", computing),
        _suite("tests alone", alone),
    )


def _files_in(folder: str) -> list[str]:
    return sorted(path.name for path in (ROOT / folder).glob("test_*.py"))


def _suite(name: str, parts: Sequence[str]) -> Check:
    cache = f"cache_dir=.pytest_cache/{name.replace(' ', '_')}"
    return Check(name, (sys.executable, "-m", "pytest", "-o", cache, *(f"tests/{part}" for part in parts)))


@dataclass(frozen=True, slots=True)
class Verdict:
    """How one check went."""

    name: str
    passed: bool
    seconds: float


def run(check: Check) -> Verdict:
    """Run one check; its output goes straight to the terminal."""
    _head(check)
    started = time.monotonic()
    code = subprocess.run(check.command, cwd=ROOT, env=_environment(), check=False).returncode
    return Verdict(check.name, code == 0, time.monotonic() - started)


@contextmanager
def beside(check: Check) -> Iterator[list[Verdict]]:
    """Run a check beside the body; afterwards its output is shown in one piece and its verdict is in the list."""
    verdicts: list[Verdict] = []
    ended: list[float] = []
    with TemporaryFile() as output:
        started = time.monotonic()
        process = subprocess.Popen(check.command, cwd=ROOT, env=_environment(), stdout=output, stderr=subprocess.STDOUT)
        watch = threading.Thread(target=lambda: (process.wait(), ended.append(time.monotonic())), daemon=True)
        watch.start()
        try:
            yield verdicts
        finally:
            watch.join()
            _head(check)
            output.seek(0)
            sys.stdout.write(output.read().decode(errors="replace"))
            sys.stdout.flush()
            verdicts.append(Verdict(check.name, process.returncode == 0, ended[0] - started))


def _head(check: Check) -> None:
    sys.stdout.write(f"\n== {check.name}: {' '.join(Path(part).name for part in check.command)}\n")
    sys.stdout.flush()


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONUNBUFFERED": "1"}


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


def run_suite() -> list[Verdict]:
    """Run every test."""
    waiting, computing, alone = parts_of_the_suite()
    with beside(waiting) as beside_it:
        computed = run(computing)
    return [*beside_it, computed, run(alone)]


def main() -> int:
    """Run everything and print the summary."""
    verdicts = [ensure_programs(), *(run(check) for check in CHECKS), *run_suite()]
    lines = [f"{'passed' if one.passed else 'FAILED':<8}{one.name:<20}{one.seconds:>8.1f} s" for one in verdicts]
    sys.stdout.write("\n" + "\n".join(lines) + "\n")
    failed = [one.name for one in verdicts if not one.passed]
    sys.stdout.write(f"\nmake test: {'failed: ' + ', '.join(failed) if failed else 'everything passed'}\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
