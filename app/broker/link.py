"""A connection that is kept: connecting, and connecting again after every loss, until closed.

The work of a new connection (`prepare`) runs in the link's own task, so that nothing that dies with a connection can
cancel the making of the next one.
"""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable

from app.broker.amqp.address import Address
from app.broker.amqp.connection import Connection
from app.broker.amqp.errors import AmqpError, ConnectionLost
from app.settings import BrokerSettings

_log = logging.getLogger(__name__)
_MOST_DOUBLINGS = 4


class Link:
    """One kept connection; `problem` says why there is none at the moment."""

    def __init__(
        self,
        addresses: list[Address],
        settings: BrokerSettings,
        name: str,
        prepare: Callable[[Connection], Awaitable[None]],
    ) -> None:
        self._addresses = addresses
        self._settings = settings
        self._name = name
        self._prepare = prepare
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._connection: Connection | None = None
        self._problem: str | None = "not connected yet"

    @property
    def up(self) -> Connection | None:
        """The connection while it is prepared and alive, otherwise None."""
        return self._connection if self._connection is not None and self._connection.lost is None else None

    @property
    def problem(self) -> str | None:
        """Why there is no connection, or None."""
        lost = self._connection.lost if self._connection is not None else None
        return str(lost) if lost is not None else self._problem

    def start(self) -> None:
        """Begin to connect; a second call does nothing."""
        if self._task is None:
            self._task = asyncio.create_task(self._keep(), name=f"despacho-{self._name}")

    async def close(self) -> None:
        """Close the connection and make no other."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})
        self._problem = "closed"

    async def connection(self) -> Connection:
        """Wait for a prepared connection."""
        while (up := self.up) is None:
            if self._changed.is_set():
                await asyncio.sleep(0)  # just lost: this link's task has yet to see it
            else:
                await self._changed.wait()
        return up

    async def _keep(self) -> None:
        failures = 0
        while True:
            connection: Connection | None = None
            address = self._addresses[failures % len(self._addresses)]
            try:
                connection = await self._connect(address)
                failures = 0
                reason = await connection.wait_lost()
            except AmqpError as error:
                reason = error if isinstance(error, ConnectionLost) else ConnectionLost(str(error))
            finally:
                self._down()
                if connection is not None:
                    await connection.close()
            self._note(str(reason))
            await asyncio.sleep(self.pause_seconds(failures))
            failures += 1

    async def _connect(self, address: Address) -> Connection:
        timeout_seconds = self._settings.connect_timeout_seconds
        connection = await Connection.open(
            address,
            heartbeat_seconds=self._settings.heartbeat_seconds,
            timeout_seconds=timeout_seconds,
            name=f"despacho-{self._name}",
        )
        try:
            async with asyncio.timeout(timeout_seconds):
                await self._prepare(connection)
        except TimeoutError:
            text = f"the broker at {address} did not let the connection be prepared within {timeout_seconds:g} s"
            connection.abort(ConnectionLost(text))
            raise ConnectionLost(text) from None
        except BaseException:
            connection.abort(ConnectionLost("the connection could not be prepared"))
            raise
        self._connection, self._problem = connection, None
        self._changed.set()
        _log.info("broker connected", extra={"link": self._name, "broker": str(address)})
        return connection

    def _down(self) -> None:
        self._connection = None
        self._changed.clear()

    def _note(self, problem: str) -> None:
        if problem != self._problem:
            self._problem = problem
            _log.warning("broker not connected: %s", problem, extra={"link": self._name})

    def pause_seconds(self, failures: int) -> float:
        """How long to wait before the next attempt after so many failed ones: doubling, bounded, with jitter."""
        longest = self._settings.reconnect_seconds * float(2 ** min(failures, _MOST_DOUBLINGS))
        return longest * random.uniform(0.5, 1.0)
