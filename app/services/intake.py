"""Taking work in: limits, idempotency, preparation and one commit, for single tasks and for batches.

Same key and body again is answered with the task that is there, whatever has changed since: the quota, the time, the
policy. A refused submission does not use its key up.
"""

import asyncio
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass

from app.domain.scopes import Scope
from app.runtime import Runtime
from app.services.callers import Caller
from app.services.errors import InFlight, Invalid, QuotaExceeded, ServiceError
from app.services.inputs import check_refs, known_refs, unknown_refs
from app.services.quota import OpenTasksQuota
from app.services.rates import Rates, RateStanding
from app.services.submission import Submission, Submitter, prepare
from app.services.tenants import Tenant
from app.store.database import LockTimeout, is_data_error
from app.store.submissions import KeyReused, NewTask, Replayed, Stored, held_key


@dataclass(frozen=True, slots=True)
class Accepted:
    """A new task that is committed."""

    task: NewTask
    stored: Stored


@dataclass(frozen=True, slots=True)
class Repeated:
    """The submission was accepted before, as `task_id`."""

    task_id: str


Taken = Accepted | Repeated


def fingerprint(body: bytes) -> bytes:
    """Hash a body as canonical JSON: neither the order of keys nor the spelling of a number matters."""
    value = json.loads(body, parse_float=_number)
    canonical = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(canonical.encode()).digest()


def _number(text: str) -> float | int:
    value = float(text)
    return int(value) if value.is_integer() and abs(value) < 2**53 else value


class Intake:
    """The one way in for submissions of this process."""

    def __init__(self, runtime: Runtime, submitter: Submitter, rates: Rates) -> None:
        self._runtime = runtime
        self._submitter = submitter
        self._quota = OpenTasksQuota(runtime, submitter)
        self._rates = rates

    def pace(self, tenant: Tenant, wanted: int) -> tuple[int, RateStanding | None]:
        """Tell how many of `wanted` tasks the tenant's rate lets in now. Raises RateExceeded when none."""
        if tenant.submit_rate_per_second is None:
            return wanted, None
        return self._rates.take(tenant.facts.tenant_id, tenant.submit_rate_per_second, tenant.submit_burst, wanted)

    async def take(self, caller: Caller, tenant: Tenant, asked: Submission) -> Taken:
        """Accept one task or raise the refusal; returns after the commit."""
        try:
            task = prepare(self._runtime, tenant.facts, caller.subject, caller.may(Scope.PRIORITY_CLAIM), asked)
            if asked.input_ref is not None:
                await check_refs(self._runtime, tenant.facts.tenant_id, {"#/input_ref": asked.input_ref})
            return self._taken(task, await self._commit(tenant, task))
        except (Invalid, QuotaExceeded):
            known = await self._known(tenant, asked)
            if known is None:
                raise
            return known

    async def take_many(
        self, caller: Caller, tenant: Tenant, items: Sequence[Submission | ServiceError]
    ) -> list[Taken | ServiceError]:
        """Accept or refuse each item by itself, in one commit; items that were refused before stay as they are."""
        answers: list[Taken | ServiceError | None] = [one if isinstance(one, ServiceError) else None for one in items]
        prepared: list[tuple[int, NewTask]] = []
        may_claim = caller.may(Scope.PRIORITY_CLAIM)
        wanted = [one for one in items if isinstance(one, Submission)]
        refs = [one.input_ref for one in wanted if one.input_ref is not None]
        stored_refs = await known_refs(self._runtime, tenant.facts.tenant_id, refs)
        for position, asked in enumerate(items):
            if isinstance(asked, ServiceError):
                continue
            try:
                task = prepare(self._runtime, tenant.facts, caller.subject, may_claim, asked)
                if asked.input_ref is not None and asked.input_ref not in stored_refs:
                    raise unknown_refs()
            except Invalid as refusal:
                answers[position] = await self._known_or(tenant, asked, refusal)
            else:
                prepared.append((position, task))
        outcomes = await self._commit_many(tenant, [task for _, task in prepared])
        for (position, task), outcome in zip(prepared, outcomes, strict=True):
            asked = items[position]
            try:
                if isinstance(outcome, QuotaExceeded) and isinstance(asked, Submission):
                    answers[position] = await self._known_or(tenant, asked, outcome)
                else:
                    answers[position] = outcome if isinstance(outcome, ServiceError) else self._taken(task, outcome)
            except ServiceError as refusal:
                answers[position] = refusal
        return [one for one in answers if one is not None]

    async def _commit(self, tenant: Tenant, task: NewTask) -> Stored | Replayed | KeyReused:
        try:
            if tenant.facts.max_open_tasks is None:
                return await self._submitter.submit(task)
            admitted = await self._quota.submit(tenant.facts, task)
            if isinstance(admitted, QuotaExceeded):
                raise admitted
            return admitted
        except LockTimeout:
            raise _in_flight() from None
        except Exception as error:
            if not is_data_error(error):
                raise
            raise Invalid(detail="A value of the task cannot be stored.") from None

    async def _commit_many(
        self, tenant: Tenant, tasks: list[NewTask]
    ) -> list[Stored | Replayed | KeyReused | ServiceError]:
        if not tasks:
            return []
        try:
            if tenant.facts.max_open_tasks is not None:
                return list(await self._quota.submit_many(tenant.facts, tasks))
            return list(await self._submitter.submit_many(tasks))
        except LockTimeout:
            pass
        except Exception as error:
            if not is_data_error(error):
                raise
        # One of them holds the others up: each has its own answer. Those that were committed are found by their ids.
        return list(await asyncio.gather(*(self._committed(tenant, task) for task in tasks)))

    async def _committed(self, tenant: Tenant, task: NewTask) -> Stored | Replayed | KeyReused | ServiceError:
        try:
            return await self._commit(tenant, task)
        except ServiceError as refusal:
            return refusal

    async def _known(self, tenant: Tenant, asked: Submission) -> Repeated | None:
        """Find the task that this very submission made before, if its key is held."""
        if asked.idempotency_key is None or asked.endpoint is None:
            return None
        held = await held_key(self._runtime.database, tenant.facts.tenant_id, asked.endpoint, asked.idempotency_key)
        if held is None:
            return None
        if held.fingerprint != asked.fingerprint:
            raise _reused()
        return Repeated(held.task_id)

    async def _known_or(self, tenant: Tenant, asked: Submission, refusal: ServiceError) -> Repeated | ServiceError:
        try:
            return await self._known(tenant, asked) or refusal
        except ServiceError as reused:
            return reused

    def _taken(self, task: NewTask, outcome: Stored | Replayed | KeyReused) -> Taken:
        match outcome:
            case Replayed(task_id):
                return Repeated(task_id)
            case KeyReused():
                raise _reused()
            case Stored():
                return Accepted(task, outcome)


def _in_flight() -> InFlight:
    return InFlight("idempotency_in_flight", "A submission with this idempotency key is still being worked on.")


def _reused() -> Invalid:
    return Invalid(
        code="idempotency_key_reused", detail="The idempotency key was used before, for a submission with another body."
    )
