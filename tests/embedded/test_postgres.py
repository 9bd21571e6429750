"""The embedded PostgreSQL: found again, recovered after any crash, refused to a second owner, never left behind."""

import asyncio
import json
import os
import signal
import stat
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import asyncpg
import pytest
import pytest_asyncio

from app.embedded.errors import AlreadyRunning, DataVersionMismatch, StartFailed
from app.embedded.ownership import is_alive, is_our_server
from app.embedded.postgres import EmbeddedPostgres
from tests.support.eventually import eventually
from tests.support.ports import free_port
from tests.support.postgres import ROOT
from tests.support.reaper import reaper

_OWNER = """
import json, sys, signal
from pathlib import Path
from app.embedded.postgres import EmbeddedPostgres
server = EmbeddedPostgres(Path(sys.argv[1]))
server.start()
print(json.dumps({"server": server.pid, "guard": server.guard_pid}), flush=True)
signal.pause()
"""


@pytest.fixture
def data_dir() -> Path:
    return reaper().directory("embedded") / "data"


@pytest_asyncio.fixture
async def server(data_dir: Path) -> AsyncIterator[EmbeddedPostgres]:
    one = EmbeddedPostgres(data_dir)
    await asyncio.to_thread(one.start)
    yield one
    await asyncio.to_thread(one.stop, "immediate")


class Owner:
    """Another process that owns a server on `data_dir`."""

    def __init__(self, data_dir: Path) -> None:
        command = [sys.executable, "-c", _OWNER, str(data_dir)]
        self.process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, start_new_session=True)
        reaper().watch(self.process.pid)
        assert self.process.stdout is not None
        facts = json.loads(self.process.stdout.readline())
        self.server_pid, self.guard_pid = int(facts["server"]), int(facts["guard"])
        reaper().watch(self.guard_pid)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def close(self) -> None:
        self.kill()
        assert self.process.stdout is not None
        self.process.stdout.close()
        reaper().forget(self.process.pid)


@pytest.fixture
def owner(data_dir: Path) -> Iterator[Owner]:
    one = Owner(data_dir)
    yield one
    one.close()


async def _value(url: str, statement: str) -> object:
    connection = await asyncpg.connect(url)
    try:
        return await connection.fetchval(statement)
    finally:
        await connection.close()


async def _remember(url: str) -> None:
    await _value(url, "CREATE TABLE kept (number int)")
    await _value(url, "INSERT INTO kept VALUES (42)")


async def test_a_second_start_finds_the_data(server: EmbeddedPostgres) -> None:
    await _remember(server.url)

    await asyncio.to_thread(server.stop)
    assert server.pid is None
    await asyncio.to_thread(server.start)

    assert await _value(server.url, "SELECT number FROM kept") == 42


async def test_what_was_committed_survives_a_kill_of_the_server(server: EmbeddedPostgres) -> None:
    await _remember(server.url)

    await asyncio.to_thread(server.kill)
    await asyncio.to_thread(server.start)

    assert await _value(server.url, "SELECT number FROM kept") == 42


async def test_a_kill_with_open_sessions_can_be_started_after_at_once(server: EmbeddedPostgres) -> None:
    sessions = [await asyncpg.connect(server.url) for _ in range(20)]

    await asyncio.to_thread(server.kill)
    await asyncio.to_thread(server.start)

    assert await _value(server.url, "SELECT 1") == 1
    for session in sessions:
        session.terminate()


async def test_it_is_utf8_durable_and_asks_for_the_password(server: EmbeddedPostgres) -> None:
    assert await _value(server.url, "SHOW server_encoding") == "UTF8"
    assert await _value(server.url, "SELECT datlocale FROM pg_database WHERE datname = current_database()") == "C.UTF-8"
    assert await _value(server.url, "SHOW fsync") == "on"
    assert await _value(server.url, "SHOW listen_addresses") == "127.0.0.1"

    with pytest.raises(asyncpg.InvalidPasswordError):
        await _value(f"postgresql://despacho:wrong@127.0.0.1:{server.port}/despacho", "SELECT 1")


async def test_the_password_and_the_log_are_readable_by_their_owner_alone(
    server: EmbeddedPostgres, data_dir: Path
) -> None:
    for name in ("password", "postgres.log", "lock"):
        assert stat.S_IMODE((data_dir / name).stat().st_mode) == 0o600, name
    assert stat.S_IMODE((data_dir / "cluster").stat().st_mode) == 0o700


