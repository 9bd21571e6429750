"""`ctx.llm`: prompts and conversations to models of the configured providers, with fallbacks and one repair turn.

Every call is a step by itself: what was answered once is returned on a later run of the task without a call.
"""

import ssl
from collections.abc import Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any, TypeVar, overload

import httpx

from app.domain.errors import Snoozed
from app.domain.llm import Answer, LlmFailure, Tokens
from app.llm_settings import LlmSettings
from app.store.llm_usage import TaskSpending
from workers.attempt import Attempt
from workers.bridge import Bridge
from workers.llm.calls import Calls, Order, Turn
from workers.llm.ledger import Ledger
from workers.llm.limits import Budgets, Dependencies
from workers.llm.messages import ChatRequest, Message, Tool, messages_of
from workers.llm.pricing import warm
from workers.llm.prompts import Prompt, Prompts
from workers.llm.providers import provider_of
from workers.llm.structured import Shape, repair_messages
from workers.llm.transport import Endpoint

T = TypeVar("T")
_CHAT = "chat"
_MOST_SHAPES = 500


class Llm:
    """The models that one process reaches; nothing is connected before the first call."""

    def __init__(
        self,
        settings: LlmSettings,
        ledger: Ledger,
        *,
        dependencies: Dependencies | None = None,
        budgets: Budgets | None = None,
    ) -> None:
        self.settings = settings
        self._dependencies = dependencies
        self._budgets = budgets
        self._ledger = ledger
        self._endpoints = {
            name: Endpoint(name, one, provider_of(name, one)) for name, one in settings.providers.items()
        }
        self.prompts = Prompts(settings.prompts_dir, ledger.first_used)
        self._client: httpx.AsyncClient | None = None
        self._calls: Calls | None = None
        self._shapes: dict[Any, Shape] = {}

    @property
    def calls(self) -> Calls:
        """What makes the calls, with this process's connections."""
        if self._calls is None:
            limits = httpx.Limits(max_connections=self.settings.max_connections, max_keepalive_connections=20)
            # Proxies and .netrc of the environment are not for providers: their addresses are the operator's word.
            self._client = httpx.AsyncClient(
                limits=limits, follow_redirects=False, trust_env=False, verify=ssl.create_default_context()
            )
            self._calls = Calls(
                self._client,
                self._ledger,
                max_answer_bytes=self.settings.max_answer_bytes,
                max_prompt_bytes=self.settings.max_prompt_bytes,
            )
            self._calls.dependencies = self._dependencies
            self._calls.budgets = self._budgets
        return self._calls

    def targets(self, provider: str | None, model: str | None) -> list[tuple[Endpoint, str]]:
        """List what is asked in turn: the provider and model that are meant, then the provider's fallbacks.

        Raises LlmFailure (`llm_not_configured`).
        """
        name = provider or self.settings.provider or next(iter(self._endpoints), None)
        if name is None:
            raise LlmFailure("llm_not_configured", "no provider is configured: set DESPACHO_LLM__PROVIDERS")
        first = self._endpoints.get(name)
        if first is None:
            known = ", ".join(self._endpoints) or "none"
            raise LlmFailure(
                "llm_not_configured", f"there is no such provider in DESPACHO_LLM__PROVIDERS, only: {known}"
            )
        found = [(first, model or first.settings.model)]
        for fallback in first.settings.fallbacks:
            endpoint = self._endpoints[fallback.provider or name]
            found.append((endpoint, fallback.model or endpoint.settings.model))
        return list({f"{endpoint.name}\0{asked}": (endpoint, asked) for endpoint, asked in found}.values())

    def shape(self, returns: Any) -> Shape:
        """Give the shape of a type, made once; a shape is its own. Raises TypeError."""
        if isinstance(returns, Shape):
            return returns
        try:
            known = self._shapes.get(returns)
        except TypeError:
            return Shape(returns)
        if known is None:
            if len(self._shapes) >= _MOST_SHAPES:
                self._shapes.clear()
            known = self._shapes[returns] = Shape(returns)
        return known

    async def spent(self, task_id: str) -> TaskSpending:
        """Add up what the calls of a task took."""
        return await self._ledger.spent(task_id)

    async def close(self) -> None:
        """Wait for what is being written, then close the connections."""
        if self._calls is not None:
            await self._calls.errands.close()
        if self._client is not None:
            await self._client.aclose()


