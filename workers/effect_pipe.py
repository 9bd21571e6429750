"""Effects of handlers in child processes: the call is made there, the ledger is kept by the worker."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from app.domain.effects import EffectState
from app.domain.errors import DeadLetter, OwnershipLost, Retry
from app.store.effects import Ended
from workers.attempt import Attempt
from workers.effect_desk import Ask, Granted, Verdict
from workers.effects import Effects

Exchange = Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]
"""Say something to the worker and wait for its answer."""


class PipedDesk:
    """The ledger as a child process sees it."""

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange

    async def ask(self, attempt: Attempt, ask: Ask) -> Verdict:
        """Ask the worker; raises what its desk raised."""
        match await self._exchange({"ask": msgspec.to_builtins(ask)}):
            case {"verdict": verdict}:
                told: Verdict = msgspec.convert(verdict, type=Verdict)
                return told
            case {"dead_letter": [error_type, message]}:
                raise DeadLetter(error_type, message)
            case {"lost": True}:
                raise OwnershipLost
            case _:
                raise Retry(message="the ledger of effects does not answer")

    async def end(self, effect_type: str, ended: Ended) -> None:
        """Tell the worker, which records it."""
        await self._exchange({"end": msgspec.to_builtins(ended), "type": effect_type})


async def answer(effects: Effects | None, attempt: Attempt, said: dict[str, Any]) -> dict[str, Any]:
    """Answer what a child said about an effect of this attempt, for the desk in this process.

    What was said is carried out also when nobody waits for it any more: a reservation that the child never hears of was
    not used, and what it said of a call is recorded.
    """
    if effects is None:
        return {}
    match said:
        case {"ask": asked}:
            return await _asked(effects, attempt, msgspec.convert(asked, type=Ask))
        case {"end": ended, "type": str(effect_type)}:
            await asyncio.shield(effects.track(effects.desk.end(effect_type, msgspec.convert(ended, type=Ended))))
    return {}


async def _asked(effects: Effects, attempt: Attempt, ask: Ask) -> dict[str, Any]:
    asking = effects.track(effects.desk.ask(attempt, ask))
    try:
        return {"verdict": msgspec.to_builtins(await asyncio.shield(asking))}
    except asyncio.CancelledError:
        effects.track(_unused(effects, asking, ask.effect_type))
        raise
    except DeadLetter as error:
        return {"dead_letter": [error.error_type, error.message]}
    except OwnershipLost:
        return {"lost": True}
    except Exception as error:
        return {"failed": type(error).__name__}


async def _unused(effects: Effects, asking: asyncio.Task[Verdict], effect_type: str) -> None:
    """Release a reservation that nobody was told of."""
    match await asking:
        case Granted(effect_id, token):
            await effects.desk.end(effect_type, Ended(effect_id, token, EffectState.NOT_SENT))
