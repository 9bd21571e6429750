"""A new version of the policy rules in processes that did not bring it, without a restart."""

from dataclasses import replace

from app.services import policies
from app.services.actors import ServiceActor
from app.services.vitals import look
from app.store import policies as store
from tests.support.eventually import eventually
from tests.support.rabbitmq import RabbitNode
from tests.support.world import ONE_CLASS, a_member, a_world, settings_of

MORE = (
    ONE_CLASS.replace("test.1", "test.2").replace('default_class = "common"', 'default_class = "quick"')
    + """
[[class]]
name = "quick"
owner = "tests"
start_within = "1s"
nominal = 0.0
reclaim_within = "5m"
"""
)


async def test_a_worker_without_a_dispatcher_serves_the_classes_of_a_version_that_another_process_brought(
    database_url: str, rabbit: RabbitNode
) -> None:
    async with (
        a_world(database_url, rabbit.url, slots=None) as world,
        a_member(database_url, rabbit.url, world.runtime.settings, name="apart") as apart,
    ):
        pool, stop, ending = await world.work(runtime=apart)
        await policies.apply(world.runtime, ServiceActor("ann"), MORE, dry_run=False)
        assert apart.policy.current.version == "test.1"

        assert await look(apart)  # what every process does every two seconds
        await eventually(lambda: "quick" in pool.identity.classes)
        (task_id,) = await world.submit("quick")
        (task,) = await world.ended([task_id])

        assert apart.policy.current.version == "test.2"
        assert (task["status"], task["priority_class"]) == ("done", "quick")
        stop.set()
        await ending


async def test_a_start_on_a_version_that_cannot_be_read_goes_on_with_the_one_before(
    database_url: str, rabbit: RabbitNode
) -> None:
    async with a_member(database_url, rabbit.url, settings_of()) as runtime:
        async with runtime.database.transaction() as connection:
            unreadable = replace(runtime.policy.current, version="test.9")
            await store.add(connection, unreadable, "future = true", "ann")

        async with runtime.database.transaction() as connection:
            found = await store.seed(connection, ONE_CLASS, "tests")
        await look(runtime)

        assert found.version == "test.1"
        assert (runtime.policy.current.version, runtime.policy.refused) == ("test.1", "test.9")
