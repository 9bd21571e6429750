"""A span of the past becomes a load: what came, from whom, and how long it ran."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from random import Random

import pytest
import pytest_asyncio

from app.cli.program import run
from app.domain.simulation.engine import simulate
from app.runtime import Runtime
from app.services.replays import TooMuch, load_of
from tests.support.runtimes import a_runtime
from tests.support.work import finished, submitted


@pytest_asyncio.fixture
async def runtime(database_url: str) -> AsyncIterator[Runtime]:
    """The runtime of one process."""
    async with a_runtime(database_url) as opened:
        yield opened


def yesterday() -> datetime:
    return datetime.now(UTC) - timedelta(hours=24)


async def test_what_came_is_replayed_with_its_run_times(runtime: Runtime) -> None:
    done = await submitted(runtime, 2)
    await finished(runtime, done)
    await submitted(runtime, 3, tenant_id="other")

    load = await load_of(
        runtime.database, runtime.registry, start=yesterday(), hours=25, seats=2, anonymous=False, most_tasks=100
    )

    assert len(load.arrivals) == 5
    assert set(load.tenants) == {"acme", "other"}
    assert sum(one.run_seconds is not None for one in load.arrivals) == 2
    result = simulate(runtime.policy.current, load, Random(1))
    assert (result.total["arrived"], result.total["done"]) == (5, 5)


async def test_names_can_be_left_out(runtime: Runtime) -> None:
    await submitted(runtime, 2, tenant_id="secret-client")

    load = await load_of(
        runtime.database, runtime.registry, start=yesterday(), hours=25, seats=2, anonymous=True, most_tasks=100
    )

    assert set(load.tenants) == {"tenant-1"}
    assert "secret-client" not in repr(load)


async def test_a_span_ends_where_it_ends_and_may_not_hold_too_much(runtime: Runtime) -> None:
    await submitted(runtime, 5)
    given = {"seats": 2, "anonymous": False}

    before = await load_of(runtime.database, runtime.registry, start=yesterday(), hours=20, most_tasks=100, **given)

    assert before.arrivals == ()
    with pytest.raises(TooMuch):
        await load_of(runtime.database, runtime.registry, start=yesterday(), hours=25, most_tasks=4, **given)


async def test_the_command_replays_it(
    runtime: Runtime, database_url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    await submitted(runtime, 4)
    monkeypatch.setenv("DESPACHO_DATABASE_URL", database_url)
    line = ["policy", "simulate", "--from-history", yesterday().isoformat(), "--hours", "25"]

    assert await asyncio.to_thread(run, line) == 2
    assert "--seats" in capsys.readouterr().err
    assert await asyncio.to_thread(run, [*line, "--seats", "3", "--anonymous"]) == 0
    assert "history: what came from" in capsys.readouterr().out
    assert await asyncio.to_thread(run, ["policy", "simulate", "--from-history", "2001-01-01", "--seats", "3"]) == 1
    assert "nothing was submitted" in capsys.readouterr().err
