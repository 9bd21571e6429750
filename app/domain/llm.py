"""What a model call is made of and what came of it: tokens, tool calls, stop reasons, outcomes, kinds of failure.

`Tokens.input` counts everything that was read, cached or not, whatever the provider's own convention is.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from typing import Any

from app.domain.errors import KnownFailure


class StopReason(StrEnum):
    """Why the model stopped."""

    END = "end"
    TOOL_CALLS = "tool_calls"
    LENGTH = "length"
    REFUSAL = "refusal"
    CONTENT_FILTER = "content_filter"


class Outcome(StrEnum):
    """What became of one call; a failed one is named by its `LlmFailure` kind instead.

    `open` is being made; `unanswered` belongs to an attempt that died before it heard the answer; `not_sent` never
    left.
    """

    OPEN = "open"
    ANSWERED = "answered"
    UNANSWERED = "unanswered"
    CANCELLED = "cancelled"
    NOT_SENT = "not_sent"


RETRYABLE: Mapping[str, bool] = {
    "rate_limit": True,
    "overloaded": True,
    "unavailable": True,
    "timeout": True,
    "connection": True,
    "bad_response": True,
    "empty_answer": True,
    "quota_exhausted": False,
    "permission": False,
    "unknown_model": False,
    "invalid_request": False,
    "context_length": False,
    "refused": False,
    "content_filter": False,
    "truncated": False,
    "answer_too_large": False,
    "invalid_output": False,
    "prompt_missing": False,
    "prompt_invalid": False,
    "prompt_changed": False,
    "llm_not_configured": False,
}
"""Every kind of failure of a model call, and whether the same call may succeed a little later."""

FALLBACK_KINDS = (
    "rate_limit", "overloaded", "unavailable", "timeout", "connection", "bad_response", "quota_exhausted",
)  # fmt: skip
"""The kinds after which the next model of a provider's fallbacks is tried, unless the provider says otherwise."""


class LlmFailure(KnownFailure):
    """A model call that gave no usable answer; `error_type` is one of `RETRYABLE`."""

    def __init__(self, error_type: str, message: str, *, retry_after_seconds: float | None = None) -> None:
        super().__init__(error_type, message, retryable=RETRYABLE[error_type], retry_after_seconds=retry_after_seconds)

    def __reduce__(self) -> tuple[Any, ...]:
        return _failure, (self.error_type, self.message, self.retry_after_seconds)


def _failure(error_type: str, message: str, retry_after_seconds: float | None) -> LlmFailure:
    return LlmFailure(error_type, message, retry_after_seconds=retry_after_seconds)


@dataclass(frozen=True, slots=True)
class Tokens:
    """Tokens of one call. `cached` and `cache_write` are parts of `input`, `reasoning` is a part of `output`."""

    input: int = 0
    output: int = 0
    cached: int = 0
    cache_write: int = 0
    reasoning: int = 0


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A tool that the model wants called. `arguments` is None where they are no JSON object; `raw` is their text."""

    id: str
    name: str
    arguments: dict[str, Any] | None
    raw: str = ""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a model answered. `cost_usd` is None where no price is known; `replayed` says that nothing was paid now."""

    text: str
    tool_calls: tuple[ToolCall, ...]
    stop_reason: StopReason
    tokens: Tokens
    provider: str
    model: str
    cost_usd: Decimal | None
    estimated: bool
    call_id: str
    replayed: bool = False


@dataclass(frozen=True, slots=True)
class Price:
    """What a call costs; `as_of` is the date of the price, `source` where it comes from."""

    cost_usd: Decimal | None
    source: str | None = None
    as_of: str | None = None


def estimate_tokens(text: str) -> int:
    """Estimate the tokens of a text without its tokenizer: four ASCII characters each, or most of one other."""
    size = len(text)
    if text.isascii():
        return math.ceil(size / 4)
    plain = sum(1 for character in text if character < "\x80")
    return math.ceil(plain / 4 + 0.75 * (size - plain))
