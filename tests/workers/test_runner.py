"""Whatever a handler raises or returns becomes a recorded ending, and the worker goes on."""

import json

from tests.support.tasks import ERRORS, RESULTS
from tests.support.world import World


async def test_every_error_is_recorded_under_its_name_and_the_worker_goes_on(world: World) -> None:
    types = ("raises", "raises_thread", "raises_process")
    ids = {(type_, kind): (await world.submit(type_, kind=kind))[0] for type_ in types for kind in ERRORS}

    ended = await world.ended(list(ids.values()), within_seconds=40)

    for (type_, kind), row in zip(ids, ended, strict=True):
        about = f"{type_} {kind}: {row['error_type']} {row['error_message'][:200]!r}"
        assert row["status"] == "dead_lettered", about
        assert row["attempts"] == 1, about
        assert row["error_type"] == ERRORS[kind], about
        assert 0 < len(row["error_message"]) <= 10_000, about
        assert "\0" not in row["error_message"], about
    (after,) = await world.ended(await world.submit("quick"))
    assert after["status"] == "done"
    await world.at_rest()


async def test_a_result_that_cannot_be_stored_ends_its_own_task_only(world: World) -> None:
    kinds = list(RESULTS)
    ids = {
        (type_, kind): (await world.submit(type_, kind=kind))[0]
        for type_ in ("returns", "returns_process")
        for kind in kinds
    }

    ended = await world.ended(list(ids.values()), within_seconds=40)

    for (_, kind), row in zip(ids, ended, strict=True):
        if kind in ("fine", "nul"):
            assert row["status"] == "done", (kind, row["error_message"])
            assert json.loads(row["result"]) == RESULTS[kind]
        else:
            assert (row["status"], row["error_type"], row["attempts"]) == ("dead_lettered", "invalid_result", 1), kind
    await world.at_rest()
