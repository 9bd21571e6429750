"""A model provider on the loopback that speaks both dialects, does what it is told, and counts what it answered.

It is bare asyncio, so that it can drip, fall silent, break off and lie about JSON as real ones do. Its tokens are the
words of what it is asked and of what it answers; it bills `INPUT_USD` and `OUTPUT_USD` a token.
"""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from app.llm_settings import ModelPrice, ProviderSettings

MODEL = "fake-1"
INPUT_USD = Decimal("0.000003")
OUTPUT_USD = Decimal("0.000015")
PRICE = {
    "input_usd_per_million_tokens": "3",
    "output_usd_per_million_tokens": "15",
    "cached_usd_per_million_tokens": "0.3",
    "as_of": "2026-11-01",
}


@dataclass(frozen=True)
class Say:
    """One scripted behaviour. Without any, it answers `text` in the dialect and manner (streamed or not) asked for.

    `status` not 200 answers that with `error` as body; `raw` sends these bytes as the body as they are; `events` sends
    these as the stream's data; `silent_seconds` accepts and says nothing; `drip_seconds` waits between events;
    `cut_after` breaks the connection after so many events; `usage` False tells none.
    """

    text: str | None = "fine"
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    error: Any = None
    raw: bytes | None = None
    content_type: str | None = None
    events: tuple[str, ...] | None = None
    silent_seconds: float = 0.0
    drip_seconds: float = 0.0
    cut_after: int | None = None
    linger_seconds: float = 0.0
    """How long a stream stays open after its last event."""
    usage: bool = True
    usage_in: str = "last"
    """Where a stream tells its usage: `last` (with the finish) or `empty` (a chunk of its own, without choices)."""
    finish: str | None = None
    tool_calls: tuple[tuple[str, str], ...] = ()
    """(name, arguments as text)."""
    cached: int = 0
    reasoning: int = 0
    done: bool = True
    """Whether an OpenAI stream ends with [DONE]."""
    as_tool: bool = False
    """Whether the text goes into the call of the tool that the request demands."""


Script = Callable[[Mapping[str, Any]], Say]


