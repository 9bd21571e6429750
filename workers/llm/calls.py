"""One model call, from its intent to its finish: recorded whatever becomes of it, paid once, replayed ever after."""

import asyncio
import json
import logging
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import httpx
import msgspec

from app.domain.errors import Yielded
from app.domain.json_text import clean_text
from app.domain.llm import Answer, LlmFailure, Outcome, Price, StopReason, Tokens, ToolCall, estimate_tokens
from app.ids import mint
from app.store.llm_calls import Finish, Intent, Past
from app.telemetry.logs import event
from workers.attempt import Attempt
from workers.llm.ledger import Errands, Ledger
from workers.llm.limits import SPEAK_OF_THE_DEPENDENCY, Budgets, Dependencies, passage
from workers.llm.messages import ChatRequest
from workers.llm.pricing import price_of, warm
from workers.llm.providers.base import Reply
from workers.llm.providers.openai_compatible import tool_call
from workers.llm.structured import Misfit, Shape
from workers.llm.transport import Endpoint, Heard, ask

log = logging.getLogger("despacho.llm")
_EXPECTED_OUTPUT_TOKENS = 400
_CANCEL_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Order:
    """One call as it is asked for; (`step`, `fingerprint`, `ordinal`) is its key within the task."""

    step: str
    prompt_version: str | None
    fingerprint: str
    ordinal: int
    request: ChatRequest
    stream: bool | None
    shape: Shape | None
    turn: int = 1


@dataclass(frozen=True, slots=True)
class Turn:
    """What one turn gave: an answer, and its value or what is wrong with it where a shape was asked for.

    `before` are the answers that were given back for repair.
    """

    answer: Answer
    value: Any = None
    misfit: Misfit | None = None
    before: tuple[Answer, ...] = ()


class _Stored(msgspec.Struct, frozen=True):
    text: str
    calls: list[tuple[str, str, str]] = []


