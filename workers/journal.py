"""Steps and checkpoints: what must not be paid or done twice, kept where the task's next run finds it.

A frame cannot be suspended, so whatever interrupts a handler runs it again from the top. `Journal` is the facility of
one process and writes what arrives together in one statement; `Book` is what one attempt knows of its task's journal.
A task's first run reads nothing: before it there cannot be anything.
"""

import asyncio
import inspect
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from functools import lru_cache
from json import loads
from typing import Any

from pydantic import TypeAdapter

from app.coalescer import Coalescer
from app.domain.errors import DeadLetter, OwnershipLost, Snoozed
from app.domain.journal import NotJson, check_step_name, fingerprint, json_text
from app.runtime import Runtime
from app.store import journal as store
from app.store.database import DatabaseUnavailable, LockTimeout, is_data_error
from app.store.journal import Checkpoint, Kept, Step
from workers.attempt import Attempt
from workers.calls import invoke

_STATEMENT_BYTES = 8 * 1024 * 1024
_REMEMBERED_BYTES = 1024 * 1024
_MOST_WRITTEN, _MOST_READ = 200, 20
Key = tuple[str, bytes]
_inside: ContextVar[frozenset[tuple[int, Key]]] = ContextVar("steps that this call is part of", default=frozenset())


class Book:
    """One attempt's knowledge of its task's journal: complete, since nobody else can write to it meanwhile.

    `steps` has the values of the first ones, up to a size together; the others are read when they are asked for.
    `over` says that the attempt was told to end: a thread, which nothing can interrupt, ends at its next step then.
    """

    __slots__ = ("begun", "over", "owner", "size_bytes", "state", "state_turn", "steps", "turns")

    def __init__(self, owner: Attempt) -> None:
        self.owner = owner
        self.over = False
        self.steps: dict[Key, str | None] = {}
        self.size_bytes = 0
        self.begun = 0
        self.turns: dict[Key, asyncio.Lock] = {}
        self.state: str | None = None
        self.state_turn = 0

    def take_in(self, kept: Sequence[Kept]) -> None:
        """Enter what earlier runs left."""
        for one in kept:
            if one.name is None or one.fingerprint is None:
                self.state = one.value
            else:
                self.steps[one.name, one.fingerprint] = one.value
                self.size_bytes += one.size_bytes

    def as_message(self) -> dict[str, Any] | None:
        """Spell what is known as JSON values, for a child process; None where nothing is."""
        if not self.steps and self.state is None:
            return None
        steps = [[name, digest.hex(), value] for (name, digest), value in self.steps.items()]
        return {"steps": steps, "size_bytes": self.size_bytes, "state": self.state}

    def take_in_message(self, message: Mapping[str, Any] | None) -> None:
        """Enter what `as_message` spelled."""
        if message is not None:
            self.steps = {(name, bytes.fromhex(digest)): value for name, digest, value in message["steps"]}
            self.size_bytes = message["size_bytes"]
            self.state = message["state"]