class FakeProvider:
    """One server. `script` says what to do with a request; by default it answers `say`."""

    def __init__(self) -> None:
        self.say = Say()
        self.queue: list[Say] = []
        self.script: Script | None = None
        self.requests: list[dict[str, Any]] = []
        self.request_headers: list[dict[str, str]] = []
        self.answered = 0
        self.input_tokens = 0
        self.output_tokens = 0
        self.cut_off = 0
        """Calls whose client went away before the end."""
        self.port = 0
        self._running: set[asyncio.Task[None]] = set()

    @property
    def calls(self) -> int:
        """How many requests came."""
        return len(self.requests)

    @property
    def cost_usd(self) -> Decimal:
        """What it would bill for all that it answered."""
        return self.input_tokens * INPUT_USD + self.output_tokens * OUTPUT_USD

    def settings(self, kind: str = "openai", **more: Any) -> ProviderSettings:
        """Give the settings of a provider that is this server; its model has a price."""
        values: dict[str, Any] = {
            "kind": kind,
            "base_url": f"http://127.0.0.1:{self.port}/v1",
            "model": MODEL,
            "prices": {MODEL: ModelPrice.model_validate(PRICE)},
            "deadline_seconds": 20.0,
            "silence_timeout_seconds": 20.0,
        }
        return ProviderSettings(**(values | more))

    def environment(self, kind: str = "openai", **more: Any) -> str:
        """Spell the same as DESPACHO_LLM__PROVIDERS."""
        provider = {"kind": kind, "base_url": f"http://127.0.0.1:{self.port}/v1", "model": MODEL}
        return json.dumps({"fake": provider | {"prices": {MODEL: PRICE}} | more})

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection: one request, one answer."""
        task = asyncio.current_task()
        assert task is not None
        self._running.add(task)
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            first, *lines = head.strip().split("\r\n")
            headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
            body = json.loads(await reader.readexactly(int(headers.get("content-length", "0"))))
            self.requests.append(body)
            self.request_headers.append(headers)
            say = self.queue.pop(0) if self.queue else self.script(body) if self.script else self.say
            await self._answer(writer, say, body, anthropic=first.split()[1].endswith("/messages"))
        except (ConnectionError, asyncio.IncompleteReadError):
            self.cut_off += 1
        finally:
            self._running.discard(task)
            writer.close()
            with contextlib.suppress(Exception):
                await writer.wait_closed()

    async def close(self) -> None:
        """End what is still being answered."""
        for task in set(self._running):
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)

    async def _answer(
        self, writer: asyncio.StreamWriter, say: Say, body: Mapping[str, Any], *, anthropic: bool
    ) -> None:
        if say.silent_seconds:
            await asyncio.sleep(say.silent_seconds)
        if say.status != 200:
            content = json.dumps(say.error or {"error": {}}).encode()
            await self._send(writer, say, content, "application/json")
        elif say.raw is not None:
            await self._send(writer, say, say.raw, say.content_type or "application/json")
        else:
            await self._speak(writer, say, body, anthropic)

    async def _speak(self, writer: asyncio.StreamWriter, say: Say, body: Mapping[str, Any], anthropic: bool) -> None:
        read, written = words_of(body), len((say.text or "").split()) + say.reasoning
        self.answered += 1
        self.input_tokens += read
        self.output_tokens += written
        dialect = _anthropic if anthropic else _openai
        whole, events = dialect(say, body, read, written)
        if not body.get("stream"):
            await self._send(writer, say, json.dumps(whole).encode(), "application/json")
        else:
            await self._stream(writer, say, list(say.events) if say.events is not None else events)

    async def _send(self, writer: asyncio.StreamWriter, say: Say, content: bytes, content_type: str) -> None:
        writer.write(_head(say, say.content_type or content_type, len(content)) + content)
        await writer.drain()

    async def _stream(self, writer: asyncio.StreamWriter, say: Say, events: list[str]) -> None:
        writer.write(_head(say, "text/event-stream", None))
        for i, event in enumerate(events):
            if i == say.cut_after:
                return
            writer.write(b": keep-alive\n\n" + event.encode() + b"\n\n")
            await writer.drain()
            if say.drip_seconds:
                await asyncio.sleep(say.drip_seconds)
                if writer.transport.is_closing():
                    raise ConnectionResetError
        if say.linger_seconds:
            await asyncio.sleep(say.linger_seconds)


def words_of(body: Mapping[str, Any]) -> int:
    """Count the words of a request's messages."""
    texts: list[str] = []

    def gather(value: Any) -> None:
        if isinstance(value, str):
            texts.append(value)
        elif isinstance(value, list):
            for one in value:
                gather(one)
        elif isinstance(value, Mapping):
            gather(value.get("content"))
            gather(value.get("text"))

    gather(body.get("system"))
    gather(body.get("messages"))
    return sum(len(text.split()) for text in texts)


def _head(say: Say, content_type: str, length: int | None) -> bytes:
    lines = [f"HTTP/1.1 {say.status} X", f"content-type: {content_type}", "connection: close"]
    lines += [f"{name}: {value}" for name, value in say.headers.items()]
    if length is not None:
        lines.append(f"content-length: {length}")
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


