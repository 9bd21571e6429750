"""A submission that commits later than a younger one is released all the same."""

import asyncio
from collections.abc import Sequence

from sqlalchemy import text

from app.broker.base import Published, TaskMessage
from app.runtime import Runtime
from app.services.dispatch import Dispatcher
from app.services.submission import Submission, Submitter, prepare
from app.store import leaders
from app.store.submissions import Stored
from app.store.workers import Identity, beat
from tests.support.eventually import eventually
from tests.support.runtimes import AwayBroker, a_runtime
from tests.support.work import a_tenant, rows, submitted


class HeardBroker(AwayBroker):
    """A broker that keeps what it was given."""

    connected = True

    def __init__(self) -> None:
        self.sent: list[str] = []

    async def publish(self, items: Sequence[tuple[str, TaskMessage]]) -> list[Published]:
        self.sent += [message.task_id for _, message in items]
        return [Published.CONFIRMED] * len(items)


async def hold_the_group(runtime: Runtime) -> None:
    """Have whoever inserts a task of the group `held` wait for the advisory lock 7."""
    await rows(
        runtime,
        "CREATE FUNCTION hold() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
        "PERFORM pg_advisory_xact_lock(7); RETURN NULL; END $$",
    )
    await rows(
        runtime,
        "CREATE TRIGGER hold AFTER INSERT ON tasks FOR EACH ROW WHEN (NEW.task_group = 'held') EXECUTE FUNCTION hold()",
    )


async def waiting(runtime: Runtime, kind: str) -> bool:
    """Tell whether somebody waits for a lock of this kind."""
    found = await rows(runtime, "SELECT 1 FROM pg_locks WHERE locktype = :kind AND NOT granted", kind=kind)
    return bool(found)


async def test_an_older_submission_that_commits_late_is_released_within_two_polls(database_url: str) -> None:
    broker = HeardBroker()
    async with a_runtime(database_url, broker=broker) as runtime:
        tenant = await a_tenant(runtime)
        await submitted(runtime)
        classes = tuple(runtime.policy.current.by_name)
        who = Identity("w", "p", classes, ("echo",), 100, "h", 1, "0")
        await beat(runtime.database, who, draining=False, alive_seconds=60)
        dispatcher = Dispatcher(runtime, holder="test")
        epoch = await leaders.stand(runtime.database, role="dispatcher", holder="test", lease_seconds=60)
        assert epoch is not None
        await dispatcher.take_over(epoch)
        await hold_the_group(runtime)
        older = prepare(runtime, tenant, "tester", False, Submission("echo", "{}", group="held"))

        async with runtime.database.transaction() as holder:
            await holder.execute(text("SELECT pg_advisory_xact_lock(7)"))
            late = asyncio.create_task(Submitter(runtime).submit_many([older]))
            await eventually(lambda: waiting(runtime, "advisory"))
            younger = (await submitted(runtime))[0]

            async def released_younger() -> bool:
                await dispatcher.round()
                return younger in broker.sent

            await eventually(released_younger)
            assert older.task_id not in broker.sent
        await late

        async def released_older() -> bool:
            await dispatcher.round()
            await asyncio.sleep(0)
            return older.task_id in broker.sent

        await eventually(released_older, within_seconds=2 * runtime.settings.dispatcher.idle_poll_seconds + 1.0)
        await dispatcher.stand_down()
        assert sorted(broker.sent) == sorted(set(broker.sent))


async def test_a_second_try_that_meets_the_first_one_still_committing_finds_its_tasks(database_url: str) -> None:
    async with a_runtime(database_url) as runtime:
        tenant = await a_tenant(runtime)
        await submitted(runtime)
        await hold_the_group(runtime)
        tasks = [prepare(runtime, tenant, "tester", False, Submission("echo", "{}", group="held")) for _ in range(3)]

        async with runtime.database.transaction() as holder:
            await holder.execute(text("SELECT pg_advisory_xact_lock(7)"))
            first = asyncio.create_task(Submitter(runtime).submit_many(tasks))
            await eventually(lambda: waiting(runtime, "advisory"))
            second = asyncio.create_task(Submitter(runtime).submit_many(tasks))
            await eventually(lambda: waiting(runtime, "transactionid"))

        stored = await second
        assert stored == await first
        assert [type(one) for one in stored] == [Stored] * 3
        assert len(await rows(runtime, "SELECT 1 FROM ready WHERE task_group = 'held'")) == 3
