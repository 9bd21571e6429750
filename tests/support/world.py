"""A whole installation in this process: real PostgreSQL and RabbitMQ, a dispatcher and worker pools."""

import asyncio
import itertools
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from app.broker.rabbitmq import RabbitBroker
from app.domain.lifecycle import is_final
from app.domain.policy_file import parse_policy
from app.runtime import PolicyHolder, Runtime
from app.services.submission import Submission, Submitter, prepare
from app.settings import Settings
from app.store import policies
from app.store.database import Database
from app.task_modules import load
from app.telemetry.metrics import Metrics
from tests.support.eventually import eventually
from tests.support.reaper import reaper
from tests.support.work import a_tenant, rows
from workers.pool import Pool
from workers.roles import declare_queues, serve_dispatcher

TASK_MODULES = ("tests.support.tasks", "tests.support.effect_tasks")
_prefixes = itertools.count(1)

ONE_CLASS = """
version = "test.1"
owner = "tests"
default_class = "common"

[[class]]
name = "common"
owner = "tests"
start_within = "15m"
nominal = 1.0
maximum = 1.0
lendable = 1.0
reclaim_within = "5m"
republish_after = "1s"
"""


def settings_of(*, modules: Sequence[str] = TASK_MODULES, **groups: Mapping[str, object]) -> Settings:
    """Make settings with short times; `worker`, `dispatcher`, `broker`, … override single values of their group."""
    quick: dict[str, dict[str, object]] = {
        "worker": {"heartbeat_seconds": 0.25, "lease_seconds": 3.0, "cancel_grace_seconds": 0.5},
        "dispatcher": {},
        "broker": {"queue_prefix": f"world{next(_prefixes)}", "reconnect_seconds": 0.05},
        "database": {},
    }
    for name, values in groups.items():
        quick.setdefault(name, {}).update(values)
    return Settings(_env_file=None, task_modules=list(dict.fromkeys([*TASK_MODULES, *modules])), **quick)  # type: ignore[arg-type]


@asynccontextmanager
async def a_member(
    database_url: str, amqp_url: str, settings: Settings, *, policy: str = ONE_CLASS, name: str = "test"
) -> AsyncIterator[Runtime]:
    """Open the runtime of one process of the installation."""
    broker = RabbitBroker(amqp_url, settings.broker)
    database = Database(database_url, settings.database, application_name=f"despacho-{name}")
    async with database.transaction() as connection:
        await policies.seed(connection, policy, "tests")
    runtime = Runtime(
        settings=settings,
        database=database,
        broker=broker,
        metrics=Metrics(),
        policy=PolicyHolder(parse_policy(policy)),
        registry=load(settings.task_modules),
        name=name,
    )
    await broker.start()
    try:
        yield runtime
    finally:
        await runtime.close()


