"""What a dialect is: a request out, a reply or a failure in, whole or as a stream of events."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from app.domain.llm import StopReason, Tokens, ToolCall
from workers.llm.messages import ChatRequest

_MOST_TOKENS = 10**12


@dataclass(frozen=True, slots=True)
class Reply:
    """What a provider answered; `tokens` is None where it told no usage, `stop_reason` None where it was cut off."""

    text: str
    tool_calls: tuple[ToolCall, ...]
    stop_reason: StopReason | None
    tokens: Tokens | None
    model: str | None
    begun: Tokens | None = None
    """What a stream told of its usage at its start, for when its end is never told."""


class ReplyStream(Protocol):
    """Puts a reply together from events; what has come is there at any moment, also after a failure."""

    done: bool
    """Whether the provider has said that the answer is complete; its usage may still come."""
    over: bool
    """Whether the provider has said that nothing more comes at all."""
    size: int
    """How many characters of the answer have come."""

    def feed(self, event: str, data: str) -> None:
        """Take one event in. Raises LlmFailure for an error that the provider sends in the stream."""

    def reply(self) -> Reply:
        """Give what has come so far."""


class Provider(Protocol):
    """One dialect, for one provider of the settings."""

    @property
    def path(self) -> str:
        """Where requests go, below the base URL."""

    def headers(self, key: str | None) -> Mapping[str, str]:
        """Give the headers of every request."""

    def body(self, request: ChatRequest, model: str, *, stream: bool) -> dict[str, Any]:
        """Spell a request."""

    def read(self, payload: Mapping[str, Any]) -> Reply:
        """Read a whole answer. Raises LlmFailure for an error inside a 200, or what is no answer at all."""

    def stream(self) -> ReplyStream:
        """Begin to read a streamed answer."""


def a_count(value: object) -> int:
    """Read a number of tokens; anything but a sensible number counts as none."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return 0
    return int(min(max(value, 0), _MOST_TOKENS))


def a_text(value: object) -> str:
    """Read a text, or a list of parts with texts; nothing else says anything."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return "".join(a_text(part.get("text")) for part in value if isinstance(part, Mapping))
    return ""


def a_table(value: object) -> Mapping[str, Any]:
    """Read an object; anything else is an empty one."""
    return value if isinstance(value, Mapping) else {}


def a_list(value: object) -> list[Any]:
    """Read a list; anything else is an empty one."""
    return value if isinstance(value, list) else []