class Calls:
    """Makes the calls of one process."""

    def __init__(
        self, client: httpx.AsyncClient, ledger: Ledger, *, max_answer_bytes: int, max_prompt_bytes: int
    ) -> None:
        self._client = client
        self._ledger = ledger
        self._most_answer = max_answer_bytes
        self._most_prompt = max_prompt_bytes
        self._expected: dict[tuple[str, str, str], float] = {}
        self.errands = Errands()
        self.dependencies: Dependencies | None = None
        self.budgets: Budgets | None = None

    async def make(self, owner: Attempt, endpoint: Endpoint, model: str, order: Order) -> Turn:
        """Make a call, or give what an earlier run got for it.

        Raises LlmFailure, OwnershipLost, or Snoozed where the provider's limits say so.
        """
        stream = endpoint.settings.stream if order.stream is None else order.stream
        await warm(endpoint.settings, model)
        body = endpoint.provider.body(order.request, model, stream=stream)
        if (size := len(json.dumps(body))) > self._most_prompt:
            said = f"the request has {size} bytes; at most {self._most_prompt} are sent (max_prompt_bytes)"
            raise LlmFailure("context_length", said)
        intent = self._intent(owner, endpoint, model, order, stream)
        past = await self._intend(intent)
        if past is not None:
            return _replayed(past, order.shape)
        return await self._made(owner, endpoint, intent, order, body)

    def _intent(self, owner: Attempt, endpoint: Endpoint, model: str, order: Order, stream: bool) -> Intent:
        tokens, cost_usd = self.expected(owner, endpoint, model, order.request)
        return Intent(
            mint("call"), owner.task_id, owner.tenant_id, owner.task_type, owner.number, owner.fence, order.step,
            order.prompt_version, order.fingerprint, order.ordinal, order.turn, endpoint.name, model, stream,
            tokens.input, tokens.output, cost_usd,
        )  # fmt: skip

    def expected(
        self, owner: Attempt, endpoint: Endpoint, model: str, request: ChatRequest
    ) -> tuple[Tokens, Decimal | None]:
        """Estimate what a call will take: tokens from the request and from earlier answers, and their price."""
        read = request.estimate_input_tokens()
        mean = self._expected.get((owner.task_type, endpoint.name, model), _EXPECTED_OUTPUT_TOKENS)
        tokens = Tokens(read, min(round(mean), request.max_output_tokens or endpoint.settings.max_output_tokens))
        return tokens, price_of(endpoint.settings, (model,), tokens, datetime.now(UTC)).cost_usd

    async def _intend(self, intent: Intent) -> Past | None:
        """Write the intent; when its caller is cancelled meanwhile, what was written is closed as not sent."""
        writing = self.errands.start(self._ledger.intend(intent), self._unwritten)
        try:
            return await asyncio.shield(writing)
        except asyncio.CancelledError:

            async def take_back() -> None:
                if await writing is None:
                    await self._ledger.finish(intent, _nothing(intent, Outcome.NOT_SENT, 0.0))

            self.errands.start(take_back(), self._unwritten)
            raise

    async def _made(
        self, owner: Attempt, endpoint: Endpoint, intent: Intent, order: Order, body: dict[str, Any]
    ) -> Turn:
        heard, loop = Heard(), asyncio.get_running_loop()
        started = loop.time()
        try:
            reply = await self._asked(owner, endpoint, intent, body, heard)
        except LlmFailure as failure:
            finish = self._cut_short(endpoint, intent, failure.error_type, heard, loop.time() - started)
            await self._finish(intent, finish)
            raise
        except Yielded:
            # Not let through, or let go again after a failure that is nothing new.
            outcome = heard.failure.error_type if heard.failure is not None else Outcome.NOT_SENT
            await self._finish(intent, self._cut_short(endpoint, intent, outcome, heard, loop.time() - started))
            raise
        except BaseException as error:
            outcome = Outcome.CANCELLED if isinstance(error, asyncio.CancelledError) else "error"
            writing = self._finish(intent, self._cut_short(endpoint, intent, outcome, heard, loop.time() - started))
            # The end of a cancelled attempt waits for its last word, but not for long.
            await asyncio.wait([asyncio.ensure_future(writing)], timeout=_CANCEL_SECONDS)
            raise
        return await self._answered(endpoint, intent, order, reply, loop.time() - started)

    async def _asked(
        self, owner: Attempt, endpoint: Endpoint, intent: Intent, body: dict[str, Any], heard: Heard
    ) -> Reply:
        if self.budgets is not None:
            # The estimate of this very call is in the ledger by now, and goes out of it again where it is refused.
            await self.budgets.admit(owner)
        expected = intent.input_tokens + intent.output_tokens
        async with passage(self.dependencies, endpoint.settings.dependency, owner, expected) as let:
            try:
                reply = await ask(self._client, endpoint, body, max_answer_bytes=self._most_answer, heard=heard)
            except LlmFailure as failure:
                heard.failure = failure
                if failure.error_type in SPEAK_OF_THE_DEPENDENCY:
                    let.failed(failure.retry_after_seconds)
                raise
            if reply.tokens is not None:
                let.used(reply.tokens.input + reply.tokens.output)
            return reply

    async def _answered(self, endpoint: Endpoint, intent: Intent, order: Order, reply: Reply, seconds: float) -> Turn:
        tokens, estimated = reply.tokens, reply.tokens is None
        if tokens is None:
            tokens = _estimate(intent, reply)
        else:
            self._learn(intent, tokens.output)
        price = price_of(endpoint.settings, (reply.model, intent.model_asked), tokens, datetime.now(UTC))
        answer = _answer(intent, reply, tokens, price, estimated)
        failure = _verdict(endpoint, reply)
        value, misfit = None, None
        if failure is None and order.shape is not None:
            try:
                # The text as it came: what was replaced for keeping must not pass for what the model meant.
                value = order.shape.read(replace(answer, text=reply.text))
            except Misfit as error:
                misfit = error
        outcome = failure.error_type if failure is not None else "invalid_output" if misfit else Outcome.ANSWERED
        stored = None if failure is not None else _store(answer)
        await self._finish(
            intent,
            replace(
                _costing(intent, outcome, tokens, estimated, seconds, price),
                model_answered=None if reply.model is None else clean_text(reply.model),
                stop_reason=reply.stop_reason,
                response=stored,
            ),
        )
        if failure is not None:
            raise failure
        return Turn(answer, value, misfit)

    def _cut_short(self, endpoint: Endpoint, intent: Intent, outcome: str, heard: Heard, seconds: float) -> Finish:
        """Say what a call took that came to no end: nothing where the provider refused it, else as far as is known."""
        if not heard.sent or heard.refused:
            return _nothing(intent, outcome, seconds)
        reply = heard.partial()
        told = reply.tokens if reply is not None else None
        tokens = told if told is not None else _estimate(intent, reply)
        model = reply.model if reply is not None else None
        price = price_of(endpoint.settings, (model, intent.model_asked), tokens, datetime.now(UTC))
        return _costing(intent, outcome, tokens, told is None, seconds, price)

    async def _finish(self, intent: Intent, finish: Finish) -> None:
        """Write the end of a call, also when the caller is cancelled meanwhile."""
        await asyncio.shield(self.errands.start(self._ledger.finish(intent, finish), self._unwritten))

    def _learn(self, intent: Intent, output_tokens: int) -> None:
        key = (intent.task_type, intent.provider, intent.model_asked)
        known = self._expected.get(key)
        if known is None and len(self._expected) >= 1000:
            self._expected.clear()
        self._expected[key] = output_tokens if known is None else 0.8 * known + 0.2 * output_tokens

    def _unwritten(self, error: BaseException) -> None:
        if not isinstance(error, Yielded):
            event(log, "llm_call_not_written", level=logging.WARNING, error=error)


