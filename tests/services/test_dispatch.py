"""What the leader releases, in which order, and that nobody else moves anything."""

from collections.abc import AsyncIterator, Collection, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import pytest_asyncio

from app.broker.base import Delivery, Published, TaskMessage
from app.domain.lifecycle import Move
from app.domain.outcome import Settlement
from app.domain.policy import Limit, LimitKind
from app.runtime import Runtime
from app.services.actors import ServiceActor
from app.services.cancellation import cancel_task
from app.services.dispatch import MOST_FLOORS, Dispatcher, LostLead
from app.services.pauses import create, resume
from app.store import flights, leaders, workers
from app.store.settlements import settle
from app.store.workers import Identity
from tests.support.eventually import eventually
from tests.support.runtimes import AwayBroker, a_runtime, a_task_type
from tests.support.work import claimed, finished, rows, status_of, submitted
from workers.inbox import Inbox

ACME = ServiceActor("ana", "key_1", "acme")


class RecordingBroker(AwayBroker):
    """A broker that keeps what it was given; `answer` is what it says of each message."""

    connected = True

    def __init__(self) -> None:
        self.sent: list[TaskMessage] = []
        self.inbox = Inbox(lambda name: 0)
        self.declared = 0
        self.answer = Published.CONFIRMED

    async def publish(self, items: Sequence[tuple[str, TaskMessage]]) -> list[Published]:
        """Keep the messages."""
        self.sent += [message for _, message in items]
        return [self.answer] * len(items)

    async def declare(self, classes: Collection[str]) -> None:
        """Count the call."""
        self.declared += 1


@pytest.fixture
def broker() -> RecordingBroker:
    return RecordingBroker()


@pytest_asyncio.fixture
async def runtime(database_url: str, broker: RecordingBroker) -> AsyncIterator[Runtime]:
    """A runtime whose broker records, with two types."""
    types = (a_task_type(), a_task_type("other"))
    async with a_runtime(database_url, *types, broker=broker) as opened:
        yield opened


async def a_worker(runtime: Runtime, slots: int = 4) -> None:
    """Have a live worker for all classes."""
    identity = Identity(
        "worker_1", "default", tuple(runtime.policy.current.by_name), ("echo",), slots, "host", 1, "test"
    )
    await workers.beat(runtime.database, identity, draining=False, alive_seconds=600)


async def a_leader(runtime: Runtime, *, holder: str = "test", lease_seconds: float = 60) -> Dispatcher:
    """Have a dispatcher that leads."""
    dispatcher = Dispatcher(runtime, holder=holder)
    epoch = await leaders.stand(runtime.database, role="dispatcher", holder=holder, lease_seconds=lease_seconds)
    assert epoch is not None
    await dispatcher.take_over(epoch)
    return dispatcher


async def start_order(runtime: Runtime, dispatcher: Dispatcher, broker: RecordingBroker, most: int) -> list[str]:
    """Play a worker of four slots whose tasks end at once; returns the tenants in the order of their starts."""
    order: list[str] = []
    for _ in range(400):
        await dispatcher.round()
        await dispatcher.stand_down()
        for message in broker.sent:
            broker.inbox.add(0.0, Delivery("common", message, False, 0), message)
        broker.sent.clear()
        for _, message in broker.inbox.take(4):
            order.append(message.tenant_id)
            await finished_released(runtime, message)
        if len(order) >= most:
            break
    return order


async def finished_released(runtime: Runtime, message: TaskMessage) -> None:
    """Claim and finish one released task."""
    want = (message.task_id, message.dispatch, message.type, message.tenant_id)
    (mine,) = await flights.claim(runtime.database, [want], worker_id="worker_1", lease_seconds=60, retry_for_seconds=5)
    await settle(runtime.database, [Settlement(mine.task_id, mine.fence, Move.FINISH, "done", result="null")])


async def test_no_more_is_released_than_can_start_soon_and_the_rest_waits_in_the_database(
    runtime: Runtime, broker: RecordingBroker
) -> None:
    await a_worker(runtime, slots=4)
    await submitted(runtime, 100)
    dispatcher = await a_leader(runtime)

    for _ in range(5):
        await dispatcher.round()
    await dispatcher.stand_down()

    assert 1 <= len(broker.sent) <= 8
    (waiting,) = await rows(runtime, "SELECT count(*) AS n FROM ready")
    assert waiting["n"] == 100 - len(broker.sent)


async def test_a_late_tenant_starts_within_eight_starts_of_a_flood(runtime: Runtime, broker: RecordingBroker) -> None:
    await a_worker(runtime, slots=4)
    await submitted(runtime, 1000, tenant_id="acme")
    dispatcher = await a_leader(runtime)
    before = await start_order(runtime, dispatcher, broker, 20)

    await submitted(runtime, 1, tenant_id="beta")
    after = await start_order(runtime, dispatcher, broker, 20)

    assert set(before) == {"acme"}
    assert "beta" in after[:9], after


