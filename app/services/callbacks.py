"""Completing a task from outside: the token is the credential, the first call counts, the task goes on at once."""

import asyncio
from hashlib import sha256

from sqlalchemy.ext.asyncio import AsyncConnection

from app.domain.callbacks import TOKEN, CallbackOutcome
from app.domain.lifecycle import is_final
from app.runtime import Runtime
from app.services.errors import Conflict, Invalid, NotFound, ServiceError, Unavailable
from app.store import callbacks

# A task is between two places only while another transaction commits: the next look finds it in one of them.
_LOOKS = 100
_PAUSE_SECONDS = 0.005


def fingerprint_of(token: str) -> bytes:
    """Give what is stored of a token."""
    return sha256(token.encode("utf-8", "replace")).digest()


async def call_back(runtime: Runtime, token: str, outcome: CallbackOutcome) -> str:
    """Record what the receiver of a delivery says of it, and wake its task; returns the task's id.

    Raises NotFound, Conflict (`callback_used`), ServiceError (`callback_closed`, `payload_too_large`) or Unavailable.
    """
    _check_size(outcome, runtime.settings.worker.max_result_bytes)
    if not TOKEN.fullmatch(token):
        raise NotFound
    fingerprint = fingerprint_of(token)

    async def once(connection: AsyncConnection) -> str | None:
        seen = await callbacks.seen(connection, fingerprint)
        if seen is None:
            raise NotFound
        held = await callbacks.hold_place(connection, seen.task_id)
        seen = await callbacks.seen(connection, fingerprint)
        if seen is None:
            raise NotFound
        if seen.called:
            raise _used()
        if seen.closed or is_final(seen.status):
            raise ServiceError("callback_closed", "The task no longer waits for this callback.")
        if not held:
            return None
        if not await callbacks.take(connection, fingerprint, outcome):
            raise _used()
        return str(seen.task_id)

    for _ in range(_LOOKS):
        task_id = await runtime.database.run(once)
        if task_id is not None:
            runtime.dispatcher_poke.poke()
            return task_id
        await asyncio.sleep(_PAUSE_SECONDS)
    raise Unavailable("task_moving", "The task kept changing places; call again.")


def _used() -> Conflict:
    return Conflict("callback_used", "The task has been called back already; the first call counts.")


def _check_size(outcome: CallbackOutcome, most_bytes: int) -> None:
    if outcome.result is not None and len(outcome.result.encode()) > most_bytes:
        raise ServiceError("payload_too_large", f"The result is larger than the {most_bytes} bytes that may be stored.")
    if outcome.result is None and outcome.error_type is None:
        raise Invalid([("#", "should hold either a result or an error")])