def _openai(say: Say, body: Mapping[str, Any], read: int, written: int) -> tuple[dict[str, Any], list[str]]:
    usage = {
        "prompt_tokens": read,
        "completion_tokens": written,
        "prompt_tokens_details": {"cached_tokens": say.cached},
        "completion_tokens_details": {"reasoning_tokens": say.reasoning},
    }
    calls = [*say.tool_calls, *([("answer", say.text or "")] if say.as_tool else [])]
    spelled = [
        {"id": f"call_{i}", "type": "function", "function": {"name": name, "arguments": raw}}
        for i, (name, raw) in enumerate(calls)
    ]
    text = None if say.as_tool else say.text
    finish = say.finish or ("tool_calls" if spelled else "stop")
    message: dict[str, Any] = {"role": "assistant", "content": text}
    if spelled:
        message["tool_calls"] = spelled
    whole: dict[str, Any] = {"model": body["model"], "choices": [{"message": message, "finish_reason": finish}]}
    told = {"usage": usage} if say.usage else {}
    chunks: list[dict[str, Any]] = [
        {"choices": [{"delta": {"content": piece}}]} for piece in (text or "").split(" ") if text
    ]
    for i, chunk in enumerate(chunks[1:]):
        chunk["choices"][0]["delta"]["content"] = f" {chunk['choices'][0]['delta']['content']}"
        chunk["i"] = i
    chunks += [{"choices": [{"delta": {"tool_calls": [{"index": i, **one}]}}]} for i, one in enumerate(spelled)]
    last = {"choices": [{"delta": {}, "finish_reason": finish}]}
    chunks += [last | told] if say.usage_in == "last" else [last, {"choices": []} | told]
    events = [f"data: {json.dumps({'model': body['model']} | chunk)}" for chunk in chunks]
    return whole | told, [*events, *(["data: [DONE]"] if say.done else [])]


def _anthropic(say: Say, body: Mapping[str, Any], read: int, written: int) -> tuple[dict[str, Any], list[str]]:
    usage = {"input_tokens": read - say.cached, "output_tokens": written, "cache_read_input_tokens": say.cached}
    calls = [*say.tool_calls, *([("answer", say.text or "")] if say.as_tool else [])]
    finish = say.finish or ("tool_use" if calls else "end_turn")
    blocks: list[dict[str, Any]] = []
    if say.text is not None and not say.as_tool:
        blocks.append({"type": "text", "text": say.text})
    blocks += [
        {"type": "tool_use", "id": f"toolu_{i}", "name": name, "input": json.loads(raw)}
        for i, (name, raw) in enumerate(calls)
    ]
    whole: dict[str, Any] = {"type": "message", "model": body["model"], "content": blocks, "stop_reason": finish}
    begin = usage | {"output_tokens": 1}
    events: list[tuple[str, dict[str, Any]]] = [
        ("message_start", {"message": {"model": body["model"]} | ({"usage": begin} if say.usage else {})}),
        ("ping", {}),
    ]
    for i, block in enumerate(blocks):
        empty = {**block, "text": ""} if block["type"] == "text" else {**block, "input": {}}
        events.append(("content_block_start", {"index": i, "content_block": empty}))
        text = block["text"] if block["type"] == "text" else json.dumps(block["input"])
        kind, name = ("text_delta", "text") if block["type"] == "text" else ("input_json_delta", "partial_json")
        size = max(7, len(text) // 500)
        events += [
            ("content_block_delta", {"index": i, "delta": {"type": kind, name: text[at : at + size]}})
            for at in range(0, len(text), size)
        ]
        events.append(("content_block_stop", {"index": i}))
    told = {"usage": {"output_tokens": written}} if say.usage else {}
    events += [("message_delta", {"delta": {"stop_reason": finish}} | told), ("message_stop", {})]
    spelled = [f"event: {name}\ndata: {json.dumps({'type': name} | data)}" for name, data in events]
    return whole | ({"usage": usage} if say.usage else {}), spelled


@asynccontextmanager
async def a_provider() -> AsyncIterator[FakeProvider]:
    """Have a provider that listens on a free port of the loopback."""
    provider = FakeProvider()
    server = await asyncio.start_server(provider.handle, "127.0.0.1", 0, limit=64 * 1024 * 1024)
    provider.port = server.sockets[0].getsockname()[1]
    try:
        yield provider
    finally:
        server.close()
        await provider.close()
