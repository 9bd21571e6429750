"""The dialect of Anthropic's Messages API."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from app.domain.llm import LlmFailure, StopReason, Tokens, ToolCall
from app.llm_settings import ProviderSettings
from workers.llm.errors import failure_of
from workers.llm.messages import ChatRequest, Message
from workers.llm.providers.base import Reply, a_count, a_table, a_text
from workers.llm.providers.openai_compatible import tool_call
from workers.llm.structured import ANSWER_TOOL, answer_tool, in_words

_VERSION = "2023-06-01"
_STOPS: Mapping[str, StopReason] = {
    "end_turn": StopReason.END,
    "stop_sequence": StopReason.END,
    "pause_turn": StopReason.END,
    "max_tokens": StopReason.LENGTH,
    "model_context_window_exceeded": StopReason.LENGTH,
    "tool_use": StopReason.TOOL_CALLS,
    "refusal": StopReason.REFUSAL,
}


class Anthropic:
    """One provider that speaks the Messages API."""

    path = "/messages"

    def __init__(self, name: str, settings: ProviderSettings) -> None:
        self._name = name
        self._settings = settings

    def headers(self, key: str | None) -> Mapping[str, str]:
        """Give the version of the API, and the key where there is one."""
        return {"anthropic-version": _VERSION, **({} if key is None else {"x-api-key": key})}

    def body(self, request: ChatRequest, model: str, *, stream: bool) -> dict[str, Any]:
        """Spell a request: the system apart, results of tools as parts of the user's message."""
        system = [message.text for message in request.messages if message.role == "system"]
        body: dict[str, Any] = {
            "model": model,
            "max_tokens": request.max_output_tokens or self._settings.max_output_tokens,
            "messages": _messages([message for message in request.messages if message.role != "system"]),
        }
        tools = list(request.tools)
        if request.schema is not None:
            if self._settings.way_of_structure == "tool":
                tools = [answer_tool(request.schema)]
                body["tool_choice"] = {"type": "tool", "name": ANSWER_TOOL}
            elif self._settings.way_of_structure == "json_schema":
                body["output_config"] = {"format": {"type": "json_schema", "schema": dict(request.schema.json_schema)}}
            else:
                system.append(in_words(request.schema))
        if tools:
            body["tools"] = [
                {"name": one.name, "description": one.description, "input_schema": dict(one.parameters)}
                for one in tools
            ]
        if system:
            body["system"] = "\n\n".join(system)
        if request.temperature is not None:
            body["temperature"] = request.temperature
        if stream:
            body["stream"] = True
        return body

    def read(self, payload: Mapping[str, Any]) -> Reply:
        """Read a whole answer. Raises LlmFailure."""
        if payload.get("type") == "error" or payload.get("error"):
            raise failure_of(self._name, None, payload)
        if not isinstance(payload.get("content"), list):
            raise LlmFailure("bad_response", f"{self._name}: the answer has no content")
        texts: list[str] = []
        calls: list[ToolCall] = []
        for block in map(a_table, payload["content"]):
            if block.get("type") == "text":
                texts.append(a_text(block.get("text")))
            elif block.get("type") == "tool_use":
                raw = json.dumps(block.get("input", {}))
                calls.append(tool_call(a_text(block.get("id")), a_text(block.get("name")), raw))
        return Reply(
            "".join(texts),
            tuple(calls),
            _stop_of(payload.get("stop_reason")) or StopReason.END,
            _tokens(a_table(payload.get("usage"))),
            a_text(payload.get("model"))[:200] or None,
        )

    def stream(self) -> "AnthropicStream":
        """Begin to read a streamed answer."""
        return AnthropicStream(self._name)


