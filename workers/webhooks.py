"""Delivers events of ended tasks while this process leads: many at once, few to one host, none for ever.

take (leased, by turns) → sign → POST → record, in batches. Who dies between POST and record loses the lease, and the
event goes out again under the same id: at least once.
"""

import asyncio
import contextlib
import json
import logging
import time
from collections import Counter
from collections.abc import Mapping, Sequence

from app.coalescer import Coalescer
from app.domain.retry import RetryPolicy
from app.domain.webhooks import Ended, Next, Try, WebhookState, body_of, decide, error_type_of
from app.outbound.signatures import sign
from app.runtime import Runtime
from app.services.webhook_secrets import signing_secrets
from app.store import webhooks as store
from app.store.database import is_data_error, is_transient
from app.store.hot import HotRow
from app.store.webhooks import Room, TryRecord
from app.telemetry.logs import event
from workers.webhook_sender import Sender, WebhookSender

log = logging.getLogger("despacho.webhooks")

POLL_SECONDS = 0.2
COUNT_SECONDS = 5.0
LEASE_MARGIN_SECONDS = 5.0
_GATHER_SECONDS = 0.01
_DRAIN_SECONDS = 1.0
_BACKOFF_FACTOR = 4.0
_MOST_SILENT = 1000


class WebhookLoop:
    """The deliveries of one process; they rest while `active(False)` holds, as it does at the start."""

    def __init__(self, runtime: Runtime, sender: Sender | None = None) -> None:
        self._runtime = runtime
        self._settings = runtime.settings.webhooks
        self._policy = RetryPolicy(
            self._settings.backoff_base_seconds, self._settings.backoff_cap_seconds, _BACKOFF_FACTOR
        )
        self._sender = sender
        self._recording: Coalescer[TryRecord, bool] = Coalescer(self._record, max_items=200, splits_on=is_data_error)
        self._leading = False
        self._woken = asyncio.Event()
        self._sending: set[asyncio.Task[None]] = set()
        self._hosts: Counter[str] = Counter()
        self._silent: set[str] = set()
        self._tenants: Counter[str] = Counter()
        self._counted_at = 0.0

    def active(self, leading: bool) -> None:
        """Say whether this process leads; tries that are on their way are finished."""
        self._leading = leading
        self._woken.set()
        if not leading:
            self._counted_at = 0.0
            self._runtime.metrics.webhooks_waiting({})

    async def run(self, stop: asyncio.Event) -> None:
        """Deliver until `stop` is set; what is on its way then has a moment to end, and loses its lease otherwise."""
        stopping = asyncio.create_task(self._wake_when(stop))
        try:
            while not stop.is_set():
                started = await self._turn() if self._leading else 0
                await self._rest(started)
        finally:
            stopping.cancel()
            await self.close()

    async def run_once(self) -> int:
        """Take what is due, try to deliver it, and record how that went; returns how many tries were made."""
        started = await self._start_due()
        while self._sending:
            await asyncio.wait(self._sending)
        return started

    async def close(self) -> None:
        """Give what is on its way a moment, then end it and close the connections."""
        if self._sending:
            await asyncio.wait(self._sending, timeout=_DRAIN_SECONDS)
        for task in list(self._sending):
            task.cancel()
        await asyncio.gather(*self._sending, return_exceptions=True)
        if self._sender is not None:
            await self._sender.close()
            self._sender = None

    async def _turn(self) -> int:
        try:
            await self._count()
            return await self._start_due()
        except Exception as error:
            level = logging.WARNING if is_transient(error) else logging.ERROR
            event(log, "webhooks_not_taken", level=level, error=error)
            return 0

    async def _rest(self, started: int) -> None:
        """Wait for the next look: after a turn that found something, until one of those on their way has ended."""
        if started:
            await asyncio.sleep(_GATHER_SECONDS)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(POLL_SECONDS if self._leading else None):
                await self._woken.wait()
        self._woken.clear()

    async def _wake_when(self, stop: asyncio.Event) -> None:
        await stop.wait()
        self._woken.set()

    async def _count(self) -> None:
        if time.monotonic() - self._counted_at < COUNT_SECONDS and self._counted_at:
            return
        self._counted_at = time.monotonic()
        counts = await store.waiting(self._runtime.database)
        if self._leading:
            self._runtime.metrics.webhooks_waiting(counts)

    async def _start_due(self) -> int:
        settings = self._settings
        free = settings.max_in_flight - len(self._sending)
        if free <= 0:
            return 0
        per_host = settings.max_in_flight_per_host
        # A host that did not answer last holds a single place, so that many of them leave room for the others.
        hosts = self._hosts + Counter(dict.fromkeys(self._silent, per_host - 1))
        room = Room(free, per_host, settings.max_in_flight_per_tenant, hosts, self._tenants)
        rows = await store.take(
            self._runtime.database,
            room,
            classes=[one.name for one in self._runtime.policy.current.classes],
            lease_seconds=settings.try_timeout_seconds + LEASE_MARGIN_SECONDS,
            result_max_bytes=settings.result_max_bytes,
        )
        if rows:
            secrets = await signing_secrets(self._runtime, {row.tenant_id for row in rows})
            for row in rows:
                self._start(row, secrets[row.tenant_id])
        return len(rows)

    def _start(self, row: HotRow, secrets: Sequence[str]) -> None:
        host, tenant_id = row.host, row.tenant_id
        self._hosts[host] += 1
        self._tenants[tenant_id] += 1
        sending = asyncio.create_task(self._deliver(row, secrets), name=f"webhook {row.webhook_id}")
        self._sending.add(sending)

        def ended(task: asyncio.Task[None]) -> None:
            self._sending.discard(task)
            for counts, key in ((self._hosts, host), (self._tenants, tenant_id)):
                counts[key] -= 1
                if counts[key] <= 0:
                    del counts[key]
            self._woken.set()

        sending.add_done_callback(ended)

    async def _deliver(self, row: HotRow, secrets: Sequence[str]) -> None:
        if row.callback_url is None:
            # Its task was removed a moment ago, and it is gone with it.
            return
        began = time.monotonic()
        try:
            answer = await self._try(row, secrets)
        except Exception as error:
            event(log, "webhook_not_sent", level=logging.ERROR, error=error, webhook_id=row.webhook_id)
            answer = Try(None, "not_sendable")
        seconds = time.monotonic() - began
        self._note(row.host, answer)
        following = decide(
            answer, row.tries - row.tries_forgiven, self._settings.max_tries, self._policy, self._runtime.draw()
        )
        try:
            mine = await self._recording.submit(_record_of(row, answer, following, seconds))
        except Exception as error:
            # The lease runs out, and it is tried again.
            event(log, "webhook_try_not_recorded", level=logging.WARNING, error=error, webhook_id=row.webhook_id)
        else:
            self._tell(row, answer, following, seconds, mine)

    async def _try(self, row: HotRow, secrets: Sequence[str]) -> Try:
        if self._sender is None:
            self._sender = WebhookSender(self._runtime)
        body = body_of(_ended(row, self._link(row.task_id)))
        now = int(self._runtime.now().timestamp())
        headers = {"Content-Type": "application/json", **sign(secrets, row.webhook_id, now, body)}
        if row.traceparent is not None:
            headers["traceparent"] = row.traceparent
        return await self._sender.send(row.callback_url, headers, body)

    def _note(self, host: str, answer: Try) -> None:
        if answer.status_code is not None:
            self._silent.discard(host)
        elif len(self._silent) < _MOST_SILENT:
            self._silent.add(host)

    def _link(self, task_id: str) -> str:
        return f"{(self._runtime.settings.api.public_url or '').rstrip('/')}/v1/tasks/{task_id}"

    async def _record(self, tries: Sequence[TryRecord]) -> Sequence[bool]:
        database = self._runtime.database
        mine = await store.record(database, tries, retry_for_seconds=database.settings.retry_for_seconds)
        return [one.webhook_id in mine for one in tries]

    def _tell(self, row: HotRow, answer: Try, following: Next, seconds: float, mine: bool) -> None:
        outcome = "retried" if following.state is WebhookState.WAITING else following.state.value
        self._runtime.metrics.webhook_tried(row.priority_class, outcome, seconds)
        if not mine:
            return
        if following.state is WebhookState.DELIVERED:
            since_end = (self._runtime.now() - row.ended_at).total_seconds()
            self._runtime.metrics.webhook_delivered(row.priority_class, max(0.0, since_end))
        elif following.state is WebhookState.FAILED:
            event(
                log,
                "webhook_failed",
                level=logging.WARNING,
                webhook_id=row.webhook_id,
                task_id=row.task_id,
                tenant_id=row.tenant_id,
                tries=row.tries,
                status_code=answer.status_code,
                error_type=error_type_of(answer),
            )


def _record_of(row: HotRow, answer: Try, following: Next, seconds: float) -> TryRecord:
    detail: Mapping[str, object] = {
        "webhook_id": row.webhook_id,
        "tries": row.tries,
        "status_code": answer.status_code,
        "error_type": error_type_of(answer),
    }
    return TryRecord(
        webhook_id=row.webhook_id,
        number=row.tries,
        state=following.state,
        after_seconds=following.after_seconds,
        seconds=seconds,
        status_code=answer.status_code,
        error_type=error_type_of(answer),
        detail=json.dumps(detail),
    )


def _ended(row: HotRow, link: str) -> Ended:
    return Ended(
        task_id=row.task_id,
        event=row.event,
        tenant_id=row.tenant_id,
        type=row.task_type,
        group=row.task_group,
        source_ref=row.source_ref,
        source_version=row.source_version,
        attempts=row.attempts,
        submitted_at=row.submitted_at,
        ended_at=row.ended_at,
        error_type=row.error_type,
        error_message=row.error_message,
        error_retryable=row.error_retryable,
        result=row.result,
        link=link,
    )
