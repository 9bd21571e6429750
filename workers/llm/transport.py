"""One request to a provider over HTTP: bounded in time and size, read whole or as a stream, nothing of it logged."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import httpx

from app.domain.llm import LlmFailure
from app.domain.provider_headers import asked_to_wait_seconds
from app.llm_settings import ProviderSettings
from app.telemetry.logs import redact
from workers.llm.errors import failure_of
from workers.llm.providers.base import Provider, Reply, ReplyStream
from workers.llm.streaming import EventReader

_DRAIN_SECONDS = 0.1
_MOST_ERROR_BYTES = 64 * 1024


@dataclass(slots=True)
class Endpoint:
    """One provider of the settings: its name, its dialect and its key, which is never shown."""

    name: str
    settings: ProviderSettings
    provider: Provider
    _key: str | None = field(default=None, repr=False)

    def headers(self) -> dict[str, str]:
        """Give the headers of a request. Raises LlmFailure (`permission`) when there is no usable key."""
        try:
            key = self.settings.read_key()
        except LookupError as error:
            raise LlmFailure("permission", f"{self.name} has no usable key: {error.args[0]}") from None
        if key is not None and key != self._key:
            redact(key)
            self._key = key
        own = {header: value.get_secret_value() for header, value in self.settings.headers.items()}
        return {"content-type": "application/json", **self.provider.headers(key), **own}


@dataclass(slots=True)
class Heard:
    """What one call has heard so far; it stays with the caller when the call is cut off."""

    sent: bool = False
    """Whether the provider may have the request: from then on it may cost something."""
    refused: bool = False
    """Whether the provider refused it with an error of its own: then it cost nothing."""
    stream: ReplyStream | None = None
    failure: LlmFailure | None = None

    def partial(self) -> Reply | None:
        """Give what has come of a stream."""
        return None if self.stream is None else self.stream.reply()


async def ask(
    client: httpx.AsyncClient,
    endpoint: Endpoint,
    body: Mapping[str, Any],
    *,
    max_answer_bytes: int,
    heard: Heard,
) -> Reply:
    """Send a request and read the answer to its end. Raises LlmFailure.

    The deadline bounds the whole call, also one whose answer drips; a provider that is silent for too long ends it
    sooner.
    """
    name, settings = endpoint.name, endpoint.settings
    try:
        async with asyncio.timeout(settings.deadline_seconds):
            return await _ask(client, endpoint, body, max_answer_bytes, heard)
    except TimeoutError:
        said = f"{name} did not answer to the end within {settings.deadline_seconds:g} seconds"
        raise LlmFailure("timeout", said) from None
    except (httpx.ConnectTimeout, httpx.PoolTimeout):
        heard.sent = False
        raise LlmFailure("connection", f"{name} cannot be reached in time") from None
    except httpx.TimeoutException:
        said = f"{name} was silent for {settings.silence_timeout_seconds:g} seconds"
        raise LlmFailure("timeout", said) from None
    except httpx.ConnectError:
        heard.sent = False
        raise LlmFailure("connection", f"{name} cannot be reached") from None
    except httpx.TransportError as error:
        raise LlmFailure("connection", f"the connection to {name} broke ({type(error).__name__})") from None
    except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError) as error:
        raise LlmFailure("bad_response", f"{name} gave no usable answer ({type(error).__name__})") from None


async def _ask(
    client: httpx.AsyncClient,
    endpoint: Endpoint,
    body: Mapping[str, Any],
    max_answer_bytes: int,
    heard: Heard,
) -> Reply:
    name, settings, headers = endpoint.name, endpoint.settings, endpoint.headers()
    seconds = settings.silence_timeout_seconds
    timeout = httpx.Timeout(seconds, connect=settings.connect_timeout_seconds)
    content = json.dumps(body).encode()
    heard.sent = True
    async with client.stream(
        "POST", settings.base_url + endpoint.provider.path, content=content, headers=headers, timeout=timeout
    ) as response:
        if response.status_code != 200:
            # A gateway that lost patience says nothing about what the model behind it has done.
            heard.refused = response.status_code not in (408, 504, 524)
            raise await _refusal(name, response)
        if "text/event-stream" in response.headers.get("content-type", ""):
            return await _read_events(name, endpoint.provider, response, max_answer_bytes, heard)
        return await _read_whole(name, endpoint.provider, response, max_answer_bytes, heard)


async def _refusal(name: str, response: httpx.Response) -> LlmFailure:
    headers = {header.lower(): value for header, value in response.headers.items()}
    wait = asked_to_wait_seconds(headers, datetime.now(UTC))
    content = bytearray()
    try:
        async for chunk in response.aiter_bytes():
            content += chunk
            if len(content) >= _MOST_ERROR_BYTES:
                break
        error: object = json.loads(bytes(content))
    except (httpx.HTTPError, ValueError, RecursionError):
        error = bytes(content).decode("utf-8", "replace")
    return failure_of(name, response.status_code, error, retry_after_seconds=wait)


async def _read_whole(name: str, provider: Provider, response: httpx.Response, most: int, heard: Heard) -> Reply:
    content = bytearray()
    async for chunk in response.aiter_bytes():
        content += chunk
        if len(content) > most:
            raise _too_large(name, most)
    try:
        payload = json.loads(bytes(content).decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        raise LlmFailure("bad_response", f"{name} answered 200 with something that is not JSON") from None
    if not isinstance(payload, Mapping):
        raise LlmFailure("bad_response", f"{name} answered 200 with JSON that is no object")
    heard.refused = bool(payload.get("error")) and not payload.get("choices")
    return provider.read(payload)


async def _read_events(name: str, provider: Provider, response: httpx.Response, most: int, heard: Heard) -> Reply:
    stream = heard.stream = provider.stream()
    events, size = EventReader(), 0
    chunks = response.aiter_bytes()
    async for chunk in chunks:
        size += len(chunk)
        for event, data in events.feed(chunk):
            stream.feed(event, data)
        if stream.over:
            await _drain(chunks)
            return stream.reply()
        # The frame of an event is many times as long as the few characters in it.
        if stream.size > most or size > 64 * most or events.pending > 2 * most:
            raise _too_large(name, most)
    for event, data in events.feed(b"", final=True):
        stream.feed(event, data)
    if not stream.done:
        raise LlmFailure("connection", f"the stream of {name} ended before the answer did")
    return stream.reply()


async def _drain(chunks: AsyncIterator[bytes]) -> None:
    """Read to the end of the body, so that the connection can be used again; but wait for no end that does not come."""
    with contextlib.suppress(TimeoutError, httpx.HTTPError):
        async with asyncio.timeout(_DRAIN_SECONDS):
            async for _ in chunks:
                pass


def _too_large(name: str, most: int) -> LlmFailure:
    return LlmFailure("answer_too_large", f"the answer of {name} has more than {most} bytes (max_answer_bytes)")
