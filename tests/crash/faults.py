"""Everything that may go wrong, one method a fault; what it took down is up again when it returns."""

import asyncio
from collections import Counter
from random import Random

from tests.support.installation import Installation
from tests.support.postgres import PrivatePostgres
from tests.support.rabbitmq import RabbitNode

LEASE_SECONDS = 4.0
WORKERS = ("worker-1", "worker-2", "worker-3")
SERVERS = (
    "broker_stopped",
    "broker_killed",
    "broker_wiped",
    "broker_blocked",
    "broker_connections_closed",
    "database_restarted",
    "database_sessions_ended",
    "database_sessions_ended",
)
PROCESSES = (
    "worker_killed",
    "worker_killed",
    "worker_frozen",
    "worker_drained",
    "api_killed",
    "api_killed",
    "leader_frozen",
    "leader_killed",
)


class Faults:
    """Causes faults at random; `done` counts them."""

    def __init__(
        self, installation: Installation, postgres: PrivatePostgres, rabbit: RabbitNode, random: Random
    ) -> None:
        self._installation = installation
        self._postgres = postgres
        self._rabbit = rabbit
        self._random = random
        self.done: Counter[str] = Counter()

    async def all_of(self, names: tuple[str, ...]) -> None:
        """Cause each of these faults once, in an order and at distances drawn at random."""
        random = Random(self._random.random())
        for name in random.sample(names, len(names)):
            await asyncio.sleep(random.uniform(0.2, 2.0))
            await getattr(self, name)(random)
            self.done[name] += 1

    async def broker_stopped(self, random: Random) -> None:
        """Stop the broker in good order for a while."""
        await self._rabbit.stop()
        await asyncio.sleep(random.uniform(0.0, 2.0))
        await self._rabbit.start()

    async def broker_killed(self, random: Random) -> None:
        """Kill the broker."""
        await self._rabbit.kill()
        await self._rabbit.start()

    async def broker_wiped(self, random: Random) -> None:
        """Kill the broker and lose its queues and messages."""
        await self._rabbit.wipe()

    async def broker_blocked(self, random: Random) -> None:
        """Let a memory alarm block every publisher."""
        await self._rabbit.raise_memory_alarm()
        await asyncio.sleep(random.uniform(1.0, 3.0))
        await self._rabbit.clear_memory_alarm()

    async def broker_connections_closed(self, random: Random) -> None:
        """Close every connection from the broker's side."""
        await self._rabbit.close_all_connections("a storm")

    async def database_restarted(self, random: Random) -> None:
        """Restart the database without any goodbye."""
        await self._postgres.restart("immediate")

    async def database_sessions_ended(self, random: Random) -> None:
        """End every session of the database."""
        await self._postgres.terminate_backends(self._installation.database_url)

    async def worker_killed(self, random: Random) -> None:
        """Kill a worker with whatever it runs, and start another."""
        await self._kill(random.choice(WORKERS))

    async def worker_frozen(self, random: Random) -> None:
        """Freeze a worker for longer than its lease: others take over, and then it goes on."""
        process = self._installation.processes[random.choice(WORKERS)]
        process.freeze()
        await asyncio.sleep(LEASE_SECONDS + random.uniform(1.5, 3.0))
        process.thaw()

    async def worker_drained(self, random: Random) -> None:
        """Ask a worker to end, and start another."""
        name = random.choice(WORKERS)
        process = self._installation.processes[name]
        # One that is just being born has nothing to drain yet, and may end as any program does.
        had_started = "worker_started" in process.output()
        code = await process.stop()
        assert code == 0 or not had_started, f"{name} ended with {code}:\n{process.output()[-3000:]}"
        self._installation.start(name)

    async def api_killed(self, random: Random) -> None:
        """Kill the API under load: between a commit and its answer, its poke, its publication."""
        await self._kill("api")

    async def leader_frozen(self, random: Random) -> None:
        """Freeze whoever leads the dispatch for longer than its lease, and let it go on when another leads."""
        name = await self._installation.has_leader()
        process = self._installation.processes[name]
        process.freeze()
        await self._installation.has_leader(other_than=name)
        await asyncio.sleep(random.uniform(0.0, 2.0))
        process.thaw()

    async def leader_killed(self, random: Random) -> None:
        """Kill whoever leads the dispatch."""
        await self._kill(await self._installation.has_leader())

    async def revive(self) -> None:
        """Start again what ended by itself."""
        for name, process in list(self._installation.processes.items()):
            if process.process.poll() is not None:
                self.done[f"{name} ended by itself"] += 1
                self._installation.start(name)

    async def _kill(self, name: str) -> None:
        await self._installation.processes[name].kill()
        self._installation.start(name)