class TaskLlm:
    """The models as one attempt reaches them. Calls that are the same are told apart by their order."""

    def __init__(self, llm: Llm | None, owner: Attempt) -> None:
        self._llm = llm
        self._owner = owner
        self._asked: dict[tuple[str, str], int] = {}
        self.provider: str | None = None
        self.input_tokens = 0
        self.output_tokens = 0

    @overload
    async def complete(
        self, prompt: str, *, returns: type[T], model: str | None = None, provider: str | None = None,
        max_output_tokens: int | None = None, temperature: float | None = None, stream: bool | None = None,
        **variables: Any,
    ) -> T: ...  # fmt: skip

    @overload
    async def complete(
        self, prompt: str, *, returns: None = None, model: str | None = None, provider: str | None = None,
        max_output_tokens: int | None = None, temperature: float | None = None, stream: bool | None = None,
        **variables: Any,
    ) -> str: ...  # fmt: skip

    async def complete(
        self, prompt: str, *, returns: Any = None, model: str | None = None, provider: str | None = None,
        max_output_tokens: int | None = None, temperature: float | None = None, stream: bool | None = None,
        **variables: Any,
    ) -> Any:  # fmt: skip
        """Have a model complete a prompt file (`check_invoice@2`) with the variables that it names.

        Gives the answer's text, or with `returns` (a pydantic model, or what pydantic knows) the validated value: one
        that does not fit is given back to the model once, then it is the failure `invalid_output`. What is not said
        here is taken from the prompt's head, then from the provider's settings.

        Raises LlmFailure; its `error_type` says what, `retryable` whether the task will be tried again by itself.
        """
        turn = await self.exchange(
            prompt, returns=returns, model=model, provider=provider, max_output_tokens=max_output_tokens,
            temperature=temperature, stream=stream, variables=variables,
        )  # fmt: skip
        return turn.answer.text if returns is None else turn.value

    async def exchange(
        self, said: str | Sequence[Message], *, returns: Any = None, model: str | None = None,
        provider: str | None = None, max_output_tokens: int | None = None, temperature: float | None = None,
        stream: bool | None = None, variables: Mapping[str, Any] | None = None,
    ) -> Turn:  # fmt: skip
        """Have a model complete a prompt file or messages, and give the value together with the answers behind it.

        Raises LlmFailure.
        """
        llm = self._needed()
        if not isinstance(said, str):
            request = ChatRequest(tuple(said), max_output_tokens=max_output_tokens, temperature=temperature)
            return await self._run(llm, _CHAT, None, request, provider, model, stream, returns)
        found = await llm.prompts.get(said)
        request = ChatRequest(
            found.render(variables or {}, salt=self._owner.task_id),
            max_output_tokens=_first(max_output_tokens, found.max_output_tokens),
            temperature=_first(temperature, found.temperature),
        )
        return await self._run(
            llm, found.name, found.reference, request, provider or found.provider, model or found.model, stream, returns
        )

    @property
    def settings(self) -> LlmSettings | None:
        """The settings that the calls follow; None in a process without models."""
        return None if self._llm is None else self._llm.settings

    async def chat(
        self, messages: Sequence[Message | Mapping[str, Any]], *, tools: Sequence[Tool] = (), model: str | None = None,
        provider: str | None = None, max_output_tokens: int | None = None, temperature: float | None = None,
        stream: bool | None = None, prompt_version: str | None = None,
    ) -> Answer:  # fmt: skip
        """Have a model say what comes next in a conversation, with tools that it may ask to be called.

        `prompt_version` is recorded with the call. Raises LlmFailure as `complete` does; ValueError for what is no
        message.
        """
        request = ChatRequest(
            messages_of(messages), tuple(tools), max_output_tokens=max_output_tokens, temperature=temperature
        )
        return (await self._run(self._needed(), _CHAT, prompt_version, request, provider, model, stream, None)).answer

    async def prompt(self, reference: str) -> Prompt:
        """Give a prompt file as it was when it was first used. Raises LlmFailure (`prompt_…`)."""
        return await self._needed().prompts.get(reference)

    async def expected(
        self, messages: Sequence[Message | Mapping[str, Any]], *, tools: Sequence[Tool] = (), model: str | None = None,
        provider: str | None = None, max_output_tokens: int | None = None,
    ) -> tuple[Tokens, Decimal | None]:  # fmt: skip
        """Estimate what a `chat` would take: tokens, and what they cost (None without a known price). Calls nobody.

        Raises LlmFailure (`llm_not_configured`).
        """
        llm = self._needed()
        request = ChatRequest(messages_of(messages), tuple(tools), max_output_tokens=max_output_tokens)
        endpoint, asked = llm.targets(provider, model)[0]
        await warm(endpoint.settings, asked)
        return llm.calls.expected(self._owner, endpoint, asked, request)

    async def spent(self) -> TaskSpending:
        """Add up what all calls of this task took so far, in all its attempts, failed ones included."""
        return await self._needed().spent(self._owner.task_id)

    def _needed(self) -> Llm:
        if self._llm is None:
            raise LlmFailure("llm_not_configured", "ctx.llm is not there in this process")
        return self._llm

    async def _run(
        self, llm: Llm, step: str, prompt_version: str | None, request: ChatRequest, provider: str | None,
        model: str | None, stream: bool | None, returns: Any,
    ) -> Turn:  # fmt: skip
        shape = None if returns is None else llm.shape(returns)
        if shape is not None:
            request = ChatRequest(
                request.messages, request.tools, shape.schema, request.max_output_tokens, request.temperature
            )
        # What the settings add (the model that is the default) is not in it: a changed setting pays nothing twice.
        fingerprint = request.fingerprint(provider, model)
        ordinal = self._asked.get((step, fingerprint), 0)
        self._asked[step, fingerprint] = ordinal + 1
        order = Order(step, prompt_version, fingerprint, ordinal, request, stream, shape)
        return await self._in_turn(llm, llm.targets(provider, model), order)

    async def _in_turn(self, llm: Llm, targets: Sequence[tuple[Endpoint, str]], order: Order) -> Turn:
        """Ask one target after the other, as long as the failures are of the kinds that the first one names."""
        failures: list[LlmFailure] = []
        closed: Snoozed | None = None
        for endpoint, model in targets:
            try:
                return await self._fitting(llm, endpoint, model, order)
            except Snoozed as snoozed:
                closed = closed or snoozed
            except LlmFailure as failure:
                failures.append(failure)
                if failure.error_type not in targets[0][0].settings.fallback_on:
                    break
        if closed is not None:
            raise closed
        raise next((failure for failure in failures if failure.retryable), failures[0])

    async def _fitting(self, llm: Llm, endpoint: Endpoint, model: str, order: Order) -> Turn:
        """Ask, and give an answer that does not fit back once."""
        turn = await llm.calls.make(self._owner, endpoint, model, order)
        self._spend(turn.answer)
        if turn.misfit is None or order.shape is None:
            return turn
        repair = Order(
            order.step, order.prompt_version, order.fingerprint, order.ordinal,
            order.request.and_then(*repair_messages(turn.answer, turn.misfit)), order.stream, order.shape, turn=2,
        )  # fmt: skip
        repaired = await llm.calls.make(self._owner, endpoint, model, repair)
        self._spend(repaired.answer)
        if repaired.misfit is not None:
            said = "; ".join(repaired.misfit.places)
            raise LlmFailure("invalid_output", f"the answer does not fit, also after one repair: {said}")
        return replace(repaired, before=(turn.answer,))

    def _spend(self, answer: Answer) -> None:
        if not answer.replayed:
            self.provider = answer.provider
            self.input_tokens += answer.tokens.input
            self.output_tokens += answer.tokens.output


class BlockingLlm:
    """The same for plain `def` handlers: its calls block the handler's thread."""

    def __init__(self, llm: TaskLlm, bridge: Bridge) -> None:
        self._llm = llm
        self._bridge = bridge

    @overload
    def complete(self, prompt: str, *, returns: type[T], **options: Any) -> T: ...

    @overload
    def complete(self, prompt: str, *, returns: None = None, **options: Any) -> str: ...

    def complete(self, prompt: str, *, returns: Any = None, **options: Any) -> Any:
        """Have a model complete a prompt file; see TaskLlm."""
        return self._bridge.run(lambda _: self._llm.complete(prompt, returns=returns, **options))

    def chat(self, messages: Sequence[Message | Mapping[str, Any]], **options: Any) -> Answer:
        """Have a model say what comes next in a conversation; see TaskLlm."""
        return self._bridge.run(lambda _: self._llm.chat(messages, **options))


def _first(*values: Any) -> Any:
    return next((value for value in values if value is not None), None)
