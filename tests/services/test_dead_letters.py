"""Dead letters come back once, with a fresh budget; what never was a task is recorded once."""

import asyncio

import pytest

from app.broker.base import Delivery, Malformed, TaskMessage
from app.runtime import Runtime
from app.services import dead_letters
from app.services.actors import ServiceActor
from app.services.errors import Conflict, NotFound
from app.store.filters import DeadLetterFilter
from tests.support.work import claimed, dead, released, rows, status_of, submitted

ACME = ServiceActor("ana", "key_1", "acme")
GLOBEX = ServiceActor("eve", "key_2", "globex")
PLATFORM = ServiceActor("root")
ALL = DeadLetterFilter()
BAD = Malformed("not JSON", "ab" * 32, 4)


async def test_fifty_callers_reprocess_one_dead_letter_once(runtime: Runtime) -> None:
    (task_id,) = await submitted(runtime)
    await dead(runtime, [task_id])

    answers = await asyncio.gather(
        *(dead_letters.reprocess(runtime, ACME, task_id, "provider back") for _ in range(50)), return_exceptions=True
    )

    refused = [answer for answer in answers if isinstance(answer, Conflict)]
    assert (len(refused), {one.code for one in refused}) == (49, {"not_dead_lettered"})
    assert await rows(runtime, "SELECT task_id FROM delayed") == [{"task_id": task_id}]
    assert await rows(runtime, "SELECT subject, action, target, reason FROM audit") == [
        {"subject": "ana", "action": "dead_letter.reprocess", "target": task_id, "reason": "provider back"}
    ]


async def test_a_reprocessed_task_has_a_fresh_budget_and_its_history(runtime: Runtime) -> None:
    (task_id,) = await submitted(runtime)
    await dead(runtime, [task_id])
    await rows(runtime, "UPDATE tasks SET crashes = 3")

    row = await dead_letters.reprocess(runtime, ACME, task_id, "provider back")

    assert (row.status, row.attempts, row.crashes, row.error_type, row.finished_at) == ("queued", 0, 0, None, None)
    (mine,) = await claimed(runtime, [task_id])
    assert mine.attempt == 1
    assert len(await rows(runtime, "SELECT * FROM attempts")) == 1
    (event,) = await rows(runtime, "SELECT kind, reason, actor FROM events")
    assert event == {"kind": "reprocessed", "reason": "provider back", "actor": "ana"}


async def test_a_validity_that_ran_out_begins_again(runtime: Runtime) -> None:
    (task_id,) = await submitted(runtime)
    await dead(runtime, [task_id])
    await rows(
        runtime,
        "UPDATE tasks SET submitted_at = submitted_at - interval '2 hours', "
        "valid_until = submitted_at - interval '1 hour'",
    )

    await dead_letters.reprocess(runtime, ACME, task_id, "still wanted")

    (left,) = await rows(
        runtime,
        "SELECT d.valid_until = t.valid_until AS same, "
        "extract(epoch FROM t.valid_until - clock_timestamp()) AS seconds FROM tasks t JOIN delayed d USING (task_id)",
    )
    assert left["same"]
    assert 3500 < left["seconds"] <= 3600


async def test_a_tenant_sees_its_own_dead_letters_only(runtime: Runtime) -> None:
    (mine,) = await submitted(runtime)
    (other,) = await submitted(runtime, tenant_id="globex")
    letters = await dead(runtime, [mine, other])
    await dead_letters.record_malformed(runtime, BAD, redelivered=False, why="unreadable", priority_class="common")

    seen = await dead_letters.page(runtime, ACME, ALL, before=None, limit=10)
    everything = await dead_letters.page(runtime, PLATFORM, ALL, before=None, limit=10)

    assert [row.task_id for row in seen] == [mine]
    assert {row.task_id for row in everything} == {mine, other, None}
    malformed_id = next(row.dead_letter_id for row in everything if row.task_id is None)
    for hidden in (mine, letters[mine], malformed_id, "task_01JZ8W4W9GZK4K2GZ7Q2ABCD12"):
        with pytest.raises(NotFound):
            await dead_letters.story(runtime, GLOBEX, hidden)
        with pytest.raises(NotFound):
            await dead_letters.reprocess(runtime, GLOBEX, hidden, "mine now")
    assert await status_of(runtime, mine) == "dead_lettered"
    with pytest.raises(Conflict) as refused:
        await dead_letters.reprocess(runtime, PLATFORM, malformed_id, "try")
    assert refused.value.code == "not_reprocessable"