def _verdict(endpoint: Endpoint, reply: Reply) -> LlmFailure | None:
    """Say why a whole answer is no use, where it is none."""
    name = endpoint.name
    match reply.stop_reason:
        case StopReason.REFUSAL:
            return LlmFailure("refused", f"the model of {name} refused to answer")
        case StopReason.CONTENT_FILTER:
            return LlmFailure("content_filter", f"the content filter of {name} stopped the answer")
        case StopReason.LENGTH:
            return LlmFailure("truncated", f"the answer of {name} was cut off at the limit of its tokens")
    if not reply.text.strip() and not reply.tool_calls:
        return LlmFailure("empty_answer", f"the answer of {name} is empty")
    return None


def _estimate(intent: Intent, reply: Reply | None) -> Tokens:
    """Estimate the tokens of a call whose provider told no usage, from what was sent and what has come."""
    if reply is None:
        return Tokens(intent.input_tokens, intent.output_tokens)
    begun = reply.begun or Tokens(intent.input_tokens)
    written = estimate_tokens(reply.text) + sum(estimate_tokens(call.name + call.raw) for call in reply.tool_calls)
    return replace(begun, output=max(begun.output, written))


def _nothing(intent: Intent, outcome: str, seconds: float) -> Finish:
    return Finish(intent.call_id, outcome, 0, 0, False, seconds, cost_usd=Decimal(0))


def _costing(intent: Intent, outcome: str, tokens: Tokens, estimated: bool, seconds: float, price: Price) -> Finish:
    return Finish(
        intent.call_id, outcome, tokens.input, tokens.output, estimated, seconds, tokens.cached, tokens.cache_write,
        tokens.reasoning, price.cost_usd, price.as_of, price.source,
    )  # fmt: skip


def _answer(intent: Intent, reply: Reply, tokens: Tokens, price: Price, estimated: bool) -> Answer:
    return Answer(
        clean_text(reply.text), reply.tool_calls, reply.stop_reason or StopReason.END, tokens, intent.provider,
        reply.model or intent.model_asked, price.cost_usd, estimated, intent.call_id,
    )  # fmt: skip


def _store(answer: Answer) -> str:
    calls = [(call.id, call.name, call.raw) for call in answer.tool_calls]
    return msgspec.json.encode(_Stored(answer.text, calls)).decode()


def _replayed(past: Past, shape: Shape | None) -> Turn:
    """Give an earlier answer again; one that was to be repaired says again what is wrong with it."""
    stored = msgspec.json.decode(past.response, type=_Stored)
    calls: tuple[ToolCall, ...] = tuple(tool_call(*call) for call in stored.calls)
    tokens = Tokens(
        past.input_tokens, past.output_tokens, past.cached_tokens, past.cache_write_tokens, past.reasoning_tokens
    )
    answer = Answer(
        stored.text, calls, StopReason(past.stop_reason or StopReason.END), tokens, past.provider, past.model,
        past.cost_usd, past.estimated, past.call_id, replayed=True,
    )  # fmt: skip
    if shape is None:
        return Turn(answer)
    try:
        return Turn(answer, shape.read(answer))
    except Misfit as misfit:
        return Turn(answer, None, misfit)
