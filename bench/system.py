"""One system under test for one round: a fresh database, its producer, its two workers, and what they did."""

import contextlib
import json
import os
import select
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bench.database import Database
from bench.marks import MARKS_VARIABLE, Marks
from bench.peers.base import AMQP_VARIABLE, DATABASE_VARIABLE, Spec
from bench.services import Postgres, Rabbit

ROOT = Path(__file__).parent.parent
START_SECONDS = 60.0
SETTLE_SECONDS = 10.0
"""How long acknowledgements may lag behind the last handler."""
_CHECK_SECONDS = 0.005


class RunError(Exception):
    """A system did not do its work; the text says what was missing. Its row is an error, never a figure."""


@dataclass(frozen=True, slots=True)
class System:
    """How to run one system: the interpreter of its environment and the module that speaks the protocol."""

    name: str
    python: str
    runner: tuple[str, ...]
    spec: Spec
    versions: dict[str, str]
    share: float = 1.0
    """Part of the run's task count that this system is given, so that a slow one does not take most of the run."""

    def command(self, part: str) -> list[str]:
        return [self.python, *self.runner, part]


@dataclass(frozen=True, slots=True)
class Command:
    """One order to a producer."""

    how: str
    first: int
    count: int
    per_second: float = 0.0


@dataclass(slots=True)
class Stage:
    """The running processes of one system in one round."""

    system: System
    postgres: Postgres
    rabbit: Rabbit
    database: Database
    home: Path
    marks: Marks
    environment: dict[str, str]
    workers: list["subprocess.Popen[bytes]"] = field(default_factory=list)
    services: list["subprocess.Popen[bytes]"] = field(default_factory=list)
    producer: "subprocess.Popen[bytes] | None" = None

    def start(self, command: Sequence[str], log: str, **pipes: int) -> "subprocess.Popen[bytes]":
        """Start one process in a session of its own, its output in a file of the round."""
        words = {"{python}": self.system.python, **_urls(self.environment)}
        line = [words.get(word, word) for word in command]
        with (self.home / log).open("ab") as out:
            return subprocess.Popen(
                line,
                env=self.environment,
                cwd=ROOT,
                stdin=pipes.get("stdin", subprocess.DEVNULL),
                stdout=pipes.get("stdout", out),
                stderr=out,
                start_new_session=True,
            )

    def set_up(self) -> None:
        """Create the system's tables and queues, start its services, open its producer."""
        command = self.system.command("setup")
        done = subprocess.run(command, env=self.environment, cwd=ROOT, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RunError(f"setup failed: {(done.stderr or done.stdout).strip()[-1500:]}")
        self.services = [self.start(service, "service.log") for service in self.system.spec.services]
        self.producer = self.start(
            self.system.command("produce"), "producer.log", stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self._read_answer(START_SECONDS)

    def start_workers(self) -> None:
        self.workers = [
            self.start(command, f"worker-{position}.log")
            for position, command in enumerate(self.system.spec.worker_commands)
        ]

    def send(self, command: Command, within_seconds: float) -> dict[str, float]:
        """Have the producer carry out a command; return its answer (`began_ns`, `seconds`)."""
        self.begin(command)
        return self._read_answer(within_seconds)

    def send_one(self, number: int) -> None:
        self.send(Command("one_by_one", number, 1), START_SECONDS)

    def begin(self, command: Command) -> None:
        assert self.producer and self.producer.stdin
        order = {
            "how": command.how,
            "first": command.first,
            "count": command.count,
            "per_second": command.per_second,
        }
        self.producer.stdin.write(json.dumps(order).encode() + b"\n")
        self.producer.stdin.flush()

    def finish(self, within_seconds: float) -> dict[str, float]:
        return self._read_answer(within_seconds)

    def _read_answer(self, within_seconds: float) -> dict[str, float]:
        assert self.producer and self.producer.stdout
        ready, _, _ = select.select([self.producer.stdout], [], [], within_seconds)
        line = self.producer.stdout.readline() if ready else b""
        if not line:
            why = "ended" if ready else f"did not answer within {within_seconds:.0f} s"
            raise RunError(f"the producer {why}\n{self.logs()}")
        return dict(json.loads(line))

    def logs(self) -> str:
        """Return the end of every log of the round, for an error's text."""
        parts = [(path.name, path.read_text(errors="replace")[-1500:]) for path in sorted(self.home.glob("*.log"))]
        return "\n".join(f"--- {name}\n{text.strip()}" for name, text in parts if text.strip())

    def python_pids(self) -> list[int]:
        return [process.pid for process in (*self.services, *self.workers)]

    def wait_until_done(self, first: int, count: int, done_before: int, within_seconds: float) -> int:
        """Wait until tasks `first` … are done and their completions durably recorded; return that time in monotonic ns.

        The handlers' marks are watched first (no cost to anybody); only when all have started is the database asked.
        A system that records nothing ends with the start of its last handler, which is to its favour.
        """
        deadline = time.monotonic() + within_seconds
        while not self.marks.all_started(first, count):
            self._check_alive()
            if time.monotonic() > deadline:
                missing = self.marks.started_ns(first, count).count(0)
                raise RunError(f"{missing} of {count} tasks never started within {within_seconds:.0f} s\n{self.logs()}")
            time.sleep(_CHECK_SECONDS)
        if not self.system.spec.done_sql:
            return max(self.marks.started_ns(first, count))
        while (recorded := self.recorded()) < done_before + count:
            if time.monotonic() > deadline:
                raise RunError(f"{recorded - done_before} of {count} completions recorded in {within_seconds:.0f} s")
            time.sleep(_CHECK_SECONDS)
        return time.monotonic_ns()

    def await_first_start(self, first: int, count: int, within_seconds: float) -> None:
        """Wait until the first handler has started."""
        deadline = time.monotonic() + within_seconds
        while not any(self.marks.started_ns(first, count)):
            self._check_alive()
            if time.monotonic() > deadline:
                raise RunError(f"no task started within {within_seconds:.0f} s\n{self.logs()}")
            time.sleep(_CHECK_SECONDS)

    def recorded(self) -> int:
        """Count the completions that the database holds; 0 where the system records none."""
        return self.database.number(self.system.spec.done_sql) if self.system.spec.done_sql else 0

    def _check_alive(self) -> None:
        for process in (*self.workers, *self.services):
            if process.poll() is not None:
                raise RunError(f"{process.args!r} ended with {process.returncode}\n{self.logs()}")

    def check(self, total: int) -> str:
        """Check that every task ran and is recorded once; return a remark on repeats, or raise RunError."""
        runs = self.marks.runs(0, total)
        missing, repeated = runs.count(0), sum(1 for number in runs if number > 1)
        if missing:
            raise RunError(f"{missing} of {total} tasks never ran")
        if self.system.spec.done_sql and (recorded := self.recorded()) != total:
            raise RunError(f"{recorded} completions recorded for {total} tasks")
        if self.system.spec.uses_broker:
            self._check_queues()
        return f"{repeated} ran more than once" if repeated else ""

    def _check_queues(self) -> None:
        """Wait until no message is left, ready or unacknowledged; raise RunError if that takes too long."""
        deadline = time.monotonic() + SETTLE_SECONDS
        while left := {name: depth for name, depth in self.rabbit.queue_depths().items() if depth}:
            if time.monotonic() > deadline:
                raise RunError(f"messages left {SETTLE_SECONDS:.0f} s after all tasks were done: {left}")

    def stop(self) -> None:
        """End the round's processes: those started here, by their own process groups."""
        if self.producer and self.producer.stdin:
            with contextlib.suppress(OSError):
                self.producer.stdin.close()
        for processes in (self.workers, [self.producer] if self.producer else [], self.services):
            for process in processes:
                end(process)


def end(process: "subprocess.Popen[bytes]", grace_seconds: float = 8.0) -> None:
    """SIGTERM to the process, then SIGKILL to what is left of its session."""
    with contextlib.suppress(ProcessLookupError):
        process.send_signal(signal.SIGTERM)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(grace_seconds)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _urls(environment: dict[str, str]) -> dict[str, str]:
    return {"{database}": environment[DATABASE_VARIABLE], "{amqp}": environment[AMQP_VARIABLE]}


@contextlib.contextmanager
def staged(system: System, postgres: Postgres, rabbit: Rabbit, capacity: int) -> Iterator[Stage]:
    """Give the system a fresh database and no queues, set it up, open its producer; take all away at the end."""
    name = f"bench_{system.name}"
    with tempfile.TemporaryDirectory(prefix=f"despacho-{name}-") as folder, Database(postgres.url("postgres")) as admin:
        home = Path(folder)
        admin.execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')
        admin.execute(f'CREATE DATABASE "{name}"')
        environment = {key: value for key, value in os.environ.items() if not key.startswith("DESPACHO_")}
        environment |= {
            DATABASE_VARIABLE: postgres.url(name),
            AMQP_VARIABLE: rabbit.url,
            MARKS_VARIABLE: str(home / "marks"),
            "PYTHONPATH": str(ROOT),
            "PYTHONUNBUFFERED": "1",
        }
        environment |= {key: _urls(environment).get(text, text) for key, text in system.spec.environment}
        marks = Marks.create(home / "marks", capacity)
        with Database(postgres.url(name)) as database:
            stage = Stage(system, postgres, rabbit, database, home, marks, environment)
            try:
                stage.set_up()
                yield stage
            finally:
                stage.stop()
        if system.spec.uses_broker:
            rabbit.delete_queues()
        admin.execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')
