"""Real processes of the roles on private servers, with a supervisor's hands: start, kill, freeze, start again."""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import asyncpg
import httpx

from tests.support.eventually import eventually
from tests.support.ports import free_port
from tests.support.processes import RoleProcess
from tests.support.reaper import reaper

ADMIN_KEY = "tests-admin-key-0123456789"
_DATABASE_BACK_SECONDS = 20.0
QUICK = {
    "DESPACHO_TASK_MODULES": "tests.support.tasks,tests.support.effect_tasks",
    "DESPACHO_BOOTSTRAP_KEY": ADMIN_KEY,
    "DESPACHO_WORKER__LEASE_SECONDS": "4",
    "DESPACHO_WORKER__HEARTBEAT_SECONDS": "0.3",
    "DESPACHO_WORKER__DRAIN_GRACE_SECONDS": "5",
    "DESPACHO_WORKER__CANCEL_GRACE_SECONDS": "2",
    "DESPACHO_BROKER__RECONNECT_SECONDS": "0.1",
    "DESPACHO_BROKER__PUBLISH_DEADLINE_SECONDS": "1",
}
"""Settings with short times, for every role."""


class Installation:
    """The processes of one installation by name; `at` is where its handlers leave their marks."""

    def __init__(self, database_url: str, amqp_url: str, policy: str, settings: Mapping[str, str]) -> None:
        self.database_url = database_url
        self.at = reaper().directory("marks")
        policy_file = self.at / "policy.toml"
        policy_file.write_text(policy)
        self.port = free_port()
        self.api_url = f"http://127.0.0.1:{self.port}"
        self.processes: dict[str, RoleProcess] = {}
        self._commands: dict[str, Sequence[str]] = {}
        self._environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("DESPACHO_")},
            **QUICK,
            "DESPACHO_DATABASE_URL": database_url,
            "DESPACHO_AMQP_URL": amqp_url,
            "DESPACHO_POLICY_FILE": str(policy_file),
            **settings,
        }
        self.outputs: list[Path] = []

    def start(self, name: str, *command: str) -> RoleProcess:
        """Start a process under a name; without a command, the one that the name had before."""
        if command:
            self._commands[name] = command
        process = RoleProcess(self._commands[name], self._environment, name=name)
        self.processes[name] = process
        self.outputs.append(process.log_path)
        return process

    async def start_api(self, *, dispatcher: bool = False) -> None:
        """Start the API and wait until it answers."""
        self.start(
            "api", "api", "--port", str(self.port), "--with-dispatcher" if dispatcher else "--without-dispatcher"
        )
        await self.api_answers()

    async def api_answers(self, within_seconds: float = 40.0) -> None:
        """Wait until the API answers."""

        async def answers() -> bool:
            process = self.processes["api"].process
            assert process.poll() is None, self.processes["api"].output()[-3000:]
            try:
                async with httpx.AsyncClient() as client:
                    return (await client.get(f"{self.api_url}/healthz", timeout=2.0)).status_code == 200
            except httpx.TransportError:
                return False

        await eventually(answers, within_seconds=within_seconds, every_seconds=0.1)

    def start_worker(self, name: str, *, slots: int = 4) -> RoleProcess:
        """Start a worker."""
        return self.start(name, "worker", "--slots", str(slots))

    def start_dispatcher(self, name: str) -> RoleProcess:
        """Start a candidate for the dispatcher's lead."""
        return self.start(name, "dispatcher")

    async def leader(self) -> str | None:
        """Name the process that leads, while one does."""
        rows = await self.query(
            "SELECT holder FROM leaders WHERE role = 'dispatcher' AND lease_until > clock_timestamp()"
        )
        for row in rows:
            pid = int(str(row["holder"]).split(".")[-2])
            for name, process in self.processes.items():
                if process.pid == pid:
                    return name
        return None

    async def has_leader(self, *, other_than: str | None = None, within_seconds: float = 30.0) -> str:
        """Wait until a process leads, and name it."""

        async def leads() -> str | None:
            name = await self.leader()
            return name if name != other_than else None

        found = await eventually(leads, within_seconds=within_seconds, every_seconds=0.02)
        assert found is not None
        return found

    async def has_workers(self, count: int, within_seconds: float = 30.0) -> None:
        """Wait until so many workers are on the register."""

        async def registered() -> bool:
            rows = await self.query("SELECT count(*) AS n FROM workers WHERE alive_until > clock_timestamp()")
            return bool(rows[0]["n"] >= count)

        await eventually(registered, within_seconds=within_seconds, every_seconds=0.05)

    async def query(self, statement: str, *values: object) -> list[asyncpg.Record]:
        """Run one statement on a connection of its own, as soon as the database answers."""
        deadline = time.monotonic() + _DATABASE_BACK_SECONDS
        while True:
            try:
                connection = await asyncpg.connect(self.database_url)
                try:
                    return list(await connection.fetch(statement, *values))
                finally:
                    await connection.close()
            except (
                OSError,
                asyncpg.PostgresConnectionError,
                asyncpg.OperatorInterventionError,
                asyncpg.InterfaceError,
            ):
                if time.monotonic() > deadline:
                    raise
                await asyncio.sleep(0.05)

    def marks(self, name: str) -> list[str]:
        """Read the marks of a name."""
        path = self.at / name
        return path.read_text().splitlines() if path.exists() else []

    def go(self) -> None:
        """Let every handler go on that holds."""
        (self.at / "go").touch()

    async def story(self) -> str:
        """Tell, for a failed test, how everything stands and what each process said last."""
        parts: list[str] = []
        for statement in (
            "SELECT worker_id, slots, draining, alive_until - clock_timestamp() AS alive FROM workers",
            "SELECT role, holder, epoch, lease_until - clock_timestamp() AS leads FROM leaders",
            "SELECT status, type, count(*) FROM tasks GROUP BY status, type ORDER BY 1, 2",
            "SELECT task_id, dispatch, released_at, published_at, fence, lease_until FROM flights LIMIT 10",
        ):
            parts += [str(dict(row)) for row in await self.query(statement)]
        for name, process in self.processes.items():
            worth = [line for line in process.output().splitlines() if '"event": "attempt' not in line]
            parts.append(f"--- {name} (exit code {process.process.poll()})\n" + "\n".join(worth[-25:]))
        return "\n".join(parts)

    async def close(self) -> None:
        """Kill every process."""
        for process in self.processes.values():
            await process.kill()


@asynccontextmanager
async def an_installation(
    database_url: str, amqp_url: str, policy: str, **settings: str
) -> AsyncIterator[Installation]:
    """Have an installation without processes yet; kill those that were started at the end."""
    installation = Installation(database_url, amqp_url, policy, settings)
    try:
        yield installation
    finally:
        await installation.close()
