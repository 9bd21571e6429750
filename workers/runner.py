"""Running one attempt: claimed task in, settlement out. Reads top to bottom; knows no broker and writes nothing.

Handlers never run inside a broker callback: a dying channel must not cancel them. Whatever a handler raises, also what
cannot be printed, becomes a recorded failure.
"""

import asyncio
import contextvars
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from app.domain.errors import Rejected, Snoozed, Suspended, Yielded, yielded_in
from app.domain.failure import Failure, classify
from app.domain.lifecycle import Move
from app.domain.outcome import Settlement
from app.domain.retry import RetryAfter, RetryPolicy, decide
from app.domain.task_types import Executor, TaskTypeSpec
from app.ids import mint
from app.store.flights import Claimed
from app.task_modules import Registry, TaskType
from app.telemetry.logs import redacted
from workers.blocking_context import BlockingTaskContext
from workers.children import ChildCrashed, ChildFailed, Children
from workers.context import ReadInput
from workers.run import Interrupt, Run
from workers.threads import HandlerThreads

_MESSAGE_CHARACTERS = 2000


def _fits(text: str, most_bytes: int) -> bool:
    """Say whether a text has at most so many bytes in UTF-8; a short one is not encoded to know it."""
    return 4 * len(text) <= most_bytes or (len(text) <= most_bytes and len(text.encode()) <= most_bytes)


class InvalidResult(Exception):
    """What the handler returned cannot be stored as JSON."""