class World:
    """One installation: `pools` work, a dispatcher releases, `at` is where the handlers leave their marks."""

    def __init__(self, runtime: Runtime, database_url: str) -> None:
        self.runtime = runtime
        self.database_url = database_url
        self.at = reaper().directory("marks")
        self.pools: list[Pool] = []
        self._submitter = Submitter(runtime)
        self._stop = asyncio.Event()
        self._stops: list[asyncio.Event] = []
        self._tasks: list[asyncio.Task[None]] = []

    async def dispatch(self) -> None:
        """Let a dispatcher stand for the lead, with the leader's sweeps."""
        serving = serve_dispatcher(self.runtime, self._stop, database_url=self.database_url)
        self._tasks.append(asyncio.create_task(serving))

    async def work(
        self, *, slots: int = 4, classes: Sequence[str] = (), runtime: Runtime | None = None, guarded: bool = False
    ) -> tuple[Pool, asyncio.Event, asyncio.Task[None]]:
        """Add a worker; returns it, the event that drains it, and its end."""
        used = runtime or self.runtime
        await declare_queues(used)
        chosen = tuple(classes) or tuple(used.policy.current.by_name)
        url = self.database_url if guarded else None
        pool = Pool(used, classes=chosen, slots=slots, name="test", database_url=url, follows_policy=not classes)
        stop = asyncio.Event()
        ending = asyncio.create_task(pool.run(stop))
        self.pools.append(pool)
        self._tasks.append(ending)
        self._stops.append(stop)
        return pool, stop, ending

    async def submit(
        self, task_type: str, count: int = 1, *, tenant_id: str = "acme", first: int = 0, group: str | None = None,
        not_before: Any = None, valid_until: Any = None, due_at: Any = None, max_attempts: int | None = None,
        **fields: object,
    ) -> list[str]:  # fmt: skip
        """Submit `count` tasks, numbered from `first`; `fields` go into their inputs. Returns their ids in order."""
        tenant = await a_tenant(self.runtime, tenant_id)
        tasks = [
            prepare(
                self.runtime,
                tenant,
                "tests",
                False,
                Submission(
                    type=task_type,
                    input=json.dumps({"at": str(self.at), "n": n, **fields}),
                    group=group,
                    not_before=not_before,
                    valid_until=valid_until,
                    due_at=due_at,
                    max_attempts=max_attempts,
                ),
            )
            for n in range(first, first + count)
        ]
        await self._submitter.submit_many(tasks)
        return [task.task_id for task in tasks]

    async def tasks(self, task_ids: Sequence[str]) -> list[Mapping[str, Any]]:
        """Read tasks, in the order of `task_ids`."""
        found = {
            row["task_id"]: row
            for row in await rows(
                self.runtime, "SELECT * FROM tasks WHERE task_id = ANY(CAST(:ids AS text[]))", ids=list(task_ids)
            )
        }
        return [found[task_id] for task_id in task_ids]

    async def task(self, task_id: str) -> Mapping[str, Any]:
        """Read one task."""
        return (await self.tasks([task_id]))[0]

    async def ended(self, task_ids: Sequence[str], *, within_seconds: float = 20.0) -> list[Mapping[str, Any]]:
        """Wait until these tasks are final, and return them."""

        async def all_final() -> list[Mapping[str, Any]] | None:
            seen = await self.tasks(task_ids)
            open_ = [row for row in seen if not is_final(row["status"])]
            assert not open_, f"{len(open_)} are not final, as {open_[0]['task_id']}: {open_[0]['status']}"
            return seen

        seen = await eventually(all_final, within_seconds=within_seconds, every_seconds=0.05)
        assert seen is not None
        return seen

    async def running(self, task_ids: Sequence[str], *, within_seconds: float = 20.0) -> None:
        """Wait until the handlers of these tasks have started."""
        wanted = set(task_ids)
        await eventually(
            lambda: wanted <= {line.split()[0] for line in self.marks("starts")}, within_seconds=within_seconds
        )

    def marks(self, name: str, task_id: str | None = None) -> list[str]:
        """Read the marks of a name, of one task or of all."""
        path = Path(self.at) / name
        lines = path.read_text().splitlines() if path.exists() else []
        return [line for line in lines if task_id is None or line.split()[0] == task_id]

    def go(self) -> None:
        """Let every handler go on that holds."""
        (Path(self.at) / "go").touch()

    async def attempts(self, task_id: str) -> list[Mapping[str, Any]]:
        """Read a task's attempts in the order of their fences."""
        return await rows(
            self.runtime, "SELECT * FROM attempts WHERE task_id = :task_id ORDER BY fence", task_id=task_id
        )

    async def at_rest(self, *, within_seconds: float = 10.0) -> None:
        """Wait until nothing is waiting, delayed or in flight."""

        async def empty() -> bool:
            counts = await rows(
                self.runtime,
                "SELECT (SELECT count(*) FROM ready) AS ready, (SELECT count(*) FROM delayed) AS delayed, "
                "(SELECT count(*) FROM flights) AS flights",
            )
            assert counts == [{"ready": 0, "delayed": 0, "flights": 0}], counts
            return True

        await eventually(empty, within_seconds=within_seconds, every_seconds=0.05)

    async def close(self) -> None:
        """Let everything go, drain the workers and end the dispatcher."""
        self.go()
        for stop in [*self._stops, self._stop]:
            stop.set()
        await asyncio.gather(*self._tasks)


@asynccontextmanager
async def a_world(
    database_url: str,
    amqp_url: str,
    *,
    slots: int | None = 4,
    dispatcher: bool = True,
    policy: str = ONE_CLASS,
    modules: Sequence[str] = TASK_MODULES,
    **groups: Mapping[str, object],
) -> AsyncIterator[World]:
    """Open an installation with one dispatcher and (unless `slots` is None) one worker; drain it at the end."""
    async with AsyncExitStack() as stack:
        runtime = await stack.enter_async_context(
            a_member(database_url, amqp_url, settings_of(modules=modules, **groups), policy=policy)
        )
        world = World(runtime, database_url)
        stack.push_async_callback(world.close)
        if dispatcher:
            await world.dispatch()
        if slots is not None:
            await world.work(slots=slots)
        yield world