async def test_a_second_owner_in_this_process_is_refused_and_harms_nothing(
    server: EmbeddedPostgres, data_dir: Path
) -> None:
    with pytest.raises(AlreadyRunning, match=rf"in use by process {os.getpid()}; stop that one"):
        await asyncio.to_thread(EmbeddedPostgres(data_dir).start)

    assert await _value(server.url, "SELECT 1") == 1


async def test_a_second_owner_in_another_process_is_refused_by_name(owner: Owner, data_dir: Path) -> None:
    with pytest.raises(AlreadyRunning, match=rf"in use by process {owner.process.pid}"):
        await asyncio.to_thread(EmbeddedPostgres(data_dir).start)

    assert is_our_server(owner.server_pid, data_dir / "cluster")


async def test_the_server_ends_when_its_owner_is_killed(owner: Owner) -> None:
    owner.kill()

    await eventually(lambda: not is_alive(owner.server_pid) and not is_alive(owner.guard_pid))


async def test_the_server_ends_when_its_guard_is_killed(owner: Owner) -> None:
    os.kill(owner.guard_pid, signal.SIGKILL)

    await eventually(lambda: not is_alive(owner.server_pid))


async def test_an_orphan_is_stopped_by_the_next_start(owner: Owner, data_dir: Path) -> None:
    os.kill(owner.guard_pid, signal.SIGSTOP)  # so that nobody stops the server
    owner.kill()
    assert is_our_server(owner.server_pid, data_dir / "cluster")

    heir = EmbeddedPostgres(data_dir)
    await asyncio.to_thread(heir.start)
    try:
        assert not is_our_server(owner.server_pid, data_dir / "cluster")
        assert heir.pid != owner.server_pid
        assert await _value(heir.url, "SELECT 1") == 1
    finally:
        await asyncio.to_thread(heir.stop)
        os.kill(owner.guard_pid, signal.SIGKILL)


async def test_a_stale_pid_file_that_names_a_stranger_stops_nobody(server: EmbeddedPostgres, data_dir: Path) -> None:
    await asyncio.to_thread(server.kill)
    pid_file = data_dir / "cluster" / "postmaster.pid"
    stranger = await asyncio.create_subprocess_exec("sleep", "60")
    lines = pid_file.read_text().splitlines()
    pid_file.write_text("\n".join([str(stranger.pid), *lines[1:]]) + "\n")

    await asyncio.to_thread(server.start)

    assert await _value(server.url, "SELECT 1") == 1
    assert stranger.returncode is None
    stranger.kill()
    await stranger.wait()


async def test_data_of_another_version_is_refused_by_name(server: EmbeddedPostgres, data_dir: Path) -> None:
    await asyncio.to_thread(server.stop)
    version = data_dir / "cluster" / "PG_VERSION"
    today = version.read_text()
    version.write_text("9\n")

    with pytest.raises(DataVersionMismatch, match=rf"PostgreSQL 9, .* is PostgreSQL {today.strip()}"):
        await asyncio.to_thread(server.start)
    version.write_text(today)
    await asyncio.to_thread(server.start)


async def test_a_start_that_fails_tells_what_the_server_said(data_dir: Path) -> None:
    broken = EmbeddedPostgres(data_dir, settings={"shared_buffers": "much"})

    with pytest.raises(StartFailed, match='invalid value for parameter "shared_buffers": "much"'):
        await asyncio.to_thread(broken.start)

    assert broken.pid is None


async def test_half_of_a_first_start_is_made_anew(data_dir: Path) -> None:
    (data_dir / "cluster.new").mkdir(parents=True)
    (data_dir / "cluster.new" / "PG_VERSION").write_text("18\n")
    server = EmbeddedPostgres(data_dir)

    await asyncio.to_thread(server.start)

    assert await _value(server.url, "SELECT 1") == 1
    await asyncio.to_thread(server.stop)


async def test_a_port_that_is_taken_is_named_in_the_error(server: EmbeddedPostgres) -> None:
    second = EmbeddedPostgres(reaper().directory("embedded") / "data", server.port)

    with pytest.raises(StartFailed, match="Address already in use"):
        await asyncio.to_thread(second.start)


async def test_the_given_port_is_used(data_dir: Path) -> None:
    port = free_port()
    server = EmbeddedPostgres(data_dir, port)

    await asyncio.to_thread(server.start)

    assert f"@127.0.0.1:{port}/" in server.url
    await asyncio.to_thread(server.stop)


async def test_data_behind_a_closed_directory_is_reached_without_opening_it(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    server = EmbeddedPostgres(closed / "data")

    await asyncio.to_thread(server.start)

    assert await _value(server.url, "SELECT 1") == 1
    await asyncio.to_thread(server.stop)
    assert stat.S_IMODE(closed.stat().st_mode) == 0o700