async def test_tenants_share_by_weight(runtime: Runtime, broker: RecordingBroker) -> None:
    await a_worker(runtime, slots=4)
    for tenant in ("acme", "beta"):
        await submitted(runtime, 200, tenant_id=tenant)
    await rows(runtime, "UPDATE tenants SET weight = 3 WHERE tenant_id = 'beta'")

    order = await start_order(runtime, await a_leader(runtime), broker, 120)

    assert 2.4 <= order[:120].count("beta") / order[:120].count("acme") <= 3.6


async def test_a_tenant_that_was_away_does_not_catch_up_on_its_absence(
    runtime: Runtime, broker: RecordingBroker
) -> None:
    await a_worker(runtime, slots=4)
    await submitted(runtime, 300, tenant_id="acme")
    dispatcher = await a_leader(runtime)
    await start_order(runtime, dispatcher, broker, 100)

    await submitted(runtime, 100, tenant_id="beta")
    order = (await start_order(runtime, dispatcher, broker, 60))[:60]

    assert 20 <= order.count("beta") <= 40, order


async def test_what_is_paused_is_not_released_until_it_is_resumed(runtime: Runtime, broker: RecordingBroker) -> None:
    await a_worker(runtime, slots=16)
    operator = ServiceActor("ana", "key_1")
    paused = await create(runtime, operator, "type:echo", "provider down", None)
    await submitted(runtime, 2)
    await submitted(runtime, 2, type="other")
    dispatcher = await a_leader(runtime)

    await dispatcher.round()
    await dispatcher.stand_down()
    assert {message.type for message in broker.sent} == {"other"}

    await resume(runtime, operator, paused.pause_id)
    await dispatcher.round()
    await dispatcher.stand_down()
    assert [message.type for message in broker.sent].count("echo") == 2


async def test_a_pause_holds_from_the_next_round_on(runtime: Runtime, broker: RecordingBroker) -> None:
    await a_worker(runtime, slots=16)
    dispatcher = await a_leader(runtime)
    await dispatcher.round()

    await create(runtime, ServiceActor("ana", "key_1"), "class:common", "provider down", None)
    await submitted(runtime, 2)
    await dispatcher.round()
    await dispatcher.stand_down()

    assert broker.sent == []


async def test_a_limit_caps_what_is_in_flight(runtime: Runtime, broker: RecordingBroker) -> None:
    policy = runtime.policy.current
    runtime.policy.current = replace(policy, limits=(Limit(LimitKind.TYPE, "echo", 2),))
    await a_worker(runtime, slots=16)
    await submitted(runtime, 10)
    await submitted(runtime, 3, type="other")
    dispatcher = await a_leader(runtime)

    for _ in range(5):
        await dispatcher.round()
    await dispatcher.stand_down()

    types = [message.type for message in broker.sent]
    assert (types.count("echo"), types.count("other")) == (2, 3)


async def test_a_former_leader_releases_nothing_and_hears_of_it(runtime: Runtime, broker: RecordingBroker) -> None:
    await a_worker(runtime)
    (task_id,) = await submitted(runtime)
    former = await a_leader(runtime, holder="former")
    await rows(runtime, "UPDATE leaders SET lease_until = clock_timestamp()")
    newer = await a_leader(runtime, holder="newer")

    with pytest.raises(LostLead):
        await former.round()
    await former.stand_down()

    assert broker.sent == []
    assert await rows(runtime, "SELECT * FROM flights") == []
    assert await rows(runtime, "SELECT * FROM release_rounds") == []
    await newer.round()
    await newer.stand_down()
    assert [message.task_id for message in broker.sent] == [task_id]


async def test_a_former_leader_brings_nothing_due(runtime: Runtime) -> None:
    (task_id,) = await submitted(runtime, not_before=datetime.now(UTC) + timedelta(hours=1))
    await rows(runtime, "UPDATE delayed SET due_at = clock_timestamp()")
    former = await a_leader(runtime, holder="former")
    await rows(runtime, "UPDATE leaders SET lease_until = clock_timestamp()")
    await a_leader(runtime, holder="newer")

    await former.round()

    assert await status_of(runtime, task_id) == "scheduled"
    assert len(await rows(runtime, "SELECT * FROM delayed")) == 1


