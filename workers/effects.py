"""`ctx.effect`: reserve, commit, call, confirm. At most one accepted call per key, or a doubt that a person sees.

The whole of it runs apart from the handler: a handler that is cancelled, timed out or shut down takes nothing back that
may be known. What a call answers is recorded by its reservation's token, whoever owns the task by then.
"""

import asyncio
import contextvars
import functools
import inspect
import logging
import time
from collections.abc import Callable, Coroutine
from contextvars import ContextVar
from typing import Any, TypeVar

from app.domain.effects import (
    EffectState,
    Terms,
    check_terms,
    external_id_of,
    fingerprint_of,
    idempotency_key_of,
)
from app.domain.errors import DeadLetter, NotSent, Snoozed
from app.domain.sent import was_not_sent
from app.store.effects import Ended
from app.telemetry.logs import event
from workers.attempt import Attempt
from workers.effect_desk import Ask, Desk, Granted, Happened, Later, Question
from workers.threads import HandlerThreads

log = logging.getLogger("despacho.effects")

current_effect_key: ContextVar[str | None] = ContextVar("current_effect_key", default=None)
"""The Idempotency-Key of the effect whose call runs here, for clients that send it by themselves."""

T = TypeVar("T")
_ROUNDS = 5
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def _now() -> float:
    """Tell the seconds on a clock that also counts while the machine sleeps."""
    return time.clock_gettime(_CLOCK)


class TooLate(NotSent):
    """The time for the call was over before it began: the machine was asleep, or the process was."""


class CallTimedOut(TimeoutError):
    """The call of an effect did not answer in time; whether it was accepted is not known."""


