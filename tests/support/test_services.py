"""The private services: they start, take the faults that tests cause, and leave nothing behind."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import aio_pika
import aiormq
import asyncpg
import pytest

from tests.support.eventually import eventually
from tests.support.postgres import ROOT, PrivatePostgres
from tests.support.rabbitmq import RabbitNode
from tests.support.reaper import reaper

_RUN = """
import asyncio, signal
from tests.support.postgres import PrivatePostgres
from tests.support.rabbitmq import RabbitNode
signal.signal(signal.SIGINT, signal.default_int_handler)
postgres, rabbit = PrivatePostgres(), RabbitNode()
asyncio.run(postgres.start())
asyncio.run(rabbit.start())
print(postgres.server.pid, rabbit.pid, rabbit.epmd_pid, rabbit.directory, flush=True)
signal.pause()
"""


async def _publish(url: str, queue: str) -> None:
    async with await aio_pika.connect(url) as connection:
        channel = await connection.channel()
        await channel.declare_queue(queue, durable=True, arguments={"x-queue-type": "quorum"})
        await channel.default_exchange.publish(aio_pika.Message(b"1", delivery_mode=2), routing_key=queue)


async def _take_all(url: str, queue: str) -> int:
    async with await aio_pika.connect(url) as connection:
        channel = await connection.channel()
        declared = await channel.declare_queue(queue, passive=True)
        count = 0
        while (message := await declared.get(fail=False)) is not None:
            await message.ack()
            count += 1
        return count


async def test_a_node_keeps_its_messages_over_a_restart_and_a_kill(rabbit: RabbitNode) -> None:
    await _publish(rabbit.url, "kept")
    await rabbit.restart()
    await _publish(rabbit.url, "kept")
    await rabbit.kill()
    assert rabbit.pid is None
    await rabbit.start()

    assert await _take_all(rabbit.url, "kept") == 2


async def test_a_wiped_node_has_nothing(rabbit: RabbitNode) -> None:
    await _publish(rabbit.url, "lost")

    await rabbit.wipe()

    with pytest.raises(aiormq.exceptions.ChannelNotFoundEntity):
        await _take_all(rabbit.url, "lost")


async def test_a_node_closes_its_clients_and_blocks_its_publishers_on_demand(rabbit: RabbitNode) -> None:
    connection = await aio_pika.connect(rabbit.url)
    closed = asyncio.Event()
    connection.close_callbacks.add(lambda *_: closed.set())
    await rabbit.close_all_connections("a reason")
    async with asyncio.timeout(10.0):
        await closed.wait()

    await rabbit.raise_memory_alarm()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.3):
            await _publish(rabbit.url, "blocked")
    await rabbit.clear_memory_alarm()

    await _publish(rabbit.url, "blocked")


async def test_a_node_takes_its_patience_from_the_configuration(rabbit: RabbitNode) -> None:
    own = RabbitNode(consumer_timeout_ms=1234, channel_tick_interval_ms=500)
    await own.start()
    try:
        assert "{ok,1234}" in await own.ctl("eval", "application:get_env(rabbit, consumer_timeout).")
        assert "{ok,500}" in await own.ctl("eval", "application:get_env(rabbit, channel_tick_interval).")
        assert own.port != rabbit.port
    finally:
        await own.close()


async def test_each_database_is_a_migrated_copy_of_its_own(postgres: PrivatePostgres) -> None:
    first, second = await postgres.create_database(), await postgres.create_database()

    for url in (first, second):
        connection = await asyncpg.connect(url)
        assert await connection.fetchval("SELECT count(*) FROM alembic_version") == 1
        assert await connection.fetchval("SELECT to_regclass('only_here')") is None
        await connection.execute("CREATE TABLE only_here ()")
        await connection.close()
        await postgres.drop_database(url)


async def test_sessions_are_ended_from_outside_and_urls_stay_good_over_a_kill(
    postgres: PrivatePostgres, database_url: str
) -> None:
    session = await asyncpg.connect(database_url)
    assert await postgres.terminate_backends(database_url) == 1
    await eventually(session.is_closed)

    await postgres.kill()
    await postgres.start()

    again = await asyncpg.connect(database_url)
    assert await again.fetchval("SELECT 1") == 1
    await again.close()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT], ids=["killed", "interrupted"])
async def test_nothing_outlives_a_test_run(number: signal.Signals) -> None:
    run = await asyncio.create_subprocess_exec(
        sys.executable, "-c", _RUN, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True
    )
    reaper().watch(run.pid)
    assert run.stdout is not None
    *pids, directory = (await run.stdout.readline()).decode().split()
    assert all(_runs(int(pid)) for pid in pids)

    run.send_signal(number)
    await run.wait()
    reaper().forget(run.pid)

    await eventually(lambda: not any(_runs(int(pid)) for pid in pids) and not Path(directory).exists())


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (ProcessLookupError, FileNotFoundError):
        return False


async def test_eventually_returns_the_fact_and_tells_what_it_saw_instead() -> None:
    looks = iter([0, 0, 7])
    assert await eventually(lambda: next(looks)) == 7

    def never() -> bool:
        raise AssertionError("one is not two")

    with pytest.raises(AssertionError, match=r"not true within 0.05 s .*never; at the last look it asserted: one is"):
        await eventually(never, within_seconds=0.05)
    with pytest.raises(AssertionError, match=r"a full moon; at the last look it returned 0"):
        await eventually(lambda: 0, within_seconds=0.05, what="a full moon")