async def test_the_story_of_one_is_found_by_either_id(runtime: Runtime) -> None:
    (task_id,) = await submitted(runtime)
    letters = await dead(runtime, [task_id], error_type="invalid_payload")

    by_task = await dead_letters.story(runtime, ACME, task_id)
    by_letter = await dead_letters.story(runtime, ACME, letters[task_id])

    assert by_task.item == by_letter.item
    assert by_task.history is not None
    assert [attempt.error_type for attempt in by_task.history.attempts] == ["invalid_payload"]
    assert by_task.item.worker_id == "worker_1"


async def test_filters_summary_and_sample(runtime: Runtime) -> None:
    task_ids = await submitted(runtime, 5)
    await dead(runtime, task_ids[:3], error_type="timeout")
    await dead(runtime, task_ids[3:], error_type="invalid_payload")
    await rows(
        runtime,
        "UPDATE dead_letters SET failed_at = failed_at - interval '2 hours' WHERE task_id = :id",
        id=task_ids[0],
    )

    summary = await dead_letters.summary(runtime, ACME)
    timeouts = DeadLetterFilter(error_type=("timeout",))
    sample = await dead_letters.sample(runtime, ACME, timeouts, n=2)
    first = await dead_letters.page(runtime, ACME, timeouts, before=None, limit=2)
    rest = await dead_letters.page(runtime, ACME, timeouts, before=first[-1].dead_letter_id, limit=2)

    found = [(line.error_type, line.count, line.rate_per_hour, round(line.baseline_per_hour, 5)) for line in summary]
    assert found == [("timeout", 3, 2.0, round(3 / 168, 5)), ("invalid_payload", 2, 2.0, round(2 / 168, 5))]
    assert {row.error_type for row in sample} == {"timeout"}
    assert len(sample) == 2
    assert {row.task_id for row in [*first, *rest]} == set(task_ids[:3])


async def test_a_malformed_message_is_recorded_once_and_another_one_too(runtime: Runtime) -> None:
    first = await dead_letters.record_malformed(runtime, BAD, redelivered=False, why="unreadable")
    lost_ack = await dead_letters.record_malformed(runtime, BAD, redelivered=True, why="unreadable")
    sent_again = await dead_letters.record_malformed(runtime, BAD, redelivered=False, why="unreadable")

    assert (first, lost_ack, sent_again) == (True, False, True)
    recorded = await rows(runtime, "SELECT error_type, error_message, tenant_id FROM dead_letters")
    assert recorded[0] == {
        "error_type": "malformed_message",
        "error_message": "unreadable: not JSON (4 bytes)",
        "tenant_id": None,
    }


def given_up(task_id: str, dispatch: int) -> Delivery:
    message = TaskMessage(task_id, "echo", "acme", 1, dispatch, "2026-11-30T00:00:00Z")
    return Delivery("common", message, True, 1, dead_reason="delivery_limit")


async def test_an_over_delivered_task_goes_back_and_the_third_time_to_the_dead_letters(runtime: Runtime) -> None:
    (task_id,) = await submitted(runtime)
    answers = []
    for _ in range(3):
        dispatch = (await released(runtime, [task_id]))[task_id]
        delivery = given_up(task_id, dispatch)
        answers.append(await dead_letters.record_dead_delivery(runtime, delivery))
        answers.append(await dead_letters.record_dead_delivery(runtime, delivery))

    assert answers == ["handed_back", "stale", "handed_back", "stale", "dead_lettered", "stale"]
    assert await status_of(runtime, task_id) == "dead_lettered"
    (letter,) = await rows(runtime, "SELECT task_id, error_type FROM dead_letters")
    assert letter == {"task_id": task_id, "error_type": "delivery_limit"}
    await dead_letters.reprocess(runtime, ACME, task_id, "workers mended")
    dispatch = (await released(runtime, [task_id]))[task_id]
    again = await dead_letters.record_dead_delivery(runtime, given_up(task_id, dispatch))
    assert again == "handed_back"


async def test_an_unreadable_message_of_the_brokers_dead_letter_queue_is_recorded(runtime: Runtime) -> None:
    delivery = Delivery("common", BAD, False, 1, dead_reason="rejected")

    assert await dead_letters.record_dead_delivery(runtime, delivery) == "malformed"

    (letter,) = await rows(runtime, "SELECT error_type, error_message, priority_class FROM dead_letters")
    assert letter == {
        "error_type": "malformed_message",
        "error_message": "rejected: not JSON (4 bytes)",
        "priority_class": "common",
    }


async def test_the_message_of_a_running_task_is_stale(runtime: Runtime) -> None:
    (task_id,) = await submitted(runtime)
    await claimed(runtime, [task_id])

    assert await dead_letters.record_dead_delivery(runtime, given_up(task_id, 1)) == "stale"

    assert await status_of(runtime, task_id) == "running"
    assert await rows(runtime, "SELECT * FROM dead_letters") == []
