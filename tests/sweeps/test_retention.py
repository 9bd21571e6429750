"""Retention removes what is old and nothing that is still referred to."""

import pytest

from app.ids import least_at
from app.runtime import Runtime
from app.services import inputs
from app.services.actors import ServiceActor
from app.settings import RetentionSettings, Settings
from app.store import dead_letters
from tests.services.test_inputs import a_stream
from tests.support.runtimes import a_runtime
from tests.support.work import a_tenant, dead, finished, rows, submitted
from workers.sweeps.retention import Cursor, run_once

ACME = ServiceActor("ana", "key_1", "acme")


async def journalled(runtime: Runtime, *task_ids: str) -> None:
    """Have tasks with a step and a checkpoint each."""
    for task_id in task_ids:
        await rows(
            runtime,
            "WITH step AS ("
            "INSERT INTO steps (task_id, name, fingerprint, position, fence, size_bytes, value, stored_at) "
            "VALUES (:id, 'ask', '', 0, 1, 4, 'null', clock_timestamp())) "
            "INSERT INTO checkpoints (task_id, fence, size_bytes, state, stored_at) "
            "VALUES (:id, 1, 4, 'null', clock_timestamp())",
            id=task_id,
        )


async def has_journals(runtime: Runtime) -> int:
    """Count the steps, of which there are as many as checkpoints."""
    found = await rows(runtime, "SELECT task_id FROM steps INTERSECT SELECT task_id FROM checkpoints")
    return len(found)


async def age(runtime: Runtime, days: float, *task_ids: str) -> None:
    """Have tasks been submitted and ended so long ago, under ids of that time."""
    (row,) = await rows(runtime, "SELECT clock_timestamp() - :days * interval '1 day' AS at", days=days)
    prefix = least_at("task", row["at"])[: len("task_") + 10]
    for table in ("tasks", "attempts", "events", "steps", "checkpoints", "dead_letters", "webhooks"):
        await rows(
            runtime,
            f"UPDATE {table} SET task_id = :prefix || right(task_id, 16) WHERE task_id = ANY(CAST(:ids AS text[]))",
            prefix=prefix,
            ids=list(task_ids),
        )
    new = [prefix + task_id[-16:] for task_id in task_ids]
    await rows(
        runtime, "UPDATE tasks SET finished_at = :at WHERE task_id = ANY(CAST(:ids AS text[]))", at=row["at"], ids=new
    )
    await rows(
        runtime,
        "UPDATE dead_letters SET failed_at = :at WHERE task_id = ANY(CAST(:ids AS text[]))",
        at=row["at"],
        ids=new,
    )


async def test_final_tasks_go_with_their_history_and_the_others_stay(runtime: Runtime) -> None:
    old, young, waiting, letter = await submitted(runtime, 4)
    await finished(runtime, [old, young])
    await dead(runtime, [letter])
    await journalled(runtime, old, young, letter)
    await age(runtime, 31, old, letter)

    removed = await run_once(runtime)

    assert removed == 1
    left = {row["task_id"][-16:] for row in await rows(runtime, "SELECT task_id FROM tasks")}
    assert left == {task_id[-16:] for task_id in (young, waiting, letter)}
    assert len(await rows(runtime, "SELECT 1 FROM attempts")) == 2
    assert await has_journals(runtime) == 2


async def test_dead_letters_go_by_error_type_and_age(database_url: str) -> None:
    kept = RetentionSettings(dead_letters_days=90, dead_letters_days_by_error_type={"invalid_payload": 7})
    async with a_runtime(database_url, settings=Settings(_env_file=None, retention=kept)) as runtime:
        soon, later, old = await submitted(runtime, 3)
        await dead(runtime, [soon], error_type="invalid_payload")
        await dead(runtime, [later, old], error_type="timeout")
        await journalled(runtime, soon, later, old)
        await age(runtime, 8, soon, later)
        await age(runtime, 91, old)

        await run_once(runtime)

        left = await rows(runtime, "SELECT error_type FROM dead_letters")
        assert left == [{"error_type": "timeout"}]
        assert len(await rows(runtime, "SELECT 1 FROM tasks")) == 1
        assert await has_journals(runtime) == 1


async def test_an_input_stays_while_anything_refers_to_it(runtime: Runtime) -> None:
    names = ("task", "schedule", "nobody", "fresh")
    refs = {name: (await inputs.keep(runtime, ACME, a_stream(name.encode()), None)).stored.input_ref for name in names}
    await submitted(runtime, input=None, input_ref=refs["task"])
    await rows(
        runtime,
        "INSERT INTO schedules (schedule_id, tenant_id, name, cron, timezone, task, misfire, created_by, created_at) "
        "VALUES ('schedule_1', 'acme', 'n', '* * * * *', 'UTC', :task, 'once', 'ana', clock_timestamp())",
        task=f'{{"input_ref":"{refs["schedule"]}"}}',
    )
    await rows(
        runtime,
        "UPDATE inputs SET used_at = clock_timestamp() - interval '8 days' WHERE input_ref <> :fresh",
        fresh=refs["fresh"],
    )

    await run_once(runtime)

    left = {row["input_ref"] for row in await rows(runtime, "SELECT input_ref FROM inputs")}
    assert left == {refs["task"], refs["schedule"], refs["fresh"]}


