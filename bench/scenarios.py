"""What is asked of the product alone: single POSTs against a bare endpoint, quiet latency, sleepers, memory."""

import asyncio
import json
import math
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from bench import cpu
from bench.http import Connection, encode
from bench.load import Order
from bench.ours import make_key, task
from bench.rounds import percentile
from bench.services import Postgres, Rabbit
from bench.system import ROOT, Command, RunError, Stage, System, end, staged
from tests.support.ports import free_port

CONNECTIONS = 64
POSTS = 6_000
QUIET_PER_SECOND = 50.0
QUIET_SECONDS = 8
SLEEPERS = 2_000
SLEEP_CONCURRENCY = 100
SLEEP_IDEAL = 10_000.0
CHUNKS = 10
_WITHIN_SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class Posts:
    """POSTs a second: the bare endpoint, accepted by the product, and from POST to done at saturation."""

    bare: float
    accepted: float
    end_to_end: float
    generator_cpu_share: float


@dataclass(frozen=True, slots=True)
class Quiet:
    """Milliseconds from a POST's sending to its answer, to its handler's start, and to its recorded end."""

    answered: tuple[float, float]
    started: tuple[float, float]
    done: tuple[float, float]


@dataclass(frozen=True, slots=True)
class Memory:
    """Resident MiB of each process after each tenth of the tasks."""

    tasks: int
    mebibytes: dict[str, list[float]]


def run_load(order: Order) -> dict[str, object]:
    """Run the generator as a process of its own; raises RunError unless every POST was accepted."""
    with tempfile.TemporaryDirectory(prefix="despacho-bench-") as directory:
        written = Path(directory) / "report.json"
        done = subprocess.run(
            [sys.executable, "-m", "bench.load", str(written)],
            input=json.dumps(asdict(order)) + "\n",
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=_WITHIN_SECONDS,
            check=False,
        )
        if done.returncode:
            raise RunError(f"the load generator failed: {done.stderr[-1500:]}")
        report: dict[str, object] = json.loads(written.read_text())
    if report["statuses"] != {"202": order.count}:
        raise RunError(f"of {order.count} POSTs, answers by status: {report['statuses']}")
    return report


def _rate(report: dict[str, object]) -> float:
    sent, answered = report["sent_ns"], report["answered_ns"]
    assert isinstance(sent, list) and isinstance(answered, list)
    return float(len(sent) / ((max(answered) - min(sent)) / 1e9))


def _api(stage: Stage) -> tuple[int, str]:
    """Return the API's port and a key that may submit."""
    port = int(stage.environment["DESPACHO_API__PORT"])

    async def make() -> str:
        connection = await Connection.open("127.0.0.1", port)
        try:
            return await make_key(connection, stage.environment["DESPACHO_BOOTSTRAP_KEY"])
        finally:
            connection.close()

    return port, asyncio.run(make())


def _order(port: int, key: str | None, first: int, count: int) -> Order:
    body = json.dumps(task("@number@")).replace('"@number@"', "@number@")
    return Order("127.0.0.1", port, "/v1/tasks", body, key, first, count, CONNECTIONS)


@contextmanager
def _bare_endpoint() -> Iterator[int]:
    port = free_port()
    process = subprocess.Popen([sys.executable, "-m", "bench.bare", str(port)], cwd=ROOT, start_new_session=True)
    try:
        deadline = time.monotonic() + 20
        while not asyncio.run(_listens(port)):
            if time.monotonic() > deadline or process.poll() is not None:
                raise RunError("the bare endpoint did not start within 20 s")
            time.sleep(0.05)
        yield port
    finally:
        end(process)


async def _listens(port: int) -> bool:
    try:
        (await Connection.open("127.0.0.1", port)).close()
    except OSError:
        return False
    return True


def run_posts(system: System, postgres: Postgres, rabbit: Rabbit, rounds: int) -> list[Posts]:
    """Alternate between the bare endpoint and the product, then saturate the product from POST to done."""
    total = 2 * rounds * POSTS
    with _bare_endpoint() as bare_port, staged(system, postgres, rabbit, total) as stage:
        port, key = _api(stage)
        bare, accepted, whole, shares = [], [], [], []
        for turn in range(rounds):
            report = run_load(_order(bare_port, None, 0, POSTS))
            bare.append(_rate(report))
            shares.append(_share(report))
            accepted.append(_rate(run_load(_order(port, key, turn * POSTS, POSTS))))
        stage.start_workers()
        stage.wait_until_done(0, rounds * POSTS, 0, _WITHIN_SECONDS)
        for turn in range(rounds, 2 * rounds):
            report = run_load(_order(port, key, turn * POSTS, POSTS))
            ended_ns = stage.wait_until_done(turn * POSTS, POSTS, turn * POSTS, _WITHIN_SECONDS)
            sent = report["sent_ns"]
            assert isinstance(sent, list)
            whole.append(POSTS / ((ended_ns - min(sent)) / 1e9))
        stage.check(total)
    return [Posts(*figures) for figures in zip(bare, accepted, whole, shares, strict=True)]


def _share(report: dict[str, object]) -> float:
    """Return the CPU share of one core that the generator itself used."""
    cpu_seconds = report["cpu_seconds"]
    assert isinstance(cpu_seconds, float)
    return cpu_seconds * _rate(report) / POSTS