class Effects:
    """The effects of one process; `desk` is the ledger."""

    def __init__(self, desk: Desk, *, close_seconds: float = 10.0) -> None:
        self.desk = desk
        self.threads = HandlerThreads()
        self._close_seconds = close_seconds
        self._running: set[asyncio.Task[Any]] = set()
        self._open: dict[int, set[str]] = {}
        self._latest: dict[tuple[int, str], asyncio.Task[Any]] = {}

    async def effect(
        self,
        attempt: Attempt,
        effect_type: str,
        key: str,
        call: Callable[..., Any],
        *args: Any,
        reconcile: Callable[..., Any] | None = None,
        honours_key_for_seconds: float = 0,
        call_timeout_seconds: float = 30,
    ) -> str | None:
        """Have one effect; see `TaskContext.effect`."""
        terms = Terms(call_timeout_seconds, honours_key_for_seconds, reconcile is not None)
        check_terms(effect_type, key, terms)
        if not callable(call) or not (reconcile is None or callable(reconcile)):
            raise DeadLetter("invalid_effect", "ctx.effect: call and reconcile should be functions")
        one = _One(self, attempt, effect_type, key, call, args, reconcile, terms)
        # The same key twice at once in one attempt: the second waits for what the first finds out.
        place = (attempt.fence, key)
        running = self._latest[place] = self.track(one.run(self._latest.get(place)))
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            one.abandoned = True
            raise
        finally:
            if self._latest.get(place) is running:
                del self._latest[place]

    def track(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run work that nobody may take back; closing waits for it."""
        running = asyncio.create_task(work)
        self._running.add(running)
        running.add_done_callback(self._ended)
        return running

    def _ended(self, running: asyncio.Task[Any]) -> None:
        self._running.discard(running)
        if not running.cancelled():
            running.exception()  # read here: where the handler is gone, nobody else does

    def open_tokens(self, fence: int) -> list[str]:
        """Name the reservations of an attempt whose call is in the air in this process."""
        return sorted(self._open.get(fence, ()))

    def in_the_air(self, fence: int, token: str) -> None:
        """Note that a call has begun."""
        self._open.setdefault(fence, set()).add(token)

    def landed(self, fence: int, token: str) -> None:
        """Note that a call has ended, and what is known of it is recorded."""
        open_ = self._open.get(fence, set())
        open_.discard(token)
        if not open_:
            self._open.pop(fence, None)

    async def close(self) -> None:
        """Give calls in the air some time to be answered and recorded, then let go: they stay reserved."""
        if self._running:
            await asyncio.wait(list(self._running), timeout=self._close_seconds)
        left = list(self._running)
        for running in left:
            running.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        self.threads.close()


class _One:
    """One effect on its way. Once it is `abandoned` by its handler, what was not called yet is not called any more."""

    def __init__(
        self,
        effects: Effects,
        attempt: Attempt,
        effect_type: str,
        key: str,
        call: Callable[..., Any],
        args: tuple[Any, ...],
        reconcile: Callable[..., Any] | None,
        terms: Terms,
    ) -> None:
        self._effects = effects
        self._attempt = attempt
        self._type = effect_type
        self._key = key
        self._call = call
        self._args = args
        self._reconcile = reconcile
        self._terms = terms
        self._fingerprint = fingerprint_of(effect_type, args)
        self._idempotency_key = idempotency_key_of(attempt.tenant_id, key)
        self.abandoned = False

    async def run(self, before: asyncio.Task[Any] | None) -> str | None:
        """Go from the reservation to the confirmed id."""
        if before is not None:
            await asyncio.wait((before,))
        current_effect_key.set(self._idempotency_key)
        reconciled: str | None = None
        for _ in range(_ROUNDS):
            asked_at = _now()
            match await self._effects.desk.ask(self._attempt, self._asking(reconciled)):
                case Happened(external_id):
                    return external_id
                case Later(seconds, why):
                    raise Snoozed(seconds, why, f"{self._type}: an earlier call may still be answered")
                case Question(effect_id, token):
                    happened, external_id = await self._ask_outside()
                    if happened:
                        await self._end(effect_id, token, EffectState.CONFIRMED, external_id)
                        return external_id
                    reconciled = token
                case Granted(effect_id, token, within_seconds):
                    # Counted from before the question, so that this deadline lies before the database's own.
                    try:
                        return await self._called(effect_id, token, asked_at + within_seconds)
                    except TooLate:
                        continue
        raise Snoozed(1.0, "effect_contended", f"{self._type}: no time was left for the call, or others were quicker")

    def _asking(self, reconciled: str | None) -> Ask:
        return Ask(
            self._type,
            self._key,
            self._fingerprint,
            self._terms.call_timeout_seconds,
            self._terms.honours_key_for_seconds,
            self._terms.has_reconcile,
            reconciled,
            self._effects.open_tokens(self._attempt.fence),
        )

    async def _end(self, effect_id: str, token: str, state: EffectState, external_id: str | None = None) -> None:
        await self._effects.desk.end(self._type, Ended(effect_id, token, state, external_id))

    async def _called(self, effect_id: str, token: str, deadline: float) -> str | None:
        """Call, wait for the answer up to the deadline, and record what is known.

        Raises what the call raises, or CallTimedOut; NotSent where the handler is gone already.
        """
        if self.abandoned:
            await self._end(effect_id, token, EffectState.NOT_SENT)
            raise NotSent("the attempt was interrupted before the call")
        self._effects.in_the_air(self._attempt.fence, token)
        calling, may_be_stopped = self._started(self._call, self._args, deadline)
        recording = self._effects.track(self._recorded(calling, effect_id, token))
        await asyncio.wait((recording,), timeout=max(0.0, deadline - _now()))
        if not calling.done() and may_be_stopped:
            # It gets the chance to end in order; it may also have been answered in this very moment.
            calling.cancel()
            await asyncio.wait((calling,), timeout=1.0)
        if not calling.done() or calling.cancelled():
            raise CallTimedOut(f"the call did not answer within {self._terms.call_timeout_seconds:g} seconds")
        return await recording

    async def _recorded(self, calling: "asyncio.Future[Any]", effect_id: str, token: str) -> str | None:
        """Record how a call ends, however late: a thread cannot be stopped, and what it brings home counts."""
        try:
            returned = await calling
        except BaseException as error:
            if was_not_sent(error):
                await self._end(effect_id, token, EffectState.NOT_SENT)
            elif isinstance(error, Exception) and not self._terms.has_reconcile:
                # Nobody knows what came of it, but it is over. Whoever can be asked may need time until it shows; a key
                # that is honoured, and a person, do not.
                await self._end(effect_id, token, EffectState.RESERVED)
            raise
        else:
            external_id = external_id_of(returned)
            if external_id is None and returned is not None:
                event(log, "effect_id_is_no_text", level=logging.WARNING, effect_id=effect_id)
            await self._end(effect_id, token, EffectState.CONFIRMED, external_id)
            return external_id
        finally:
            self._effects.landed(self._attempt.fence, token)

    def _started(
        self, function: Callable[..., Any], args: tuple[Any, ...], deadline: float
    ) -> "tuple[asyncio.Task[Any], bool]":
        """Start a function of the handler's with its key: a coroutine function on the loop, a plain one in a thread.

        Also tells whether a cancel stops it.
        """
        keyed = {"idempotency_key": self._idempotency_key} if _wants_key(function) else {}
        if inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__):
            return asyncio.create_task(_in_time(function, args, keyed, deadline)), True
        return asyncio.create_task(self._in_thread(function, args, keyed, deadline)), False

    async def _in_thread(
        self, function: Callable[..., Any], args: tuple[Any, ...], keyed: dict[str, str], deadline: float
    ) -> Any:
        """Call a plain function in a thread; where it gives something to wait for, that is awaited here, in time."""
        run = functools.partial(_plainly, function, args, keyed, deadline)
        returned = await self._effects.threads.call(contextvars.copy_context().run, run)
        if not inspect.isawaitable(returned):
            return returned
        left = deadline - _now()
        if left <= 0:
            if inspect.iscoroutine(returned):
                returned.close()
            raise TooLate("the time for the call was over before it began", after_seconds=1.0)
        return await asyncio.wait_for(returned, left)

    async def _ask_outside(self) -> tuple[bool, str | None]:
        """Ask the handler's `reconcile` whether it happened, and as what."""
        assert self._reconcile is not None  # noqa: S101 - the desk asks only where there is one
        seconds = self._terms.call_timeout_seconds
        asking, _ = self._started(self._reconcile, (self._key,), _now() + seconds)
        await asyncio.wait((asking,), timeout=seconds)
        if not asking.done():
            asking.cancel()
            raise CallTimedOut(f"reconcile did not answer within {seconds:g} seconds")
        answer = asking.result()
        if answer is None or answer is False:
            return False, None
        return True, external_id_of(answer)


async def _in_time(function: Callable[..., Any], args: tuple[Any, ...], keyed: dict[str, str], deadline: float) -> Any:
    _check(deadline)
    return await function(*args, **keyed)


def _plainly(function: Callable[..., Any], args: tuple[Any, ...], keyed: dict[str, str], deadline: float) -> Any:
    """Call in a thread. The deadline is looked at here, since the thread may have come late to its turn."""
    _check(deadline)
    return function(*args, **keyed)


def _check(deadline: float) -> None:
    if _now() >= deadline:
        raise TooLate("the time for the call was over before it began", after_seconds=1.0)


def _wants_key(function: Callable[..., Any]) -> bool:
    try:
        return _known_to_want_key(function)
    except TypeError:  # not hashable
        return _has_key_parameter(function)


def _has_key_parameter(function: Callable[..., Any]) -> bool:
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return False
    named = parameters.get("idempotency_key")
    return named is not None and named.kind in (named.KEYWORD_ONLY, named.POSITIONAL_OR_KEYWORD)


_known_to_want_key = functools.lru_cache(maxsize=1000)(_has_key_parameter)
