"""One firing makes one task: with several dispatchers, after a crash, after an outage."""

import asyncio
from datetime import datetime

import pytest
from pydantic import BaseModel, TypeAdapter

from app.domain.schedules import Misfire
from app.domain.task_types import TaskTypeSpec
from app.runtime import Runtime
from app.services import schedules
from app.services.actors import ServiceActor
from app.services.errors import Conflict, Invalid, NotFound
from app.services.schedules import ScheduleRequest
from app.services.submission import Submission
from app.task_modules import Registry, TaskType
from tests.support.runtimes import a_runtime
from tests.support.work import a_tenant, rows
from workers.sweeps.schedules import run_once

ACME = ServiceActor("ana", "key_1", "acme")
LATER = datetime.fromisoformat("2027-01-01T00:00Z")


def a_request(
    *, name: str = "nightly", cron: str = "0 0 1 1 *", misfire: Misfire = Misfire.ONCE, **task: object
) -> ScheduleRequest:
    asked = Submission(**({"type": "echo", "input": '{"n": 1.0}'} | task))  # type: ignore[arg-type]
    return ScheduleRequest(name, cron, "UTC", misfire, asked)


async def due_since(runtime: Runtime, seconds: float) -> datetime:
    """Have every schedule due since so many seconds; returns that moment."""
    found = await rows(
        runtime,
        "UPDATE schedules SET next_fire_at = date_trunc('minute', clock_timestamp()) - :seconds * interval '1 second' "
        "RETURNING next_fire_at",
        seconds=seconds,
    )
    moment: datetime = found[0]["next_fire_at"]
    return moment


async def test_a_firing_submits_its_task_and_moves_on(runtime: Runtime) -> None:
    tenant = await a_tenant(runtime)
    row = await schedules.create(runtime, ACME, tenant, a_request(metadata='{"a":1}'))
    assert await run_once(runtime) == 0
    await due_since(runtime, 0)

    made = await run_once(runtime)
    again = await run_once(runtime)

    assert (made, again) == (1, 0)
    (task,) = await rows(runtime, "SELECT task_id, input, submitted_by, source_ref, metadata FROM tasks")
    assert (task["input"], task["submitted_by"], task["metadata"]) == ('{"n": 1.0}', "ana", '{"a":1}')
    assert task["source_ref"] == f"schedule:{row.schedule_id}"
    after = await schedules.get(runtime, ACME, row.schedule_id)
    assert (after.last_task_id, after.last_error) == (task["task_id"], None)
    assert after.next_fire_at > after.last_fired_at


async def test_ten_dispatchers_at_once_make_one_task(runtime: Runtime) -> None:
    tenant = await a_tenant(runtime)
    await schedules.create(runtime, ACME, tenant, a_request())
    await due_since(runtime, 0)

    await asyncio.gather(*(run_once(runtime) for _ in range(10)))

    assert len(await rows(runtime, "SELECT task_id FROM tasks")) == 1


async def test_a_crash_between_the_task_and_moving_on_makes_no_second_task(runtime: Runtime) -> None:
    tenant = await a_tenant(runtime)
    await schedules.create(runtime, ACME, tenant, a_request())
    moment = await due_since(runtime, 0)
    await run_once(runtime)
    await rows(runtime, "UPDATE schedules SET next_fire_at = :moment, last_task_id = NULL", moment=moment)

    assert await run_once(runtime) == 0

    (task,) = await rows(runtime, "SELECT task_id FROM tasks")
    assert await rows(runtime, "SELECT last_task_id FROM schedules") == [{"last_task_id": task["task_id"]}]


@pytest.mark.parametrize(("misfire", "tasks"), [(Misfire.ONCE, 1), (Misfire.SKIP, 0)])
async def test_missed_firings_make_one_task_or_none(runtime: Runtime, misfire: Misfire, tasks: int) -> None:
    tenant = await a_tenant(runtime)
    row = await schedules.create(runtime, ACME, tenant, a_request(cron="0 0 1 1 *", misfire=misfire))
    await due_since(runtime, 7200)

    await run_once(runtime)
    await run_once(runtime)

    assert len(await rows(runtime, "SELECT task_id FROM tasks")) == tasks
    after = await schedules.get(runtime, ACME, row.schedule_id)
    assert (after.last_error is None) == bool(tasks)


class Page(BaseModel):
    url: str


async def test_what_could_never_be_submitted_is_refused(database_url: str) -> None:
    adapter = TypeAdapter(Page)
    page = TaskType(TaskTypeSpec("page"), lambda ctx, value: value, True, adapter, None, frozenset({"url"}))
    async with a_runtime(database_url, page) as runtime:
        tenant = await a_tenant(runtime)
        cases = [
            (a_request(type="nobody"), "#/task/type"),
            (a_request(type="page", input='{"url": 3}'), "#/task/input/url"),
            (a_request(type="page", input='{"url": "x"}', due_at=LATER), "#/task/due_at"),
            (a_request(type="page", input='{"url": "x"}', cron="61 * * * *"), "#/cron"),
            (a_request(type="page", input=None, input_ref="input_x"), "#/task/input_ref"),
        ]  # fmt: skip
        for asked, pointer in cases:
            with pytest.raises(Invalid) as refused:
                await schedules.create(runtime, ACME, tenant, asked)
            assert [error.pointer for error in refused.value.errors] == [pointer]
        assert await rows(runtime, "SELECT 1 FROM schedules") == []


async def test_a_type_that_has_gone_is_an_error_of_the_schedule_and_stops_no_other(runtime: Runtime) -> None:
    tenant = await a_tenant(runtime)
    row = await schedules.create(runtime, ACME, tenant, a_request())
    await due_since(runtime, 0)
    runtime.registry = Registry(())

    assert await run_once(runtime) == 0

    after = await schedules.get(runtime, ACME, row.schedule_id)
    assert "unknown_task_type" in after.last_error
    assert after.next_fire_at > row.created_at


async def test_names_are_unique_per_tenant_and_strangers_see_nothing(runtime: Runtime) -> None:
    tenant = await a_tenant(runtime)
    row = await schedules.create(runtime, ACME, tenant, a_request())
    stranger = ServiceActor("eve", "key_2", "globex")

    with pytest.raises(Conflict):
        await schedules.create(runtime, ACME, tenant, a_request())
    with pytest.raises(NotFound):
        await schedules.delete(runtime, stranger, row.schedule_id)
    assert await schedules.page(runtime, stranger, tenant_id="acme", before=None, limit=10) == []
    await schedules.delete(runtime, ACME, row.schedule_id)
    with pytest.raises(NotFound):
        await schedules.get(runtime, ACME, row.schedule_id)


async def test_a_schedule_that_cannot_be_fired_does_not_hold_up_those_behind_it(runtime: Runtime) -> None:
    tenant = await a_tenant(runtime)
    broken = await schedules.create(runtime, ACME, tenant, a_request(name="broken"))
    await schedules.create(runtime, ACME, tenant, a_request(name="sound"))
    await due_since(runtime, 0)
    await rows(
        runtime,
        "UPDATE schedules SET task = '{', next_fire_at = next_fire_at - interval '1 second' WHERE schedule_id = :id",
        id=broken.schedule_id,
    )

    assert await run_once(runtime) == 1