@pytest.mark.parametrize("answer", [one for one in Published if one is not Published.CONFIRMED])
async def test_what_could_not_be_published_waits_again_and_its_message_is_stale(
    runtime: Runtime, broker: RecordingBroker, answer: Published
) -> None:
    await a_worker(runtime)
    (task_id,) = await submitted(runtime)
    dispatcher = await a_leader(runtime)
    broker.answer = answer

    await dispatcher.round()
    await dispatcher.stand_down()
    assert await rows(runtime, "SELECT * FROM flights") == []
    assert await status_of(runtime, task_id) == "queued"
    assert broker.declared == 0  # the broker does that by itself, when its consumers have noticed

    broker.answer = Published.CONFIRMED
    dispatcher._broker_rest_until = 0.0
    dispatcher._count_pace.next_at = 0.0
    for _ in range(3):
        dispatcher._due_pace.next_at = 0.0
        await dispatcher.round()
    await dispatcher.stand_down()
    first, second = broker.sent
    assert (second.task_id, second.dispatch > first.dispatch) == (task_id, True)
    assert dispatcher._counts.count["common"] == 1


async def test_a_row_that_commits_late_with_an_earlier_place_is_released_too(
    runtime: Runtime, broker: RecordingBroker
) -> None:
    await a_worker(runtime, slots=16)
    held, seen = await submitted(runtime, 2)
    # The first is not visible yet, as while its transaction is open.
    await rows(runtime, "CREATE TABLE held AS SELECT * FROM ready WHERE task_id = :id", id=held)
    await rows(runtime, "DELETE FROM ready WHERE task_id = :id", id=held)
    dispatcher = await a_leader(runtime)
    await dispatcher.round()
    await dispatcher.stand_down()
    assert [message.task_id for message in broker.sent] == [seen]

    await rows(runtime, "INSERT INTO ready SELECT * FROM held")

    async def found() -> bool:
        await dispatcher.round()
        return len(broker.sent) == 2

    await eventually(found)

    assert [message.task_id for message in broker.sent] == [seen, held]


async def test_a_new_leader_counts_what_is_in_flight_already(runtime: Runtime, broker: RecordingBroker) -> None:
    await a_worker(runtime, slots=4)
    busy = await submitted(runtime, 4)
    await claimed(runtime, busy)
    await submitted(runtime, 10)
    await rows(runtime, "UPDATE leaders SET lease_until = clock_timestamp()")
    dispatcher = await a_leader(runtime, holder="newer")

    await dispatcher.round()
    await dispatcher.stand_down()

    assert broker.sent == []


async def test_finished_work_makes_room(runtime: Runtime, broker: RecordingBroker) -> None:
    await a_worker(runtime, slots=10)
    first = await submitted(runtime, 2)
    await finished(runtime, first)
    more = await submitted(runtime, 2)
    await rows(runtime, "UPDATE leaders SET lease_until = clock_timestamp()")
    dispatcher = await a_leader(runtime, holder="newer")

    await dispatcher.round()
    await dispatcher.stand_down()

    assert sorted(message.task_id for message in broker.sent) == sorted(more)


async def test_a_leader_whose_whole_round_was_cancelled_under_it_goes_on_leading(
    runtime: Runtime, broker: RecordingBroker
) -> None:
    await a_worker(runtime)
    gone = await submitted(runtime, 2)
    dispatcher = await a_leader(runtime)
    execute = runtime.database.execute_hot

    async def cancelled_first(statement: Any, values: Any, **how: Any) -> Any:
        if statement is flights.RELEASE:
            for task_id in gone:
                await cancel_task(runtime, ACME, task_id)
        return await execute(statement, values, **how)

    runtime.database.execute_hot = cancelled_first  # type: ignore[method-assign]
    assert await dispatcher.round() == 0
    runtime.database.execute_hot = execute  # type: ignore[method-assign]
    (later,) = await submitted(runtime)
    await dispatcher.round()
    await dispatcher.stand_down()

    assert [message.task_id for message in broker.sent] == [later]


async def test_a_policy_that_this_release_cannot_read_does_not_stop_the_releases(
    runtime: Runtime, broker: RecordingBroker
) -> None:
    await a_worker(runtime)
    (task_id,) = await submitted(runtime)
    dispatcher = await a_leader(runtime)
    await rows(
        runtime,
        "INSERT INTO policies (version, document, owner, author, created_at) "
        "VALUES ('newer', 'of = \"a later release\"', 'ops', 'ops', clock_timestamp())",
    )

    await dispatcher.round()
    await dispatcher.stand_down()

    assert [message.task_id for message in broker.sent] == [task_id]


async def test_what_is_remembered_of_lanes_does_not_grow_with_the_tenants(
    runtime: Runtime, broker: RecordingBroker
) -> None:
    await a_worker(runtime, slots=2 * MOST_FLOORS)
    dispatcher = await a_leader(runtime)
    for n in range(MOST_FLOORS + 50):
        await submitted(runtime, tenant_id=f"tenant_{n}")

    while await dispatcher.round():
        pass
    await dispatcher.stand_down()

    assert len(broker.sent) == MOST_FLOORS + 50
    assert len(dispatcher._floors) == MOST_FLOORS