class Journal:
    """The journals of the tasks that run in this process."""

    def __init__(self, runtime: Runtime) -> None:
        self._database = runtime.database
        self._limits = runtime.settings.journal
        # What a call has cost is not given up while the lease may still be held.
        self._retry_for_seconds = max(
            runtime.settings.database.retry_for_seconds, runtime.settings.worker.lease_seconds
        )
        metrics = runtime.metrics

        def observed(name: str) -> Callable[[int], None]:
            return lambda size: metrics.batch_flushed(name, size)

        self._steps: Coalescer[Step, bool] = Coalescer(
            self._store, max_items=_MOST_WRITTEN, splits_on=_is_one_items_fault, observe=observed("step")
        )
        self._states: Coalescer[Checkpoint, bool] = Coalescer(
            self._save, max_items=_MOST_WRITTEN, splits_on=_is_one_items_fault, observe=observed("checkpoint")
        )
        self._loads: Coalescer[str, Sequence[Kept]] = Coalescer(
            self._load, max_items=_MOST_READ, splits_on=lambda _: False, observe=observed("journal")
        )

    async def load(self, book: Book) -> None:
        """Read what earlier runs of the task left; costs nothing on a first run.

        Raises Snoozed when the database stays away: no handler has run, so no attempt is spent.
        """
        if book.owner.dispatch == 1:
            return
        try:
            book.take_in(await self._loads.submit(book.owner.task_id))
        except DatabaseUnavailable:
            raise Snoozed(1.0, "database_unavailable", "the journal of the task cannot be read") from None

    # --- steps ---------------------------------------------------------------------------------------------------

    async def step(
        self, book: Book, name: str, call: Callable[..., Any], arguments: Sequence[Any], returns: Any = None
    ) -> Any:
        """Give what `call(*arguments)` returned, now or in an earlier run; see TaskContext.step."""
        key = (check_step_name(name), _fingerprint(name, arguments))
        _check_call(name, call)
        if key not in book.steps:
            if (book.owner.fence, key) in _inside.get():
                raise DeadLetter("invalid_step", f"the step {name!r} calls itself with the same arguments")
            async with book.turns.setdefault(key, asyncio.Lock()):
                if key not in book.steps:
                    return await self._run(book, key, call, arguments, returns)
            book.turns.pop(key, None)
        kept = book.steps[key]
        if kept is None:
            kept = await store.read(self._database, book.owner.task_id, *key, retry_for_seconds=self._retry_for_seconds)
            if kept is None:  # gone with its task
                raise OwnershipLost
        return _given_back(name, kept, returns)

    async def _run(self, book: Book, key: Key, call: Callable[..., Any], arguments: Sequence[Any], returns: Any) -> Any:
        name, most = key[0], self._limits.max_steps
        if book.over:
            raise OwnershipLost
        if len(book.steps) + book.begun >= most:
            raise DeadLetter(
                "too_many_steps",
                f"a task may keep at most {most} steps (DESPACHO_JOURNAL__MAX_STEPS); {name!r} is one more",
            )
        adapter = _adapter(name, returns)
        book.begun += 1
        inside = _inside.set(_inside.get() | {(book.owner.fence, key)})
        try:
            value = await invoke(call, *arguments)
            kept = _spelled(name, value, adapter)
            await self._keep(book, key, kept)
        finally:
            _inside.reset(inside)
            book.begun -= 1
        return _given_back(name, kept, returns)

    async def _keep(self, book: Book, key: Key, kept: str) -> None:
        name, limits = key[0], self._limits
        size_bytes = len(kept.encode())
        if size_bytes > limits.max_step_bytes:
            raise DeadLetter(
                "step_too_large",
                f"the result of the step {name!r} has {size_bytes} bytes; at most {limits.max_step_bytes} can be kept "
                "(DESPACHO_JOURNAL__MAX_STEP_BYTES): return a reference to it instead",
            )
        if book.size_bytes + size_bytes > limits.max_task_bytes:
            raise DeadLetter(
                "journal_full",
                f"with the step {name!r} the task's steps have more than the {limits.max_task_bytes} bytes that can be "
                "kept together (DESPACHO_JOURNAL__MAX_TASK_BYTES)",
            )
        book.size_bytes += size_bytes
        owner = book.owner
        stored = await self._steps.submit(Step(owner.task_id, owner.fence, *key, len(book.steps), kept, size_bytes))
        if not stored:
            raise OwnershipLost
        book.steps[key] = kept if book.size_bytes <= _REMEMBERED_BYTES else None

    # --- checkpoints ---------------------------------------------------------------------------------------------

    async def checkpoint(self, book: Book, state: Any) -> None:
        """Keep the handler's state in place of the one before; returns when it is committed."""
        try:
            kept = json_text(state)
        except NotJson as error:
            raise DeadLetter("invalid_checkpoint", f"the state should be JSON; it has {error}") from None
        size_bytes = len(kept.encode())
        if size_bytes > self._limits.max_checkpoint_bytes:
            raise DeadLetter(
                "checkpoint_too_large",
                f"the state has {size_bytes} bytes; at most {self._limits.max_checkpoint_bytes} can be kept "
                "(DESPACHO_JOURNAL__MAX_CHECKPOINT_BYTES)",
            )
        turn = book.state_turn = book.state_turn + 1
        if not await self._states.submit(Checkpoint(book.owner.task_id, book.owner.fence, kept, size_bytes)):
            raise OwnershipLost
        if turn == book.state_turn:
            book.state = kept
        if book.over:
            raise OwnershipLost

    # --- statements ----------------------------------------------------------------------------------------------

    async def _store(self, steps: Sequence[Step]) -> Sequence[bool]:
        owned: set[tuple[str, int]] = set()
        for part in _parts(steps):
            owned |= await store.store(self._database, part, retry_for_seconds=self._retry_for_seconds)
        return [(step.task_id, step.fence) in owned for step in steps]

    async def _save(self, states: Sequence[Checkpoint]) -> Sequence[bool]:
        newest = {(one.task_id, one.fence): one for one in states}
        owned: set[tuple[str, int]] = set()
        for part in _parts(list(newest.values())):
            owned |= await store.save(self._database, part, retry_for_seconds=self._retry_for_seconds)
        return [(one.task_id, one.fence) in owned for one in states]

    async def _load(self, task_ids: Sequence[str]) -> Sequence[Sequence[Kept]]:
        found = await store.load(
            self._database, task_ids, ahead_bytes=_REMEMBERED_BYTES, retry_for_seconds=self._retry_for_seconds
        )
        return [found[task_id] for task_id in task_ids]


