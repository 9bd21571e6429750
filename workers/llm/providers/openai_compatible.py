"""The dialect of OpenAI's chat completions, as spoken by OpenAI, vLLM, llama.cpp, Ollama, OpenRouter and others.

Lenient in what it reads: usage may be missing, come with the last chunk, or with one without choices; content may be
null or a list of parts; calls of tools may come whole or in pieces, with or without an index; an error may be inside a
200 or in the middle of a stream; `[DONE]` may be missing.
"""

import json
from collections.abc import Mapping
from typing import Any

from app.domain.json_text import clean_text, is_fit
from app.domain.llm import LlmFailure, StopReason, Tokens, ToolCall
from app.llm_settings import ProviderSettings
from workers.llm.errors import failure_of
from workers.llm.messages import ChatRequest, Message, Schema, Tool
from workers.llm.providers.base import Reply, a_count, a_list, a_table, a_text
from workers.llm.structured import answer_tool, in_words, strict_schema

_STOPS: Mapping[str, StopReason] = {
    "stop": StopReason.END,
    "eos": StopReason.END,
    "end_turn": StopReason.END,
    "length": StopReason.LENGTH,
    "max_tokens": StopReason.LENGTH,
    "model_length": StopReason.LENGTH,
    "tool_calls": StopReason.TOOL_CALLS,
    "function_call": StopReason.TOOL_CALLS,
    "content_filter": StopReason.CONTENT_FILTER,
    "safety": StopReason.CONTENT_FILTER,
    "refusal": StopReason.REFUSAL,
}


class OpenAiCompatible:
    """One OpenAI-compatible provider."""

    path = "/chat/completions"

    def __init__(self, name: str, settings: ProviderSettings) -> None:
        self._name = name
        self._settings = settings

    def headers(self, key: str | None) -> Mapping[str, str]:
        """Give the key as a bearer token, where there is one."""
        return {} if key is None else {"authorization": f"Bearer {key}"}

    def body(self, request: ChatRequest, model: str, *, stream: bool) -> dict[str, Any]:
        """Spell a request; fields that nobody asked for are left out, as some servers refuse what they do not know."""
        settings = self._settings
        way = settings.way_of_structure
        messages = [_message(message) for message in request.messages]
        tools = list(request.tools)
        body: dict[str, Any] = {"model": model, "messages": messages}
        if request.schema is not None:
            if way == "json_schema":
                body["response_format"] = _response_format(request.schema)
            elif way == "tool":
                tools = [answer_tool(request.schema)]
                body["tool_choice"] = {"type": "function", "function": {"name": tools[0].name}}
            else:
                _say_in_words(messages, request.schema)
                if way == "json_object":
                    body["response_format"] = {"type": "json_object"}
        if tools:
            body["tools"] = [_tool(tool) for tool in tools]
        body[settings.max_tokens_field] = request.max_output_tokens or settings.max_output_tokens
        if request.temperature is not None:
            body["temperature"] = request.temperature
        if stream:
            body["stream"] = True
            if settings.stream_usage:
                body["stream_options"] = {"include_usage": True}
        return body

    def read(self, payload: Mapping[str, Any]) -> Reply:
        """Read a whole answer. Raises LlmFailure."""
        if payload.get("error"):
            raise failure_of(self._name, None, payload)
        choices = a_list(payload.get("choices"))
        if "choices" not in payload:
            raise LlmFailure("bad_response", f"{self._name}: the answer has no choices")
        choice = a_table(choices[0] if choices else None)
        if choice.get("error"):
            raise failure_of(self._name, None, choice)
        message = a_table(choice.get("message"))
        text, refused = a_text(message.get("content")), a_text(message.get("refusal"))
        calls = tuple(_call_of(a_table(one), i) for i, one in enumerate(a_list(message.get("tool_calls"))))
        stop = _stop_of(choice.get("finish_reason"), refused=bool(refused), calls=bool(calls)) or StopReason.END
        return Reply(text or refused, calls, stop, tokens_of(payload), _model_of(payload))

    def stream(self) -> "OpenAiStream":
        """Begin to read a streamed answer."""
        return OpenAiStream(self._name)