class Runner:
    """Runs attempts on the loop, in threads or in child processes; `draw` gives the jitter in [0, 1)."""

    def __init__(
        self,
        registry: Registry,
        children: Children,
        *,
        read_input: ReadInput,
        draw: Callable[[], float],
        max_result_bytes: int,
    ) -> None:
        self._registry = registry
        self._children = children
        self._read_input = read_input
        self._draw = draw
        self._max_result_bytes = max_result_bytes
        self._threads = HandlerThreads()

    def close(self) -> None:
        """Let idle threads end; handlers that still run are left to end with the process."""
        self._threads.close()

    def spec_of(self, name: str) -> TaskTypeSpec:
        """Give the declared properties of a type; of one that this worker does not have, the defaults."""
        known = self._registry.get(name)
        return known.spec if known is not None else TaskTypeSpec(name)

    async def run(self, run: Run) -> Settlement | None:
        """Run the handler to its end and say what shall be written; None when the attempt is no longer ours."""
        task_type = self._registry.get(run.claimed.type)
        if task_type is None:
            return self._failed(
                run.claimed, None, Failure("unknown_handler", "this worker has no such task type", False)
            )
        try:
            result = await self._execute(task_type, run)
        except BaseException as error:
            return self._ended_badly(run, task_type, error)
        return self._finished(run, task_type, result)

    def interrupted(self, run: Run) -> Settlement | None:
        """Say what shall be written for an attempt that was interrupted, whatever its handler does meanwhile."""
        claimed = run.claimed
        match run.interrupt:
            case Interrupt.CANCEL:
                return Settlement(claimed.task_id, claimed.fence, Move.CANCEL, "cancelled", spent=False)
            case Interrupt.SHUTDOWN:
                return Settlement(claimed.task_id, claimed.fence, Move.RETURN, "returned", spent=False)
            case Interrupt.TIMEOUT:
                message = f"the handler did not end within {claimed.timeout_seconds:g} seconds"
                return self._failed(claimed, self._registry.get(claimed.type), Failure("timeout", message, True))
            case Interrupt.LOST:
                return None
            case None:  # the handler cancelled its own task
                cancelled = classify(asyncio.CancelledError(), datetime.now(UTC))
                return self._failed(claimed, self._registry.get(claimed.type), cancelled)

    def unstorable(self, run: Run) -> Settlement:
        """Say what shall be written in place of a settlement that the database refuses to store."""
        failure = Failure("invalid_result", "the result or the error text cannot be stored as text", False)
        return self._failed(run.claimed, self._registry.get(run.claimed.type), failure)

    async def _execute(self, task_type: TaskType, run: Run) -> str:
        claimed = run.claimed
        text: str | bytes | None = claimed.input
        if claimed.input_ref is not None:
            text, _ = await self._read_input(claimed.tenant_id, claimed.input_ref)
        await run.context.load()
        if claimed.crashes > 0 or task_type.spec.executor is Executor.PROCESS:
            # A suspect runs alone in a fresh process, so that only its own crash is held against it.
            return await self._children.run(run, text, fresh=claimed.crashes > 0)
        value = task_type.validate_input(text)
        arguments = (value,) if task_type.takes_input else ()
        if task_type.spec.executor is Executor.ASYNC:
            returned = await task_type.handler(run.context, *arguments)
        else:
            returned = await self._in_thread(task_type, run, arguments)
        try:
            return task_type.encode_result(returned)
        except Exception as error:
            raise InvalidResult(f"what the handler returned is not JSON ({type(error).__name__})") from error

    async def _in_thread(self, task_type: TaskType, run: Run, arguments: tuple[Any, ...]) -> Any:
        """Run a plain handler in a thread, which cannot be interrupted.

        A cancel waits for its end, up to the timeout; any other interruption leaves the thread as the run's tail.
        """
        call = contextvars.copy_context().run
        blocking = BlockingTaskContext(run.context, asyncio.get_running_loop())
        future = self._threads.call(call, task_type.handler, blocking, *arguments)
        while True:
            try:
                return await asyncio.shield(future)
            except asyncio.CancelledError:
                if future.done() or run.interrupt is not Interrupt.CANCEL or run.overdue:
                    run.tail = future
                    raise

    def _finished(self, run: Run, task_type: TaskType, result: str) -> Settlement | None:
        claimed = run.claimed
        if run.interrupt is Interrupt.LOST:
            return None
        if not _fits(result, self._max_result_bytes):
            message = f"the result is larger than the {self._max_result_bytes} bytes that may be stored"
            return self._failed(claimed, task_type, Failure("invalid_result", message, False))
        return Settlement(
            claimed.task_id, claimed.fence, Move.FINISH, "done", result=result, cleared=claimed.crashes > 0
        )

    def _ended_badly(self, run: Run, task_type: TaskType, error: BaseException) -> Settlement | None:
        if run.interrupt is not None:
            return self.interrupted(run)
        if (how := yielded_in(error)) is not None:
            return self._yielded(run.claimed, how)
        match error:
            case ChildCrashed():
                return self._failed(run.claimed, task_type, Failure("worker_lost", str(error), True), crashed=True)
            case ChildFailed():
                failure = error.failure
            case InvalidResult():
                failure = Failure("invalid_result", str(error), False)
            case _:
                failure = classify(error, datetime.now(UTC))
        return self._failed(run.claimed, task_type, failure)

    def _yielded(self, claimed: Claimed, how: Yielded) -> Settlement | None:
        """Spell the settlement of a handler that gave its worker back: no failure, and no attempt spent."""
        cleared = claimed.crashes > 0
        match how:
            case Snoozed(after_seconds=seconds):
                return Settlement(
                    claimed.task_id,
                    claimed.fence,
                    Move.SNOOZE,
                    "snoozed",
                    spent=False,
                    cleared=cleared,
                    after_seconds=seconds,
                    error_type=how.why,
                    error_message=redacted(how.detail, _MESSAGE_CHARACTERS) or None,
                )
            case Suspended(approval_id=approval_id):
                return Settlement(
                    claimed.task_id,
                    claimed.fence,
                    Move.SUSPEND,
                    "suspended",
                    spent=False,
                    cleared=cleared,
                    approval_id=approval_id,
                )
            case Rejected(error_type=error_type, message=message):
                return Settlement(
                    claimed.task_id,
                    claimed.fence,
                    Move.REJECT,
                    "rejected",
                    spent=False,
                    cleared=cleared,
                    error_type=error_type,
                    error_message=redacted(message, _MESSAGE_CHARACTERS) or None,
                    error_retryable=False,
                )
            case _:
                return None

    def _failed(
        self, claimed: Claimed, task_type: TaskType | None, failure: Failure, *, crashed: bool = False
    ) -> Settlement:
        """Decide between another attempt and the dead letters, and spell the settlement."""
        backoff = RetryPolicy()
        if task_type is not None:
            backoff = RetryPolicy(task_type.spec.backoff_base_seconds, task_type.spec.backoff_cap_seconds)
        # A task that ends without taking its process along was an innocent neighbour: its crashes are forgiven.
        cleared = claimed.crashes > 0 and not crashed
        attempt = claimed.attempt - (claimed.crashes if cleared else 0)
        decision = decide(failure, max(1, attempt), claimed.max_attempts, backoff, self._draw())
        retries = isinstance(decision, RetryAfter)
        return Settlement(
            claimed.task_id,
            claimed.fence,
            Move.FAIL if retries else Move.DEAD_LETTER,
            "failed",
            error_type=redacted(failure.error_type, 100),
            error_message=redacted(failure.message, _MESSAGE_CHARACTERS),
            error_retryable=failure.retryable,
            after_seconds=decision.seconds if isinstance(decision, RetryAfter) else None,
            dead_letter_id=None if retries else mint("dead"),
            crashed=crashed,
            cleared=cleared,
        )
