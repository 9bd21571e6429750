"""The worker's side of the ledger: the gates before a reservation, the reservation, and what is known afterwards.

Reservations and ends are coalesced; the rare rest goes one by one.
"""

import asyncio
import json
import logging
import secrets
from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

import msgspec

from app.coalescer import Coalescer
from app.domain.effect_gate import EffectFacts, decide_gate
from app.domain.effects import (
    Call,
    EffectState,
    InDoubt,
    KeyReused,
    Reconcile,
    Skip,
    Snooze,
    Terms,
    decide,
)
from app.domain.errors import DeadLetter, OwnershipLost
from app.ids import mint
from app.runtime import Runtime
from app.store import effects
from app.store.database import is_data_error
from app.store.effects import Ended, Existing, Lost, Wanted
from app.telemetry.logs import event
from workers.attempt import Attempt

log = logging.getLogger("despacho.effects")
BATCH = 500
_ROUNDS = 20


class Ask(msgspec.Struct, frozen=True):
    """What a handler wants to do. `reconciled` is the reservation of which the outside system said: it did not happen.

    `own_open` are tokens of this attempt whose call is still in the air here.
    """

    effect_type: str
    key: str
    fingerprint: str
    call_timeout_seconds: float
    honours_key_for_seconds: float
    has_reconcile: bool
    reconciled: str | None = None
    own_open: list[str] = []


class Granted(msgspec.Struct, frozen=True, tag="granted"):
    """Reserved: call now, within so many seconds of having asked."""

    effect_id: str
    token: str
    within_seconds: float


class Happened(msgspec.Struct, frozen=True, tag="happened"):
    """It has happened; this is the id that is kept."""

    external_id: str | None


class Later(msgspec.Struct, frozen=True, tag="later"):
    """Come back after so many seconds."""

    seconds: float
    why: str


class Question(msgspec.Struct, frozen=True, tag="question"):
    """Ask the outside system whether it happened."""

    effect_id: str
    token: str


Verdict = Granted | Happened | Later | Question


class Approvals(Protocol):
    """Who knows whether a person approved of an action."""

    async def approved(self, attempt: Attempt, effect_type: str, key: str) -> bool:
        """Say whether this very action of this task is approved."""
        ...


class NoApprovals:
    """Where nobody can approve: nothing is."""

    async def approved(self, attempt: Attempt, effect_type: str, key: str) -> bool:
        """Say no."""
        return False


class Desk(Protocol):
    """The ledger as a handler's process sees it. Answers raise DeadLetter and OwnershipLost."""

    async def ask(self, attempt: Attempt, ask: Ask) -> Verdict:
        """Let a wanted effect through the gates and reserve it, or say what else follows."""
        ...

    async def end(self, effect_type: str, ended: Ended) -> None:
        """Record how the call of a reservation ended, however long that takes."""
        ...


