"""Pauses name what is known, last as long as they say, and belong to whom they concern."""

from datetime import UTC, datetime, timedelta

import pytest

from app.runtime import Runtime
from app.services import pauses
from app.services.actors import ServiceActor
from app.services.errors import Forbidden, Invalid, NotFound
from app.store import pauses as store
from tests.support.runtimes import a_runtime, a_task_type
from tests.support.work import a_tenant, rows

ACME = ServiceActor("ana", "key_1", "acme")
PLATFORM = ServiceActor("root")


async def active(runtime: Runtime) -> set[str]:
    async with runtime.database.transaction() as connection:
        return set(await store.active(connection))


async def test_a_pause_lasts_until_it_is_removed_or_over(database_url: str) -> None:
    async with a_runtime(database_url, a_task_type(depends_on=("llm",))) as runtime:
        await a_tenant(runtime)
        names = ["class:common", "type:echo", "tenant:acme", "dependency:llm"]
        made = [await pauses.create(runtime, PLATFORM, name, "maintenance", None) for name in names]
        assert await active(runtime) == set(names)

        await pauses.resume(runtime, PLATFORM, made[0].pause_id)
        await rows(runtime, "UPDATE pauses SET until = clock_timestamp() WHERE kind = 'type'")

        assert await active(runtime) == {"tenant:acme", "dependency:llm"}
        listed = await pauses.page(runtime, PLATFORM, before=None, limit=10)
        assert [(row.kind, row.name) for row in listed] == [("dependency", "llm"), ("tenant", "acme")]


@pytest.mark.parametrize(
    "on", ["class:nobody", "type:nobody", "tenant:nobody", "dependency:nobody", "class:", "x", "a:b"]
)
async def test_what_is_not_known_cannot_be_paused(runtime: Runtime, on: str) -> None:
    with pytest.raises(Invalid) as refused:
        await pauses.create(runtime, PLATFORM, on, "maintenance", None)
    assert [error.pointer for error in refused.value.errors] == ["#/on"]


async def test_a_pause_that_is_over_already_is_refused(runtime: Runtime) -> None:
    with pytest.raises(Invalid) as refused:
        await pauses.create(runtime, PLATFORM, "class:common", "r", datetime.now(UTC) - timedelta(minutes=1))
    assert [error.pointer for error in refused.value.errors] == ["#/until"]


async def test_a_tenant_pauses_and_sees_itself_only(runtime: Runtime) -> None:
    await a_tenant(runtime)
    await a_tenant(runtime, "globex")
    foreign = await pauses.create(runtime, PLATFORM, "tenant:globex", "r", None)
    general = await pauses.create(runtime, PLATFORM, "class:common", "r", None)

    own = await pauses.create(runtime, ACME, "tenant:acme", "r", None)
    for on in ("tenant:globex", "class:common", "type:echo"):
        with pytest.raises(Forbidden):
            await pauses.create(runtime, ACME, on, "r", None)
    for hidden in (foreign.pause_id, general.pause_id, "pause_01JZ8W4W9GZK4K2GZ7Q2ABCD12"):
        with pytest.raises(NotFound):
            await pauses.resume(runtime, ACME, hidden)

    assert [row.pause_id for row in await pauses.page(runtime, ACME, before=None, limit=10)] == [own.pause_id]
