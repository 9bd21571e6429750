"""Calls of dependencies within their limits, and what came of them: `ctx.dependency(name)`.

A worker asks for slices of a dependency's limits, not per call: a task per dependency in use renews them, reports how
calls ended, and hears whether it is open or closed. A call without a permit in time gives its worker back (`Snoozed`),
and no attempt is spent.
"""

import asyncio
import contextlib
import logging
import secrets

from app.domain.breaker import Phase
from app.domain.errors import Snoozed
from app.domain.failure import Failure
from app.runtime import Runtime
from app.services.policies import follow
from app.store import dependencies as store
from app.telemetry.logs import event
from workers.dependency_call import DependencyCall
from workers.dependency_gate import DependencyGate, Permit

log = logging.getLogger("despacho.worker")
CLOSED = "dependency_closed"
LIMIT = "dependency_limit"
_APART_SECONDS = 0.05
_LEAST_SNOOZE_SECONDS = 0.5
_POLICY_SECONDS = 5.0


class Dependencies:
    """The dependencies that one process calls. Idle ones cost nothing."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._settings = runtime.settings.dependencies
        self._worker_id = f"{runtime.name}.{secrets.token_hex(6)}"
        self._gates: dict[str, DependencyGate] = {}
        self._wakes: dict[str, asyncio.Event] = {}
        self._renewing: dict[str, asyncio.Task[None]] = {}
        self._policy_read_at = float("-inf")

    def call(
        self,
        name: str,
        *,
        priority_class: str,
        estimated_tokens: float = 0,
        attempt_timeout_seconds: float | None = None,
    ) -> DependencyCall:
        """Make one call of a dependency: `async with dependencies.call("llm", priority_class=…) as call:`.

        How the block ends is recorded; only failures that speak of the dependency count against it. Entering raises
        Snoozed (`dependency_closed`, `dependency_limit`) when there is no permit within a short wait. Leaving raises
        Snoozed in place of such a failure while the dependency is known to be down: the task learned nothing new, and
        its attempt is not spent.
        """
        return DependencyCall(self, name, priority_class, estimated_tokens, attempt_timeout_seconds)

    async def close(self) -> None:
        """Give every slice back."""
        renewing = list(self._renewing.values())
        for task in renewing:
            task.cancel()
        await asyncio.gather(*renewing, return_exceptions=True)
        if self._gates:
            with contextlib.suppress(Exception):  # they expire by themselves
                await store.forget_worker(self._runtime.database, self._worker_id)

    async def enter(self, name: str, priority_class: str, estimated_tokens: float) -> Permit:
        """Wait for a permit, at most `wait_seconds`. Raises Snoozed."""
        gate = self._gate(name)
        loop = asyncio.get_running_loop()
        permit = gate.enter(priority_class, estimated_tokens, loop.time())
        if permit is None:
            if gate.has_slice(loop.time()) and gate.phase_now(loop.time()) is Phase.OPEN:
                raise self._refused(name, gate)
            permit = await self._waited(name, gate, priority_class, estimated_tokens)
        self._runtime.metrics.dependency_in_use(name, gate.in_use)
        self._keep_renewing(name)
        return permit

    def leave(
        self, name: str, permit: Permit, *, failed: bool | None, retry_after_seconds: float, used_tokens: float | None
    ) -> None:
        """End a call; `failed` is None where its end says nothing of the dependency."""
        gate = self._gates[name]
        gate.leave(permit, used_tokens=used_tokens)
        if failed is not None:
            gate.record(permit, failed, retry_after_seconds)
            self._runtime.metrics.dependency_called(name, "failed" if failed else "ok")
        self._runtime.metrics.dependency_in_use(name, gate.in_use)
        gate.serve(asyncio.get_running_loop().time())
        if gate.has_failures:
            self._wakes[name].set()
        self._keep_renewing(name)

    def snooze_for(self, name: str, failure: Failure) -> Snoozed | None:
        """Tell how long a task whose call failed stays away, where that the dependency is down was known already."""
        gate = self._gates[name]
        now = asyncio.get_running_loop().time()
        if gate.phase_now(now) is Phase.CLOSED:
            return None
        left = max(gate.closed_until - now, failure.retry_after_seconds or 0.0, _LEAST_SNOOZE_SECONDS)
        return Snoozed(left + self._runtime.draw(), CLOSED, f"{name} failed again ({failure.error_type}).")

    async def _waited(self, name: str, gate: DependencyGate, priority_class: str, estimated_tokens: float) -> Permit:
        known = self._runtime.policy.current.by_name.get(priority_class)
        rank = known.rank if known is not None else len(self._runtime.policy.current.classes)
        waiter = gate.wait(rank, priority_class, estimated_tokens)
        self._wakes[name].set()
        self._keep_renewing(name)
        try:
            async with asyncio.timeout(self._settings.wait_seconds):
                permit = await asyncio.shield(waiter.permit)
        except TimeoutError:
            permit = waiter.permit.result() if waiter.permit.done() else None
            waiter.permit.cancel()
        except asyncio.CancelledError:
            if waiter.permit.done() and (late := waiter.permit.result()) is not None:
                gate.leave(late, used_tokens=0)
            waiter.permit.cancel()
            raise
        if permit is None:
            raise self._refused(name, gate)
        return permit

    def _refused(self, name: str, gate: DependencyGate) -> Snoozed:
        now = asyncio.get_running_loop().time()
        spread = self._runtime.draw()
        if gate.has_slice(now) and gate.phase_now(now) is not Phase.CLOSED:
            self._runtime.metrics.dependency_called(name, CLOSED)
            left = max(gate.closed_until - now, _LEAST_SNOOZE_SECONDS)
            return Snoozed(left + spread, CLOSED, f"{name} is closed: it failed, or asked for a pause.")
        self._runtime.metrics.dependency_called(name, LIMIT)
        left = max(gate.next_in_seconds, _LEAST_SNOOZE_SECONDS)
        return Snoozed(left * (1 + spread), LIMIT, f"Other calls use {name} up to its limits.")

    def _gate(self, name: str) -> DependencyGate:
        gate = self._gates.get(name)
        if gate is None:
            gate = self._gates[name] = DependencyGate(self._runtime.policy.current.dependency(name))
            self._wakes[name] = asyncio.Event()
        return gate

    # --- slices ---------------------------------------------------------------------------------------------------

    def _keep_renewing(self, name: str) -> None:
        task = self._renewing.get(name)
        if task is None or task.done():
            self._renewing[name] = asyncio.create_task(self._renew_forever(name), name=f"slices of {name}")

    async def _renew_forever(self, name: str) -> None:
        """Renew while there is something to do; then give everything back and end."""
        gate, wake = self._gates[name], self._wakes[name]
        idle = 0
        while idle < 2:
            wake.clear()
            is_idle = gate.is_idle
            await self._renew(gate, last=is_idle and idle == 1)
            idle = idle + 1 if is_idle else 0
            if idle == 2 and not gate.is_idle:
                idle = 0
                continue
            await asyncio.sleep(_APART_SECONDS)
            rest = self._settings.slice_seconds / (4 if gate.waiting else 2)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(0.0, rest - _APART_SECONDS)):
                    await wake.wait()

    async def _renew(self, gate: DependencyGate, *, last: bool) -> None:
        loop = asyncio.get_running_loop()
        await self._read_policy(loop.time())
        gate.dependency = self._runtime.policy.current.dependency(gate.dependency.name)
        asked_at = loop.time()
        waiting = gate.waiting
        asks, outcomes = gate.report()
        if last:
            asks = gate.rest(asks)
        report = store.Report(asks, outcomes, gate.probing, gate.in_use, waiting)
        kept_seconds = self._settings.slice_seconds
        try:
            renewal, database_now = await store.renew_slice(
                self._runtime.database, gate.dependency, self._worker_id, report, kept_seconds=kept_seconds
            )
        except Exception as error:
            gate.not_reported()
            event(log, "slice_not_renewed", level=logging.WARNING, dependency=gate.dependency.name, error=error)
            return
        if not last:
            gate.apply(renewal, database_now, asked_at=asked_at, kept_seconds=kept_seconds, now=loop.time())

    async def _read_policy(self, now: float) -> None:
        """Read the policy in force now and then: in a child process nobody else does while its task runs."""
        if now - self._policy_read_at < _POLICY_SECONDS:
            return
        self._policy_read_at = now
        try:
            async with self._runtime.database.transaction() as connection:
                await follow(self._runtime, connection)
        except Exception as error:  # the last policy that could be read goes on to rule
            event(log, "policy_not_read", level=logging.WARNING, error=error)