class OpenAiStream:
    """Puts an answer together from chunks."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._text: list[str] = []
        self._refusal: list[str] = []
        self._calls: dict[int, dict[str, str]] = {}
        self._finish: object = None
        self._tokens: Tokens | None = None
        self._model: str | None = None
        self.done = False
        self.over = False
        self.size = 0

    def feed(self, event: str, data: str) -> None:
        """Take one chunk in. Raises LlmFailure for an error in the stream, or for what is no chunk."""
        if data.strip() == "[DONE]":
            self.done = self.over = True
            return
        try:
            chunk = json.loads(data)
        except (ValueError, RecursionError):
            raise LlmFailure("bad_response", f"{self._name}: a part of the stream is not JSON") from None
        if not isinstance(chunk, Mapping):
            return
        if chunk.get("error") or event == "error":
            raise failure_of(self._name, None, chunk)
        self._model = _model_of(chunk) or self._model
        self._tokens = tokens_of(chunk) or self._tokens
        for choice in a_list(chunk.get("choices"))[:1]:
            self._choice(a_table(choice))

    def _choice(self, choice: Mapping[str, Any]) -> None:
        if choice.get("error"):
            raise failure_of(self._name, None, choice)
        delta = a_table(choice.get("delta")) or a_table(choice.get("message"))
        self._text.append(a_text(delta.get("content")))
        self._refusal.append(a_text(delta.get("refusal")))
        self.size += len(self._text[-1]) + len(self._refusal[-1])
        for one in a_list(delta.get("tool_calls")):
            self._piece(a_table(one))
        if choice.get("finish_reason"):
            self._finish = choice["finish_reason"]
            self.done = True

    def _piece(self, piece: Mapping[str, Any]) -> None:
        """Add a piece of a tool's call: to the one of its index; without an index, a new id begins a new call."""
        named = a_text(piece.get("id"))
        index = piece.get("index")
        if not isinstance(index, int):
            last = max(self._calls, default=-1)
            index = last + 1 if last < 0 or (named and self._calls[last]["id"] != named) else last
        call = self._calls.setdefault(index, {"id": "", "name": "", "raw": ""})
        function = a_table(piece.get("function"))
        call["id"] = call["id"] or named
        call["name"] = call["name"] or a_text(function.get("name"))
        more = _arguments(function.get("arguments"))
        call["raw"] += more
        self.size += len(more)

    def reply(self) -> Reply:
        """Give what has come so far."""
        text, refused = "".join(self._text), "".join(self._refusal)
        calls = tuple(
            tool_call(call["id"] or f"call_{index}", call["name"], call["raw"])
            for index, call in sorted(self._calls.items())
        )
        stop = _stop_of(self._finish, refused=bool(refused), calls=bool(calls))
        if stop is None and self.done:
            stop = StopReason.TOOL_CALLS if calls else StopReason.END
        return Reply(text or refused, calls, stop, self._tokens, self._model)


def tokens_of(payload: Mapping[str, Any]) -> Tokens | None:
    """Read the usage, where there is one that says anything. Cached tokens are a part of the prompt's here."""
    usage = a_table(payload.get("usage")) or a_table(a_table(payload.get("x_groq")).get("usage"))
    if not usage:
        return None
    read, written = a_count(usage.get("prompt_tokens")), a_count(usage.get("completion_tokens"))
    if not read and not written:
        return None
    details = a_table(usage.get("prompt_tokens_details"))
    cached = a_count(details.get("cached_tokens")) or a_count(usage.get("prompt_cache_hit_tokens"))
    reasoning = a_count(a_table(usage.get("completion_tokens_details")).get("reasoning_tokens"))
    write = a_count(details.get("cache_write_tokens"))
    return Tokens(read, written, min(cached, read), min(write, max(0, read - cached)), min(reasoning, written))


def tool_call(id_: str, name: str, raw: str) -> ToolCall:
    """Make a tool's call from the text of its arguments; no text means none, what no JSON may hold is refused."""
    try:
        arguments = json.loads(raw) if raw.strip() else {}
    except (ValueError, RecursionError):
        arguments = None
    fit = isinstance(arguments, dict) and is_fit(arguments)
    return ToolCall(clean_text(id_), clean_text(name), arguments if fit else None, clean_text(raw))


def _call_of(call: Mapping[str, Any], index: int) -> ToolCall:
    function = a_table(call.get("function"))
    return tool_call(
        a_text(call.get("id")) or f"call_{index}", a_text(function.get("name")), _arguments(function.get("arguments"))
    )


def _arguments(value: object) -> str:
    """Read arguments: text by the book, an object with some."""
    return json.dumps(value) if isinstance(value, Mapping | list) else a_text(value)


def _stop_of(finish: object, *, refused: bool, calls: bool) -> StopReason | None:
    if refused:
        return StopReason.REFUSAL
    if not isinstance(finish, str) or not finish:
        return None
    found = _STOPS.get(finish.lower(), StopReason.END)
    return StopReason.TOOL_CALLS if calls and found is StopReason.END else found


def _model_of(payload: Mapping[str, Any]) -> str | None:
    return a_text(payload.get("model"))[:200] or None


def _message(message: Message) -> dict[str, Any]:
    if message.role == "tool":
        return {"role": "tool", "tool_call_id": message.tool_call_id or "", "content": message.text}
    spelled: dict[str, Any] = {"role": message.role, "content": message.text}
    if message.tool_calls:
        spelled["content"] = message.text or None
        spelled["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.raw or "{}"}}
            for call in message.tool_calls
        ]
    return spelled


def _tool(tool: Tool) -> dict[str, Any]:
    return {
        "type": "function",
        "function": {"name": tool.name, "description": tool.description, "parameters": dict(tool.parameters)},
    }


def _response_format(schema: Schema) -> dict[str, Any]:
    strict = strict_schema(schema.json_schema)
    spelled = {"name": schema.name, "schema": dict(strict or schema.json_schema), "strict": strict is not None}
    return {"type": "json_schema", "json_schema": spelled}


def _say_in_words(messages: list[dict[str, Any]], schema: Schema) -> None:
    """Tell the schema in the system's message, which some models want to come first and once."""
    if messages and messages[0]["role"] == "system":
        messages[0] = {"role": "system", "content": f"{messages[0]['content']}\n\n{in_words(schema)}"}
    else:
        messages.insert(0, {"role": "system", "content": in_words(schema)})