def _is_one_items_fault(error: BaseException) -> bool:
    return is_data_error(error) or isinstance(error, LockTimeout)


def _parts(items: Sequence[Any]) -> list[list[Any]]:
    """Cut a batch into statements of a bounded size."""
    parts: list[list[Any]] = []
    room = 0
    for item in items:
        if not parts or item.size_bytes > room:
            parts.append([])
            room = _STATEMENT_BYTES
        parts[-1].append(item)
        room -= item.size_bytes
    return parts


def _check_call(name: str, call: object) -> None:
    if callable(call):
        return
    if inspect.iscoroutine(call):
        call.close()
    message = f"the step {name!r} should be given a function and its arguments, not a {type(call).__name__}"
    raise DeadLetter("invalid_step", message)


def _fingerprint(name: str, arguments: Sequence[Any]) -> bytes:
    try:
        return fingerprint(arguments)
    except NotJson as error:
        message = f"the arguments of the step {name!r} should be JSON (or bytes); they have {error}"
        raise DeadLetter("invalid_step", message) from None


@lru_cache(maxsize=512)
def _cached_adapter(returns: Any) -> TypeAdapter[Any]:
    return TypeAdapter(returns)


def _adapter(name: str, returns: Any) -> TypeAdapter[Any] | None:
    if returns is None:
        return None
    try:
        return _cached_adapter(returns)
    except Exception as error:
        message = f"the step {name!r}: `returns` should be a type that pydantic knows ({type(error).__name__})"
        raise DeadLetter("invalid_step", message) from None


def _spelled(name: str, value: Any, adapter: TypeAdapter[Any] | None) -> str:
    """Spell a result as exact JSON text. Raises DeadLetter (`invalid_step_result`): calling again would not help."""
    try:
        if adapter is not None:
            valid = adapter.validate_python(value)
            value = adapter.dump_python(valid, mode="json", by_alias=True, warnings="error")
        return json_text(value)
    except NotJson as error:
        message = f"what the step {name!r} returned should be JSON; it has {error}"
    except Exception as error:
        message = f"what the step {name!r} returned does not match its `returns` ({type(error).__name__})"
    raise DeadLetter("invalid_step_result", message)


def _given_back(name: str, kept: str, returns: Any) -> Any:
    adapter = _adapter(name, returns)
    if adapter is None:
        return loads(kept)
    try:
        return adapter.validate_json(kept)
    except Exception as error:
        message = f"what the step {name!r} has kept does not match its `returns` ({type(error).__name__})"
        raise DeadLetter("invalid_step_result", message) from None