class AnthropicStream:
    """Puts an answer together from events. The usage comes at the start, and again, grown, at the end."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._blocks: dict[int, dict[str, str]] = {}
        self._stop: object = None
        self._usage: dict[str, Any] = {}
        self._told = False
        self._model: str | None = None
        self.done = False
        self.over = False
        self.size = 0

    def feed(self, event: str, data: str) -> None:
        """Take one event in. Raises LlmFailure for an error in the stream, or for what is no event."""
        try:
            said = json.loads(data)
        except (ValueError, RecursionError):
            raise LlmFailure("bad_response", f"{self._name}: a part of the stream is not JSON") from None
        if not isinstance(said, Mapping):
            return
        match said.get("type") or event:
            case "error":
                raise failure_of(self._name, None, said)
            case "message_start":
                message = a_table(said.get("message"))
                self._model = a_text(message.get("model"))[:200] or None
                self._usage.update(a_table(message.get("usage")))
            case "content_block_start":
                block = a_table(said.get("content_block"))
                first = block.get("input")
                self._blocks[a_count(said.get("index"))] = {
                    "type": a_text(block.get("type")),
                    "id": a_text(block.get("id")),
                    "name": a_text(block.get("name")),
                    "text": a_text(block.get("text")) or (json.dumps(first) if first else ""),
                }
            case "content_block_delta":
                delta = a_table(said.get("delta"))
                block = self._blocks.setdefault(
                    a_count(said.get("index")), {"type": "text", "id": "", "name": "", "text": ""}
                )
                if delta.get("type") in ("text_delta", "input_json_delta"):
                    more = a_text(delta.get("text")) + a_text(delta.get("partial_json"))
                    block["text"] += more
                    self.size += len(more)
            case "message_delta":
                self._stop = a_table(said.get("delta")).get("stop_reason") or self._stop
                grown = {name: value for name, value in a_table(said.get("usage")).items() if value is not None}
                self._told = self._told or "output_tokens" in grown
                self._usage.update(grown)
            case "message_stop":
                self.done = self.over = True

    def reply(self) -> Reply:
        """Give what has come so far; the usage only once its end was told."""
        blocks = [block for _, block in sorted(self._blocks.items())]
        calls = tuple(
            tool_call(block["id"], block["name"], block["text"]) for block in blocks if block["type"] == "tool_use"
        )
        text = "".join(block["text"] for block in blocks if block["type"] == "text")
        stop = _stop_of(self._stop)
        if stop is None and self.done:
            stop = StopReason.TOOL_CALLS if calls else StopReason.END
        tokens = _tokens(self._usage)
        return Reply(text, calls, stop, tokens if self._told else None, self._model, tokens)


def _tokens(usage: Mapping[str, Any]) -> Tokens | None:
    """Read the usage; what was cached is not in `input_tokens` there, and is in ours."""
    cached, write = a_count(usage.get("cache_read_input_tokens")), a_count(usage.get("cache_creation_input_tokens"))
    read, written = a_count(usage.get("input_tokens")) + cached + write, a_count(usage.get("output_tokens"))
    reasoning = a_count(a_table(usage.get("output_tokens_details")).get("thinking_tokens"))
    return Tokens(read, written, cached, write, min(reasoning, written)) if read or written else None


def _stop_of(reason: object) -> StopReason | None:
    return _STOPS.get(reason, StopReason.END) if isinstance(reason, str) and reason else None


def _messages(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Spell the conversation; results of tools that follow one another go into one message of the user."""
    spelled: list[dict[str, Any]] = []
    for message in messages:
        parts = _parts(message)
        role = "assistant" if message.role == "assistant" else "user"
        if spelled and spelled[-1]["role"] == role:
            spelled[-1]["content"] += parts
        else:
            spelled.append({"role": role, "content": parts})
    return spelled


def _parts(message: Message) -> list[dict[str, Any]]:
    if message.role == "tool":
        return [{"type": "tool_result", "tool_use_id": message.tool_call_id or "", "content": message.text}]
    parts: list[dict[str, Any]] = [{"type": "text", "text": message.text}] if message.text.strip() else []
    parts += [
        {"type": "tool_use", "id": call.id, "name": call.name, "input": call.arguments or {}}
        for call in message.tool_calls
    ]
    return parts or [{"type": "text", "text": "(nothing)"}]
