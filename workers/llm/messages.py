"""What is said to a model, in no provider's dialect: messages, tools, a schema for the answer, and a fingerprint."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from app.domain.json_text import clean_text
from app.domain.llm import ToolCall, estimate_tokens

Role = Literal["system", "user", "assistant", "tool"]
_ROLES = ("system", "user", "assistant", "tool")


@dataclass(frozen=True, slots=True)
class Message:
    """One message. `tool_call_id` names the call that a `tool` message answers."""

    role: Role
    text: str
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool that the model may call; `parameters` is a JSON schema of type object."""

    name: str
    description: str
    parameters: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Schema:
    """The JSON schema that the answer should fit; its root is an object."""

    name: str
    json_schema: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """Everything that a model is asked, but which model."""

    messages: tuple[Message, ...]
    tools: tuple[Tool, ...] = ()
    schema: Schema | None = None
    max_output_tokens: int | None = None
    temperature: float | None = None

    def and_then(self, *more: Message) -> "ChatRequest":
        """Give the request of the next turn of the same conversation."""
        return replace(self, messages=(*self.messages, *more))

    def estimate_input_tokens(self) -> int:
        """Estimate what the request has in tokens, four for the frame of each message."""
        texts = [message.text for message in self.messages]
        texts += [call.raw for message in self.messages for call in message.tool_calls]
        texts += [json.dumps([tool.name, tool.description, dict(tool.parameters)]) for tool in self.tools]
        if self.schema is not None:
            texts.append(json.dumps(self.schema.json_schema))
        return sum(estimate_tokens(text) for text in texts) + 4 * len(self.messages)

    def fingerprint(self, *named: str | None) -> str:
        """Hash the whole request with what the handler named beside it (provider, model)."""
        content = [
            [[m.role, m.text, [[c.id, c.name, c.raw] for c in m.tool_calls], m.tool_call_id] for m in self.messages],
            [[tool.name, tool.description, dict(tool.parameters)] for tool in self.tools],
            None if self.schema is None else self.schema.json_schema,
            self.max_output_tokens,
            self.temperature,
            named,
        ]
        text = json.dumps(content, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:40]


def message_of(given: Message | Mapping[str, Any]) -> Message:
    """Take a message, or a mapping with `role` and `content` (text) and, as far as they apply, the calls of tools.

    Raises ValueError that names what is wrong. What no JSON can carry is replaced.
    """
    if isinstance(given, Message):
        return replace(given, text=clean_text(given.text))
    unknown = given.keys() - {"role", "content", "tool_calls", "tool_call_id"}
    role, content = given.get("role"), given.get("content", "")
    if unknown or role not in _ROLES or not isinstance(content, str):
        raise ValueError(f"a message should have a role ({', '.join(_ROLES)}) and its content as text")
    calls = given.get("tool_calls", ())
    if not all(isinstance(call, ToolCall) for call in calls):
        raise ValueError("a message's tool_calls should be those of an Answer")
    return Message(role, clean_text(content), tuple(calls), given.get("tool_call_id"))


def messages_of(given: Sequence[Message | Mapping[str, Any]]) -> tuple[Message, ...]:
    """Take a conversation. Raises ValueError when it is empty or a message is none."""
    if not given:
        raise ValueError("chat needs at least one message")
    return tuple(message_of(one) for one in given)
