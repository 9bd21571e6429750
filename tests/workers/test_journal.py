"""Steps and checkpoints on a real database: once each, found by every later run, written by the owner alone."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
import pytest_asyncio
from pydantic import BaseModel, Field

from app.domain.errors import DeadLetter, OwnershipLost, Snoozed
from app.runtime import Runtime
from app.services.history import compose, read_story
from app.settings import JournalSettings, Settings
from app.store import dead_letters, tasks
from app.store.dead_letters import Terms
from app.store.flights import Claimed
from app.telemetry.metrics import Metrics
from tests.support.contexts import a_context_on, an_attempt, no_input
from tests.support.eventually import eventually
from tests.support.ports import free_port
from tests.support.postgres import PrivatePostgres
from tests.support.runtimes import a_runtime
from tests.support.work import claimed, dead, returned, rows, submitted
from workers.blocking_context import BlockingTaskContext
from workers.context import TaskContext
from workers.facilities import open_facilities

SMALL = JournalSettings(max_step_bytes=1024, max_steps=3, max_task_bytes=2048, max_checkpoint_bytes=1024)


@pytest_asyncio.fixture(scope="module")
async def runtime(postgres_server: PrivatePostgres) -> AsyncIterator[Runtime]:
    """One database for all: every test has tasks of its own."""
    url = await postgres_server.create_database()
    async with a_runtime(url) as opened:
        yield opened
    await postgres_server.drop_database(url)


class Counted:
    """A call that counts how often it was made."""

    def __init__(self, value: Any = None) -> None:
        self.value = value
        self.count = 0

    async def __call__(self, *arguments: Any) -> Any:
        self.count += 1
        return self.value if self.value is not None else list(arguments)


async def first_run(runtime: Runtime) -> tuple[Claimed, TaskContext]:
    (attempt,) = await claimed(runtime, await submitted(runtime))
    return attempt, await a_context_on(runtime, attempt)


async def next_run(runtime: Runtime, before: Claimed) -> tuple[Claimed, TaskContext]:
    await returned(runtime, before)
    (attempt,) = await claimed(runtime, [before.task_id])
    return attempt, await a_context_on(runtime, attempt)


async def kept(runtime: Runtime, attempt: Claimed) -> int:
    (row,) = await rows(runtime, "SELECT count(*) AS n FROM steps WHERE task_id = :id", id=attempt.task_id)
    return int(row["n"])


async def test_the_next_run_gets_what_the_first_one_got_without_a_call(runtime: Runtime) -> None:
    call = Counted({"big": 10**30, "float": 1e22, "minus": -0.0, "text": "a\0b€"})
    attempt, first = await first_run(runtime)
    got = await first.step("ask", call, {"page": 1})

    _, second = await next_run(runtime, attempt)
    again = await second.step("ask", call, {"page": 1})

    assert repr(got) == repr(again) == repr(call.value)
    assert call.count == 1


async def test_other_arguments_are_another_step_and_the_same_ones_the_same(runtime: Runtime) -> None:
    call = Counted()
    _, context = await first_run(runtime)

    one = await context.step("ask", call, 1, "a")
    other = await context.step("ask", call, 1, "b")
    again = await context.step("ask", call, 1, "a")
    together = await asyncio.gather(*(context.step("at once", call, "x") for _ in range(5)))

    assert (one, other, again) == ([1, "a"], [1, "b"], [1, "a"])
    assert together == [["x"]] * 5
    assert call.count == 3


class Line(BaseModel):
    when: datetime = Field(alias="at")
    amount: Decimal


async def test_with_returns_both_runs_get_the_same_type_and_value(runtime: Runtime) -> None:
    line = Line(at=datetime(2026, 1, 1, tzinfo=UTC), amount=Decimal("1.10"))
    attempt, first = await first_run(runtime)
    answers = [
        await first.step("line", Counted(line), returns=Line),
        await first.step("lines", Counted([line, line]), returns=list[Line]),
        await first.step("pair", Counted((1, "a")), returns=tuple[int, str]),
        await first.step("dict", Counted(line.model_dump(mode="json", by_alias=True)), returns=Line),
    ]

    _, second = await next_run(runtime, attempt)
    never = Counted()
    again = [
        await second.step("line", never, returns=Line),
        await second.step("lines", never, returns=list[Line]),
        await second.step("pair", never, returns=tuple[int, str]),
        await second.step("dict", never, returns=Line),
    ]

    assert answers == again == [line, [line, line], (1, "a"), line]
    assert never.count == 0


@pytest.mark.parametrize(
    ("value", "returns"),
    [
        (float("nan"), None),
        ("a\ud800", None),
        ({1: 2}, None),
        (object(), None),
        ({"n": "no number"}, Line),
        (b"\xff", bytes),
    ],
    ids=["nan", "surrogate", "key", "object", "other type", "bytes"],
)
async def test_a_result_that_is_not_json_is_refused_and_nothing_is_kept(
    runtime: Runtime, value: object, returns: object
) -> None:
    attempt, context = await first_run(runtime)

    with pytest.raises(DeadLetter) as refused:
        await context.step("ask", Counted(value), returns=returns)

    assert refused.value.error_type == "invalid_step_result"
    assert "'ask'" in refused.value.message
    assert await kept(runtime, attempt) == 0


async def test_a_kept_result_that_no_longer_matches_its_type_is_a_dead_letter(runtime: Runtime) -> None:
    attempt, first = await first_run(runtime)
    await first.step("ask", Counted({"old": 1}))
    _, second = await next_run(runtime, attempt)

    with pytest.raises(DeadLetter) as refused:
        await second.step("ask", Counted(), returns=Line)

    assert refused.value.error_type == "invalid_step_result"


async def test_what_raises_or_gives_the_worker_back_keeps_nothing(runtime: Runtime) -> None:
    attempt, context = await first_run(runtime)

    async def fails() -> None:
        raise ConnectionError

    def yields() -> None:
        raise Snoozed(1.0, "not_yet")

    for call, error in ((fails, ConnectionError), (yields, Snoozed)):
        with pytest.raises(error):
            await context.step("ask", call)
    assert await kept(runtime, attempt) == 0
    assert await context.step("ask", Counted("fine")) == "fine"
    _, second = await next_run(runtime, attempt)
    assert await second.step("ask", fails) == "fine"


async def test_a_coroutine_or_a_value_in_place_of_a_function_is_refused(runtime: Runtime) -> None:
    _, context = await first_run(runtime)
    blocking = BlockingTaskContext(context, asyncio.get_running_loop())

    for wrong in (Counted()(), 7):
        with pytest.raises(DeadLetter, match="a function"):
            await context.step("ask", wrong)  # type: ignore[arg-type]
    with pytest.raises(DeadLetter, match="a function"):
        await asyncio.to_thread(blocking.step, "ask", Counted()())  # type: ignore[arg-type]


async def test_a_step_that_calls_itself_is_told_so(runtime: Runtime) -> None:
    _, context = await first_run(runtime)

    async def again(n: int) -> Any:
        return await context.step("again", again, n)

    async with asyncio.timeout(10):
        with pytest.raises(DeadLetter) as refused:
            await context.step("again", again, 1)

    assert refused.value.error_type == "invalid_step"


async def test_an_attempt_that_lost_its_task_writes_nothing(runtime: Runtime) -> None:
    attempt, zombie = await first_run(runtime)
    await zombie.checkpoint("first")
    _, owner = await next_run(runtime, attempt)
    await owner.step("ask", Counted("the owner's"))
    await owner.checkpoint("the owner's")

    for late in (
        zombie.step("ask", Counted("the zombie's")),
        zombie.step("other", Counted("the zombie's")),
        zombie.checkpoint("the zombie's"),
    ):
        with pytest.raises(OwnershipLost):
            await late

    steps = await rows(runtime, "SELECT name, value FROM steps WHERE task_id = :id", id=attempt.task_id)
    states = await rows(runtime, "SELECT state FROM checkpoints WHERE task_id = :id", id=attempt.task_id)
    assert steps == [{"name": "ask", "value": '"the owner\'s"'}]
    assert states == [{"state": '"the owner\'s"'}]
    assert zombie.state == "first"


async def test_a_takeover_waits_for_a_write_that_is_on_its_way_and_sees_it(runtime: Runtime) -> None:
    attempt, context = await first_run(runtime)

    async def some_wait(n: int) -> bool:
        seen = await rows(
            runtime, "SELECT 1 FROM pg_locks WHERE NOT granted AND locktype IN ('transactionid', 'tuple')"
        )
        return len(seen) >= n

    async with runtime.database.general.connect() as holding:
        # A row in the way: the save waits for it with the flight locked.
        in_the_way = (
            "INSERT INTO checkpoints (task_id, fence, size_bytes, state, stored_at) VALUES ($1, 0, 1, '0', now())"
        )
        await holding.exec_driver_sql(in_the_way, (attempt.task_id,))
        saving = asyncio.create_task(context.checkpoint("last words"))
        await eventually(lambda: some_wait(1))
        taking = asyncio.create_task(next_run(runtime, attempt))
        await eventually(lambda: some_wait(2))
        assert not taking.done()
        await holding.rollback()

    await saving
    _, successor = await taking

    assert successor.state == "last words"


async def test_the_last_checkpoint_wins_and_every_later_run_starts_from_it(runtime: Runtime) -> None:
    attempt, first = await first_run(runtime)
    assert first.state is None

    await first.checkpoint({"n": 1})
    await asyncio.gather(*(first.checkpoint({"n": n}) for n in range(2, 30)))
    assert first.state == {"n": 29}
    first.state["n"] = "changed outside"

    for _ in range(3):
        attempt, later = await next_run(runtime, attempt)
        assert later.state == {"n": 29}


async def test_a_journal_survives_the_dead_letters(runtime: Runtime) -> None:
    (task_id,) = await submitted(runtime)
    (attempt,) = await claimed(runtime, [task_id])
    context = await a_context_on(runtime, attempt)
    await context.step("ask", Counted("paid"))
    await context.checkpoint("here")
    await returned(runtime, attempt)
    letters = await dead(runtime, [task_id])
    async with runtime.database.transaction() as connection:
        terms = Terms({}, {})
        await dead_letters.reprocess(connection, list(letters.values()), terms=terms, actor="ana", reason="again")

    (attempt,) = await claimed(runtime, [task_id])
    after = await a_context_on(runtime, attempt)

    never = Counted()
    assert (await after.step("ask", never), after.state, never.count) == ("paid", "here", 0)


async def test_what_is_too_large_or_too_many_is_refused_by_name_and_limit(runtime: Runtime) -> None:
    strict = replace(runtime, settings=Settings(_env_file=None, journal=SMALL))
    _, context = await first_run(strict)

    async def refused(doing: Any) -> tuple[str, str]:
        with pytest.raises(DeadLetter) as error:
            await doing
        return error.value.error_type, error.value.message

    error_type, message = await refused(context.step("big", Counted("x" * 1023)))
    assert (error_type, "DESPACHO_JOURNAL__MAX_STEP_BYTES" in message) == ("step_too_large", True)
    error_type, message = await refused(context.checkpoint("€" * 400))
    assert (error_type, "DESPACHO_JOURNAL__MAX_CHECKPOINT_BYTES" in message) == ("checkpoint_too_large", True)
    for n in range(2):
        await context.step("full", Counted("x" * 1022), n)
    error_type, message = await refused(context.step("full", Counted("x"), 2))
    assert (error_type, "DESPACHO_JOURNAL__MAX_TASK_BYTES" in message) == ("journal_full", True)

    _, context = await first_run(strict)
    never = Counted("x")
    ended = await asyncio.gather(*(context.step("many", never, n) for n in range(5)), return_exceptions=True)
    assert [type(one).__name__ for one in ended] == ["str"] * 3 + ["DeadLetter"] * 2
    assert never.count == 3
    error_type, message = await refused(context.step("many", never, 9))
    assert (error_type, "DESPACHO_JOURNAL__MAX_STEPS" in message) == ("too_many_steps", True)


async def test_a_large_journal_is_read_as_far_as_it_is_asked_for(runtime: Runtime) -> None:
    attempt, first = await first_run(runtime)
    for n in range(8):
        await first.step("page", Counted(str(n) * 300_000), n)
    assert await first.step("page", Counted(), 7) == "7" * 300_000

    _, second = await next_run(runtime, attempt)
    never = Counted()

    assert list(second.book.steps.values()).count(None) == 5
    assert [(await second.step("page", never, n))[:2] for n in range(8)] == [str(n) * 2 for n in range(8)]
    assert never.count == 0


async def test_a_journal_that_cannot_be_read_costs_no_attempt() -> None:
    quick = {"database": {"retry_for_seconds": 0.1, "connect_timeout_seconds": 0.5}, "worker": {"lease_seconds": 0.1}}
    settings = Settings(_env_file=None, **quick)  # type: ignore[arg-type]
    async with a_runtime(f"postgresql://nobody@127.0.0.1:{free_port()}/none", settings=settings) as away:
        context = TaskContext(an_attempt(dispatch=2), open_facilities(away, read_input=no_input))

        with pytest.raises(Snoozed) as snoozed:
            await context.load()

        assert snoozed.value.why == "database_unavailable"
        await TaskContext(an_attempt(dispatch=1), open_facilities(away, read_input=no_input)).load()


async def test_what_arrives_together_is_written_together(runtime: Runtime) -> None:
    attempts = await claimed(runtime, await submitted(runtime, 100))
    counted = replace(runtime, metrics=Metrics())
    facilities = open_facilities(counted, read_input=no_input)
    contexts = [await a_context_on(runtime, attempt, facilities) for attempt in attempts]

    await asyncio.gather(*(context.step("ask", Counted(n)) for n, context in enumerate(contexts, 1)))

    text = counted.metrics.render().decode()
    flushes = [line for line in text.splitlines() if "_count" in line and 'coalescer="step"' in line]
    assert len(flushes) == 1
    assert float(flushes[0].split()[-1]) <= 5
    assert 'coalescer="journal"' not in text


async def test_the_history_names_steps_and_checkpoints_and_no_value(runtime: Runtime) -> None:
    attempt, context = await first_run(runtime)
    await context.step("ask the model", Counted("a secret"))
    await context.checkpoint("another secret")

    async with runtime.database.transaction() as connection:
        task = (await tasks.get_tasks(connection, [attempt.task_id]))[attempt.task_id]
    story = await read_story(runtime, task)
    entries = {one.kind: one.detail or "" for one in compose(task, story)}

    assert '"name":"ask the model"' in entries["step_kept"]
    assert '"size_bytes":16' in entries["checkpoint_kept"]
    assert "secret" not in "".join(entries.values())
