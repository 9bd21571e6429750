"""What a handler sees of the world: its task, its inputs, progress and a logger bound to the task."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from decimal import Decimal
from json import loads
from typing import TYPE_CHECKING, Any

from msgspec import structs

from app.domain.approvals import Approval
from app.domain.errors import DeadLetter
from app.filter_settings import FilterSettings
from app.telemetry.logs import redacted
from workers.attempt import Attempt
from workers.callbacks import OwnCallbacks
from workers.declared_secrets import Held, held
from workers.dependency_call import DependencyCall
from workers.documents.document import Document, Documents
from workers.journal import Book
from workers.llm.llm import TaskLlm
from workers.mcp.tools import McpTools
from workers.outgoing import OutgoingHttp
from workers.task_identity import TaskIdentity

if TYPE_CHECKING:
    from workers.facilities import Facilities
    from workers.journal import Journal

ReadInput = Callable[[str, str], Awaitable[tuple[bytes, str]]]
"""(tenant_id, input_ref) → (content, content type). Raises DeadLetter('missing_input') where there is none."""


class TaskContext(TaskIdentity):
    """The context of one attempt, for `async def` handlers."""

    __slots__ = ("_delegations", "_facilities", "_llm", "_progress", "book", "secrets")

    def __init__(self, owner: Attempt, facilities: "Facilities") -> None:
        super().__init__(owner)
        self.book = Book(owner)
        self.secrets: Held = {}
        self._facilities = facilities
        self._progress: tuple[float, str] | None = None
        self._llm: TaskLlm | None = None
        self._delegations = 0

    @property
    def llm(self) -> TaskLlm:
        """Language models: `complete` for prompt files, `chat` for conversations. Answered once, paid once."""
        if self._llm is None:
            self._llm = TaskLlm(self._facilities.llm, self.owner)
        return self._llm

    @property
    def llm_spent(self) -> TaskLlm | None:
        """What was asked of models in this attempt, or None (for the worker's log)."""
        return self._llm

    async def input_bytes(self, ref: str) -> bytes:
        """Read a stored input. Raises DeadLetter (`missing_input`) when the tenant has none under `ref`."""
        content, _ = await self._facilities.read_input(self.owner.tenant_id, ref)
        return content

    async def input_text(self, ref: str) -> str:
        """Read a stored input as text. Raises DeadLetter: `missing_input`; `corrupted_input` when not UTF-8."""
        return as_text(await self.input_bytes(ref))

    async def document(self, ref: str) -> Document:
        """Read a stored input as a document for a prompt: its text (plain, HTML, PDF), as the type's filters leave it.

        Give it to `ctx.llm.complete` as a variable; it goes in as marked data. What the filters found is in the task's
        history. Raises DeadLetter: `missing_input`, `input_refused`, `corrupted_input`, `encrypted_input`, `no_text`,
        `document_too_large`, `unsupported_input`.
        """
        content, content_type = await self._facilities.read_input(self.owner.tenant_id, ref)
        return await self._documents.read(self.owner, content, content_type)

    async def filtered(self, text: str, source: str = "text") -> Document:
        """Have the type's filters look at a text that comes from outside, for a prompt; `source` names it there.

        Raises DeadLetter (`input_refused`).
        """
        return await self._documents.filtered(self.owner, text, source)

    @property
    def _documents(self) -> Documents:
        if self._facilities.documents is None:
            self._facilities.documents = Documents(FilterSettings())
        return self._facilities.documents

    async def step(self, name: str, call: Callable[..., Any], *arguments: Any, returns: Any = None) -> Any:
        """Do something once: give what `call(*arguments)` returned, in this run or in an earlier one of the task.

        The result is kept under the name and the arguments, and only then returned; a run that finds it does not call.
        The same name with other arguments is another step; the same arguments again give the kept result, so that what
        is meant to happen several times needs names, or an argument, that tell the times apart. What is raised by the
        call, and a call that gives the worker back, keeps nothing.

        `call` is a coroutine function, or a plain one, which runs in a thread. Arguments are JSON, models or bytes. The
        result is JSON (models and dataclasses are written as such) and comes back as JSON in the first run, too: tuples
        as lists, models as dicts. With `returns`, a type that pydantic knows, it comes back as that type, in every run.

        Raises DeadLetter: `invalid_step` (name or arguments), `invalid_step_result`, `step_too_large`,
        `too_many_steps`, `journal_full`. An attempt that no longer owns its task, or was told to end, ends here.
        """
        return await self._journal.step(self.book, name, call, arguments, returns)

    async def checkpoint(self, state: Any) -> None:
        """Save the handler's own state, in place of the one before; returns when it is committed.

        The next run of the task finds it in `state`. Raises DeadLetter: `invalid_checkpoint`, `checkpoint_too_large`.
        An attempt that no longer owns its task, or was told to end, ends here: in the latter case with its state saved.
        """
        await self._journal.checkpoint(self.book, state)
        # Here an attempt can be given up in good order: all that its next run needs is committed.

    @property
    def state(self) -> Any:
        """The state of the last checkpoint, of this run or of an earlier one; None before the first."""
        return None if self.book.state is None else loads(self.book.state)

    @property
    def http(self) -> OutgoingHttp:
        """The guarded HTTP client: it reaches the public internet, and of private networks what the settings open."""
        if self._facilities.http is None:
            raise RuntimeError("this context was made without an HTTP client")
        return OutgoingHttp(self.owner, self._facilities.http)

    def secret(self, name: str) -> str:
        """Give the value of a secret that the type declares with `secrets=[…]`; logs and errors will not show it.

        Raises DeadLetter (`undeclared_secret`) for any other. A declared secret that is missing fails the attempt
        before the handler starts: `missing_secret`, which no retry mends, or `secret_unavailable`, which is retried.
        """
        return held(self.secrets, name, self.owner.spec)

    async def signature(self, secret: str, *, message_id: str, timestamp: int, body: bytes) -> dict[str, str]:
        """Sign a message by Standard Webhooks; returns its three headers, never the secret.

        `secret` names one that DESPACHO_OUTBOUND__SIGNING_SECRETS opens for the task's tenant; `timestamp` is in Unix
        seconds. Raises DeadLetter: `undeclared_secret`, `missing_secret`, `invalid_secret`.
        """
        if self._facilities.secrets is None:
            raise RuntimeError("this context was made without secrets")
        return await self._facilities.secrets.signature(
            self.tenant_id, secret, message_id=message_id, timestamp=timestamp, body=body
        )

    @property
    def callbacks(self) -> OwnCallbacks:
        """Addresses by which somebody outside completes the task later, while it holds no worker."""
        if self._facilities.callbacks is None:
            raise RuntimeError("this context was made without callbacks")
        return OwnCallbacks(self.owner, self._facilities.callbacks)

    def mcp(self, server: str) -> McpTools:
        """Have the tools of a configured MCP server: `await ctx.mcp("files").call("read_file", {…})`.

        Raises DeadLetter: `mcp_server_not_allowed` where the type does not name it, `extra_missing` where the packages
        are not installed.
        """
        if self._facilities.mcp is None:
            raise RuntimeError("this context was made without MCP servers")
        return McpTools(self, server, self._facilities.mcp)

    async def delegate(
        self,
        agent: str,
        message: Any,
        *,
        name: str | None = None,
        returns: Any = None,
        timeout_seconds: float | None = None,
    ) -> Any:
        """Have another agent do something, by A2A: send it once, give the worker back, go on when it is done.

        `agent` is a name of DESPACHO_A2A__AGENTS or a URL; `message` is text or JSON. Delegations of one task are told
        apart by `name`, or by their order, which should then be the same in every run. Gives a DelegatedAnswer, or with
        `returns`, a type that pydantic knows, its JSON as that type. While the agent works the task waits as
        `awaiting_agent` and runs again from the top; `timeout_seconds` counts from the sending.

        Raises DeadLetter: `delegation_failed`, `…_rejected`, `…_cancelled`, `…_input_required`, `…_auth_required`,
        `…_timeout`, `…_lost`, `…_changed`, `…_invalid_answer`, `…_answer_too_large`, `unknown_agent`,
        `forbidden_address`, `agent_refused`; Retry (`a2a_connection`).
        """
        if self._facilities.delegations is None:
            raise RuntimeError("this context was made without agents")
        if name is None:
            self._delegations += 1
            name = str(self._delegations)
        return await self._facilities.delegations.delegate(
            self, agent, message, name=name, returns=returns, timeout_seconds=timeout_seconds
        )

    async def load(self) -> None:
        """Read what earlier runs left, and the declared secrets (for the worker, before the handler starts).

        Raises SecretMissing or SecretUnavailable.
        """
        if self.owner.spec.secrets and self._facilities.secrets is not None:
            self.secrets = await self._facilities.secrets.read(self.owner.spec)
        if self._facilities.journal is not None:
            await self._facilities.journal.load(self.book)

    @property
    def _journal(self) -> "Journal":
        if self._facilities.journal is None:
            raise RuntimeError("this context was made without a journal")
        return self._facilities.journal

    async def approval(self, action: str, detail: Any = None, *, expires_seconds: float | None = None) -> Approval:
        """Return a person's yes to `action`; until there is one, the task waits for it and holds no worker.

        The handler ends here and is run again from the top when somebody has decided, without spending an attempt. A
        no, or no answer within `expires_seconds` (default: the type's, or the settings'), ends the task as `rejected`.
        `detail` is what the approver sees: JSON, bounded in size. The same action and detail are the same approval,
        however often they are asked for; another detail is another one. Raises DeadLetter (`invalid_approval`) for what
        cannot be asked. What is raised to wait is no Exception: let it pass.
        """
        asking = self._facilities.approvals
        if asking is None:
            raise RuntimeError("ctx.approval: there is nobody to ask outside of a worker")
        return await asking.ask(self.owner, action, detail, expires_seconds=expires_seconds)

    def dependency(self, name: str, estimated_tokens: float = 0) -> DependencyCall:
        """Call a dependency within its limits: `async with ctx.dependency("crm") as call:`; see `workers/README.md`.

        Raises Snoozed when it is closed, or no permit comes soon: the task goes on later, and no attempt is spent.
        """
        if self._facilities.dependencies is None:
            raise DeadLetter("no_dependencies", "this context was made without dependencies")
        return self._facilities.dependencies.call(
            name,
            priority_class=self.owner.priority_class,
            estimated_tokens=estimated_tokens,
            attempt_timeout_seconds=self.owner.timeout_seconds,
        )

    async def spent(self, *, cost_usd: Decimal = Decimal(0), tokens: int = 0) -> None:
        """Count money and tokens paid elsewhere towards the budgets; model calls are counted by themselves."""
        if self._facilities.budgets is None:
            raise DeadLetter("no_budgets", "this context was made without budgets")
        await self._facilities.budgets.spent(self.owner, cost_usd=cost_usd, tokens=tokens)

    def narrowed(self, *, effects: Sequence[str], destructive: Sequence[str] = (), **declared: Any) -> "TaskContext":
        """Give this context under a narrower declaration of its type: only these effects, approvals for these.

        For handlers whose effects are chosen by the task's input. The journal, the secrets and the models are shared.
        """
        spec = replace(self.owner.spec, effects=tuple(effects), destructive=tuple(destructive), **declared)
        inner = TaskContext(structs.replace(self.owner, spec=spec), self._facilities)
        inner.book, inner.secrets, inner._llm = self.book, self.secrets, self.llm
        return inner

    def progress(self, fraction: float, message: str = "") -> None:
        """Say how far the task is (0 to 1); written with the next heartbeat, and only while this attempt owns it."""
        if not 0.0 <= fraction <= 1.0:
            raise ValueError("progress: fraction should be from 0 to 1")
        self._progress = (float(fraction), redacted(str(message), 500))

    async def effect(
        self,
        effect_type: str,
        key: str,
        call: Callable[..., Any],
        *args: Any,
        reconcile: Callable[..., Any] | None = None,
        honours_key_for_seconds: float = 0,
        call_timeout_seconds: float = 30,
    ) -> str | None:
        """Do something outside at most once per `key`, whatever happens, and return the id that the outside gave it.

        `call(*args)` makes one request and returns that id (a text or None); it is a coroutine function, or a plain
        one, which runs in a thread. Where it has a parameter `idempotency_key`, it gets the key to send along, and so
        does `reconcile(key)`, which asks the outside system whether it happened: the id, or None where it did not.
        `honours_key_for_seconds` is how long that system takes a repeated Idempotency-Key for the same request.

        Raises what the call raises: after a refused connection, or `NotSent`, the effect is free to be tried again;
        after anything else nobody knows, and the next run asks, calls again inside the honoured time, or ends as the
        dead letter `effect_in_doubt`. Raises DeadLetter also where the effect is not declared, forbidden, not approved,
        or its key has other arguments.
        """
        if self._facilities.effects is None:
            raise DeadLetter("effects_unavailable", "this process keeps no ledger of effects")
        return await self._facilities.effects.effect(
            self.owner,
            effect_type,
            key,
            call,
            *args,
            reconcile=reconcile,
            honours_key_for_seconds=honours_key_for_seconds,
            call_timeout_seconds=call_timeout_seconds,
        )

    def take_progress(self) -> tuple[float, str] | None:
        """Hand over what progress was said since the last time (for the worker's heartbeat)."""
        said, self._progress = self._progress, None
        return said


def as_text(content: bytes) -> str:
    """Decode UTF-8, with or without a byte order mark. Raises DeadLetter (`corrupted_input`)."""
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise DeadLetter("corrupted_input", "the input is not UTF-8 text") from None