async def test_keys_rounds_bulk_actions_and_audit_go_by_their_age(runtime: Runtime) -> None:
    await a_tenant(runtime)
    (at,) = await rows(runtime, "SELECT clock_timestamp() AS now, clock_timestamp() - interval '800 days' AS old")
    for name, moment in (("old", at["old"]), ("new", at["now"])):
        await rows(
            runtime,
            "INSERT INTO idempotency_keys VALUES ('acme', 'tasks', :name, '', 'task_x', :moment)",
            name=name,
            moment=moment,
        )
        await rows(
            runtime,
            "INSERT INTO release_rounds (at, epoch, policy_version, figures) VALUES (:moment, 1, 'v', '{}')",
            moment=moment,
        )
        await rows(
            runtime,
            "INSERT INTO audit (audit_id, at, subject, action) VALUES (:id, :moment, 'ana', 'a')",
            id=least_at("audit", moment),
            moment=moment,
        )
        for state in ("done", "running"):
            await rows(
                runtime,
                "INSERT INTO bulk_actions (bulk_action_id, kind, filter, reason, actor, state, matched, created_at, "
                "updated_at) VALUES (:id, 'purge', '{}', 'r', 'ana', :state, 1, :moment, :moment)",
                id=f"bulk_{name}_{state}",
                state=state,
                moment=moment,
            )

    await run_once(runtime)

    for table, left in (("idempotency_keys", 1), ("release_rounds", 1), ("audit", 1), ("bulk_actions", 3)):
        assert len(await rows(runtime, f"SELECT 1 FROM {table}")) == left, table


async def test_a_hundred_thousand_tasks_go_in_small_batches(runtime: Runtime) -> None:
    """10⁵ final tasks between as many that stay: bounded turns, and old tasks that stay are not looked at twice."""
    await rows(
        runtime,
        "INSERT INTO tasks (task_id, tenant_id, type, status, priority_class, reason_code, policy_version, facts, "
        "cost_class, preemptible, max_attempts, timeout_seconds, submitted_at, finished_at, updated_at, submitted_by) "
        "SELECT 'task_01AAAAAAAA' || lpad(n::text, 16, '0'), 'acme', 'echo', "
        "CASE WHEN n % 2 = 0 THEN 'done' ELSE 'scheduled' END, 'common', 'DEFAULT', 'v', '{}', 'short', false, 5, 60, "
        "now() - interval '40 days', now() - interval '40 days', now(), 'ana' FROM generate_series(1, 200000) n",
    )
    await rows(
        runtime,
        "INSERT INTO attempts SELECT task_id, 1, 1, 'done', true, 'w', submitted_at, submitted_at, submitted_at, "
        "submitted_at, 1 FROM tasks WHERE status = 'done'",
    )
    await rows(runtime, "ANALYZE")
    cursor, removed, turns = Cursor(), 0, 0

    while turns == 0 or cursor.above:
        removed += await run_once(runtime, cursor)
        turns += 1

    assert removed == 100_000
    assert turns == 5
    assert await rows(runtime, "SELECT count(*) AS n FROM attempts") == [{"n": 0}]


@pytest.mark.parametrize("days", [0.0001, 30.0])
async def test_an_input_that_was_looked_at_just_now_is_safe_whatever_the_settings(
    database_url: str, days: float
) -> None:
    settings = Settings(_env_file=None, retention=RetentionSettings(inputs_days=days))
    async with a_runtime(database_url, settings=settings) as runtime:
        kept = await inputs.keep(runtime, ACME, a_stream(b"x"), None)
        await rows(runtime, "UPDATE inputs SET used_at = clock_timestamp() - interval '5 minutes'")
        await inputs.check_refs(runtime, "acme", {"#/input_ref": kept.stored.input_ref})

        await run_once(runtime)

        assert len(await rows(runtime, "SELECT 1 FROM inputs")) == 1


async def test_events_for_receivers_go_with_their_tasks(runtime: Runtime) -> None:
    url = "https://hooks.example.com/"
    old, young, letter = await submitted(runtime, 3, callback_url=url)
    await finished(runtime, [old, young])
    letters = await dead(runtime, [letter])
    await rows(runtime, "INSERT INTO webhook_tries SELECT webhook_id, 1, clock_timestamp(), 0.1, 500 FROM webhooks")
    await age(runtime, 31, old)

    await run_once(runtime)
    async with runtime.database.transaction() as connection:
        await dead_letters.purge(connection, [letters[letter]])

    left = await rows(runtime, "SELECT w.task_id FROM webhooks w JOIN webhook_tries y USING (webhook_id)")
    assert [row["task_id"] for row in left] == [young]
    assert await rows(runtime, "SELECT count(*) AS n FROM webhook_tries") == [{"n": 1}]