def run_quiet(system: System, postgres: Postgres, rabbit: Rabbit) -> Quiet:
    """POST at a slow pace to an idle product."""
    count = int(QUIET_PER_SECOND * QUIET_SECONDS)
    with staged(system, postgres, rabbit, 100 + count) as stage:
        port, key = _api(stage)
        stage.start_workers()
        stage.send(Command("paced", 0, 100, QUIET_PER_SECOND), _WITHIN_SECONDS)
        stage.wait_until_done(0, 100, 0, _WITHIN_SECONDS)
        report = run_load(replace(_order(port, key, 100, count), per_second=QUIET_PER_SECOND, connections=8))
        stage.wait_until_done(100, count, 100, _WITHIN_SECONDS)
        sent, answered = report["sent_ns"], report["answered_ns"]
        assert isinstance(sent, list) and isinstance(answered, list)
        wall_offset_ns = time.time_ns() - time.monotonic_ns()
        finished = stage.database.column(
            "SELECT extract(epoch FROM finished_at) FROM tasks WHERE (input::json ->> 'number')::int >= 100"
            " ORDER BY (input::json ->> 'number')::int"
        )
        stage.check(100 + count)
        return Quiet(
            answered=_percentiles_ms(sent, answered),
            started=_percentiles_ms(sent, stage.marks.started_ns(100, count)),
            done=_percentiles_ms(sent, [int(at * 1e9) - wall_offset_ns for at in finished]),
        )


def _percentiles_ms(sent_ns: list[int], ended_ns: list[int]) -> tuple[float, float]:
    spans = [(ended - sent) / 1e6 for sent, ended in zip(sent_ns, ended_ns, strict=True)]
    return percentile(spans, 0.5), percentile(spans, 0.99)


def run_sleepers(system: System, postgres: Postgres, rabbit: Rabbit, rounds: int) -> list[float]:
    """Return tasks a second for 2,000 tasks of 10 ms on 100 slots, held back by a pause until all are submitted."""
    slots = str(SLEEP_CONCURRENCY // len(system.spec.worker_commands))
    workers = tuple(_with_slots(command, slots) for command in system.spec.worker_commands)
    environment = (*system.spec.environment, ("BENCH_TASK_TYPE", "bench_sleep"))
    sleepy = replace(system, spec=replace(system.spec, worker_commands=workers, environment=environment))
    with staged(sleepy, postgres, rabbit, 200 + rounds * SLEEPERS) as stage:
        stage.start_workers()
        stage.send(Command("batch", 0, 200), _WITHIN_SECONDS)
        stage.wait_until_done(0, 200, 0, _WITHIN_SECONDS)
        rates = []
        for turn in range(rounds):
            first = 200 + turn * SLEEPERS
            pause = operate(stage, "POST", "/v1/pauses", {"on": "type:bench_sleep", "reason": "loading"}, 201)
            stage.send(Command("batch", first, SLEEPERS), _WITHIN_SECONDS)
            operate(stage, "DELETE", f"/v1/pauses/{pause['pause_id']}", None, 204)
            ended_ns = stage.wait_until_done(first, SLEEPERS, first, _WITHIN_SECONDS)
            rates.append(SLEEPERS / ((ended_ns - min(stage.marks.started_ns(first, SLEEPERS))) / 1e9))
        stage.check(200 + rounds * SLEEPERS)
    return rates


def _with_slots(command: tuple[str, ...], slots: str) -> tuple[str, ...]:
    place = command.index("--slots") + 1
    return (*command[:place], slots, *command[place + 1 :])


def operate(stage: Stage, method: str, path: str, body: dict[str, str] | None, status: int) -> dict[str, str]:
    """Send one operator's request with the platform key."""
    port, key = int(stage.environment["DESPACHO_API__PORT"]), stage.environment["DESPACHO_BOOTSTRAP_KEY"]

    async def send() -> dict[str, str]:
        connection = await Connection.open("127.0.0.1", port)
        try:
            answer = await connection.request(encode(method, path, json.dumps(body).encode() if body else b"", key))
        finally:
            connection.close()
        if answer.status != status:
            raise RunError(f"{method} {path} answered {answer.status} instead of {status}: {answer.body[:300]!r}")
        return dict(json.loads(answer.body)) if answer.body else {}

    return asyncio.run(send())


def run_memory(system: System, postgres: Postgres, rabbit: Rabbit, tasks: int) -> Memory:
    """Run many tasks and note every process's resident memory after each tenth."""
    chunk = tasks // CHUNKS
    with staged(system, postgres, rabbit, chunk * CHUNKS) as stage:
        stage.start_workers()
        names = {"API": [stage.services[0].pid], "RabbitMQ": [rabbit.pid], "PostgreSQL": [postgres.pid]}
        names |= {f"worker {number}": [process.pid] for number, process in enumerate(stage.workers, 1)}
        sizes: dict[str, list[float]] = {name: [] for name in names}
        for turn in range(CHUNKS):
            stage.send(Command("batch", turn * chunk, chunk), _WITHIN_SECONDS)
            stage.wait_until_done(turn * chunk, chunk, turn * chunk, _WITHIN_SECONDS)
            for name, pids in names.items():
                sizes[name].append(math.fsum(cpu.private_bytes(pids).values()) / 2**20)
        stage.check(chunk * CHUNKS)
    return Memory(chunk * CHUNKS, sizes)
