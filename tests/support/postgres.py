"""The test session's private PostgreSQL: databases from a migrated template, and the faults that tests cause."""

import asyncio
import itertools
import os
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import asyncpg

from app.embedded.postgres import EmbeddedPostgres, StopMode
from tests.support.ports import free_port
from tests.support.reaper import reaper

ROOT = Path(__file__).resolve().parents[2]
_TEMPLATE = "despacho_template"
# Copying files takes half to a quarter of the time of copying through the log, which matters once per test.
_COPY = f" TEMPLATE {_TEMPLATE} STRATEGY FILE_COPY"
# A killed process loses nothing of what the kernel has, so the tests need no disk flushes; power cuts are not tested.
# What was committed has to reach the kernel, though: with synchronous_commit off it would die with the server.
_SETTINGS = {"fsync": "off", "full_page_writes": "off", "max_connections": "300"}


class PrivatePostgres:
    """One server for the tests. Its port stays the same through restarts, so its URLs stay good."""

    def __init__(self) -> None:
        self.server = EmbeddedPostgres(reaper().directory("postgres") / "data", free_port(), settings=_SETTINGS)
        self._group: int | None = None
        self._names = itertools.count(1)
        self._template_is_ready = False

    async def start(self) -> None:
        """Start the server; one that runs is left alone."""
        if self.server.pid is None:
            await asyncio.to_thread(self.server.start)
            self._group = self.server.guard_pid
            assert self._group is not None
            reaper().watch(self._group)

    async def stop(self, mode: StopMode = "fast") -> None:
        """Stop the server in the given way."""
        await asyncio.to_thread(self.server.stop, mode)
        self._forget()

    async def kill(self) -> None:
        """Kill the server as a crash would."""
        await asyncio.to_thread(self.server.kill)
        self._forget()

    async def restart(self, mode: StopMode = "fast") -> None:
        """Stop and start."""
        await self.stop(mode)
        await self.start()

    async def create_database(self, *, migrated: bool = True) -> str:
        """Create a database of its own and return its URL; a migrated one is a copy of the template."""
        if migrated:
            await self._make_template()
        name = f"test_{next(self._names)}"
        await self.execute(f"CREATE DATABASE {name}" + (_COPY if migrated else ""))
        return self._url(name)

    async def drop_database(self, url: str) -> None:
        """Drop a database with every session in it."""
        await self.execute(f"DROP DATABASE IF EXISTS {_name(url)} WITH (FORCE)")

    async def terminate_backends(self, url: str) -> int:
        """End every session of one database from outside, as an administrator would; return how many there were."""
        statement = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = $1"
        connection = await asyncpg.connect(self.server.url)
        try:
            return int(await connection.fetchval(statement, _name(url)))
        finally:
            await connection.close()

    async def execute(self, statement: str) -> None:
        """Run one statement as the superuser, outside of the tests' databases."""
        connection = await asyncpg.connect(self.server.url)
        try:
            await connection.execute(statement)
        finally:
            await connection.close()

    async def _make_template(self) -> None:
        if not self._template_is_ready:
            await self.execute(f"CREATE DATABASE {_TEMPLATE}")
            await asyncio.to_thread(migrate, self._url(_TEMPLATE))
            self._template_is_ready = True

    def _url(self, name: str) -> str:
        return urlunsplit(urlsplit(self.server.url)._replace(path=f"/{name}"))

    def _forget(self) -> None:
        if self._group is not None:
            reaper().forget(self._group)
            self._group = None


def migrate(url: str, *arguments: str) -> str:
    """Run Alembic in a process of its own, `upgrade head` unless told otherwise; return its output."""
    answer = subprocess.run(
        [sys.executable, "-m", "alembic", *(arguments or ("upgrade", "head"))],
        cwd=ROOT,
        env={**os.environ, "DESPACHO_DATABASE_URL": url},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert answer.returncode == 0, f"alembic {' '.join(arguments)} failed:\n{answer.stdout}"
    return answer.stdout


def _name(url: str) -> str:
    return urlsplit(url).path.lstrip("/")