class EffectDesk:
    """The desk on the database."""

    def __init__(self, runtime: Runtime, approvals: Approvals | None = None) -> None:
        self.approvals: Approvals = approvals or NoApprovals()
        self._runtime = runtime
        self._retry_for_seconds = runtime.settings.database.retry_for_seconds
        self._reserving: Coalescer[Wanted, effects.Answer] = Coalescer(
            self._reserve,
            max_items=BATCH,
            splits_on=is_data_error,
            observe=lambda size: runtime.metrics.batch_flushed("effect_reserve", size),
        )
        self._ending: Coalescer[Ended, None] = Coalescer(
            self._end,
            max_items=BATCH,
            splits_on=is_data_error,
            observe=lambda size: runtime.metrics.batch_flushed("effect_end", size),
        )

    async def ask(self, attempt: Attempt, ask: Ask) -> Verdict:
        """Let a wanted effect through the gates and reserve it, or say what else follows.

        Raises DeadLetter: `effect_not_declared`, `effect_forbidden`, `approval_required`, `effect_key_reused`,
        `effect_in_doubt`; OwnershipLost when the task is somebody else's; DatabaseUnavailable.
        """
        await self._pass_gates(attempt, ask)
        terms = Terms(ask.call_timeout_seconds, ask.honours_key_for_seconds, ask.has_reconcile)
        for _ in range(_ROUNDS):
            wanted = _wanted(attempt, ask)
            answer = await self._reserving.submit(wanted)
            match answer:
                case str(effect_id):
                    return self._told("reserved", ask, Granted(effect_id, wanted.token, ask.call_timeout_seconds))
                case Lost():
                    raise OwnershipLost
                case Existing():
                    verdict = await self._about(attempt, ask, terms, wanted, answer)
                    if verdict is not None:
                        return verdict
        # Each round somebody else was quicker.
        return self._told("snoozed", ask, Later(1.0, "effect_contended"))

    async def end(self, effect_type: str, ended: Ended) -> None:
        """Record how the call of a reservation ended, for as long as the database is away."""
        while True:
            try:
                await self._ending.submit(ended)
            except Exception as error:
                event(log, "effect_end_not_recorded", level=logging.WARNING, error=error)
                await asyncio.sleep(0.05 + 0.2 * self._runtime.draw())
            else:
                break
        outcome = "unanswered" if ended.state is EffectState.RESERVED else ended.state.value
        self._runtime.metrics.effects(effect_type, outcome)

    async def _pass_gates(self, attempt: Attempt, ask: Ask) -> None:
        spec = attempt.spec
        if spec.effects is not None and ask.effect_type not in spec.effects:
            self._runtime.metrics.effects(ask.effect_type, "not_declared")
            raise DeadLetter("effect_not_declared", f"{spec.name} does not declare effects of type {ask.effect_type}")
        policy = self._runtime.policy.current
        if policy.effects:
            now = self._runtime.now()
            facts = EffectFacts(ask.effect_type, attempt.tenant_id, spec, attempt.priority_class, attempt.number, now)
            if (refused := decide_gate(policy, facts)) is not None:
                detail = {
                    "type": ask.effect_type,
                    "rule": refused.reason_code,
                    "policy_version": refused.policy_version,
                }
                await self._refuse(attempt, "forbidden", detail)
                raise DeadLetter(
                    "effect_forbidden", f"rule {refused.reason_code} of the policy allows no {ask.effect_type} here"
                )
        if ask.effect_type in spec.destructive and not await self.approvals.approved(attempt, ask.effect_type, ask.key):
            await self._refuse(attempt, "approval_required", {"type": ask.effect_type})
            raise DeadLetter("approval_required", f"{ask.effect_type} is destructive and nobody has approved of it")

    async def _refuse(self, attempt: Attempt, reason: str, detail: dict[str, str]) -> None:
        self._runtime.metrics.effects(detail["type"], reason)
        await effects.tell(
            self._runtime.database,
            task_id=attempt.task_id,
            fence=attempt.fence,
            reason=reason,
            actor="policy",
            detail=json.dumps(detail),
            retry_for_seconds=self._retry_for_seconds,
        )

    async def _about(self, attempt: Attempt, ask: Ask, terms: Terms, wanted: Wanted, held: Existing) -> Verdict | None:
        """Say what follows for a key that exists; None when it changed meanwhile."""
        found = held.found
        if held.fence == attempt.fence and held.token not in ask.own_open:
            # Of an earlier call of this very attempt, which has ended: nobody is in the air.
            found = replace(found, alive=False)
        match decide(found, ask.fingerprint, held.now, terms, answered_no=ask.reconciled == held.token):
            case Skip(external_id):
                return self._told("skipped", ask, Happened(external_id))
            case Snooze(seconds, why):
                return self._told("snoozed", ask, Later(seconds, why))
            case Reconcile():
                return self._told("asked", ask, Question(held.effect_id, held.token))
            case KeyReused():
                self._runtime.metrics.effects(ask.effect_type, "key_reused")
                raise DeadLetter(
                    "effect_key_reused",
                    f"the key of this {ask.effect_type} belongs to {held.effect_id}, which has another type or other "
                    "arguments: let the key name all that makes the effect the one it is",
                )
            case InDoubt():
                await self._doubt(attempt, ask, held)
                raise DeadLetter(
                    "effect_in_doubt",
                    f"nobody can tell whether {held.effect_id} ({ask.effect_type}) happened: look outside, resolve it, "
                    "and the task goes on",
                )
            case Call(seconds):
                wanted = msgspec.structs.replace(wanted, call_seconds=seconds)
                if await effects.take_over(
                    self._runtime.database, wanted, held, retry_for_seconds=self._retry_for_seconds
                ):
                    return self._told("reserved_again", ask, Granted(held.effect_id, wanted.token, seconds))
                return None

    async def _doubt(self, attempt: Attempt, ask: Ask, held: Existing) -> None:
        self._runtime.metrics.effects(ask.effect_type, "in_doubt")
        await effects.doubt(
            self._runtime.database,
            held,
            task_id=attempt.task_id,
            fence=attempt.fence,
            worker_id=attempt.worker_id,
            retry_for_seconds=self._retry_for_seconds,
        )

    def _told(self, outcome: str, ask: Ask, verdict: Verdict) -> Verdict:
        self._runtime.metrics.effects(ask.effect_type, outcome)
        return verdict

    async def _reserve(self, wanted: Sequence[Wanted]) -> list[effects.Answer]:
        return await effects.reserve(self._runtime.database, wanted, retry_for_seconds=self._retry_for_seconds)

    async def _end(self, ended: Sequence[Ended]) -> list[None]:
        await effects.end(self._runtime.database, ended, retry_for_seconds=self._retry_for_seconds)
        return [None] * len(ended)


def _wanted(attempt: Attempt, ask: Ask) -> Wanted:
    return Wanted(
        effect_id=mint("effect"),
        token=secrets.token_hex(8),
        tenant_id=attempt.tenant_id,
        key=ask.key,
        effect_type=ask.effect_type,
        fingerprint=ask.fingerprint,
        task_id=attempt.task_id,
        task_type=attempt.spec.name,
        fence=attempt.fence,
        attempt=attempt.number,
        call_seconds=ask.call_timeout_seconds,
        traceparent=attempt.traceparent,
    )
