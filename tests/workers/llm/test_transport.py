"""What providers do wrong: how each ends, what it costs, and when the task comes back."""

import json
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest
from pydantic import BaseModel

from app.domain.failure import classify
from app.domain.llm import LlmFailure
from tests.support.llm_provider import Say
from tests.workers.llm.worlds import LlmWorld

ASKED = [{"role": "user", "content": "tell me"}]


async def failure_of(
    world: LlmWorld, say: Say, *, kind: str = "openai", stream: bool = False, **settings: Any
) -> LlmFailure:
    """Have a call fail, and give its failure."""
    world.provider.say = say
    own = {name: settings.pop(name) for name in ("max_answer_bytes",) if name in settings}
    llm = world.llm(providers={"fake": world.provider.settings(kind, **settings)}, **own)
    ctx = await world.context(llm)
    with pytest.raises(LlmFailure) as failed:
        await ctx.llm.chat(ASKED, stream=stream)
    (call,) = await world.calls(ctx.task_id)
    assert call["outcome"] == failed.value.error_type
    failed.value.call = call  # type: ignore[attr-defined]
    return failed.value


@pytest.mark.parametrize("status", [429, 503, 529])
@pytest.mark.parametrize(
    ("headers", "least", "most"),
    [
        ({"Retry-After": "7"}, 7, 7),
        ({"Retry-After": "date"}, 5.5, 7.1),
        ({"retry-after-ms": "7250"}, 7.25, 7.25),
        ({"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "7s"}, 7, 7),
    ],
)
async def test_the_task_comes_back_when_the_provider_says(
    world: LlmWorld, status: int, headers: dict[str, str], least: float, most: float
) -> None:
    date = format_datetime(datetime.now(UTC) + timedelta(seconds=7), usegmt=True)
    failure = await failure_of(
        world, Say(status=status, headers={name: date if value == "date" else value for name, value in headers.items()})
    )

    known = classify(failure, datetime.now(UTC))

    assert known.retryable and known.retry_after_seconds is not None
    assert least <= known.retry_after_seconds <= most
    assert failure.call["cost_usd"] == 0 and not failure.call["estimated"]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("status", "error", "expected", "retryable"),
    [
        (401, {"error": {"message": "Incorrect key sk-CANARY-1"}}, "permission", False),
        (403, "<html>no</html>", "permission", False),
        (402, {}, "quota_exhausted", False),
        (429, {"error": {"code": "insufficient_quota", "message": "x"}}, "quota_exhausted", False),
        (429, {"error": {"type": "tokens", "message": "Rate limit reached"}}, "rate_limit", True),
        (400, {"error": {"code": "context_length_exceeded"}}, "context_length", False),
        (400, {"error": {"type": "invalid_request_error", "message": "prompt is too long"}}, "context_length", False),
        (400, {"error": {"message": "the request exceeds the available context size"}}, "context_length", False),
        (400, {"type": "error", "error": {"message": "Your credit balance is too low"}}, "quota_exhausted", False),
        (400, {"error": {"code": "content_filter", "message": "x"}}, "content_filter", False),
        (400, {"detail": [{"msg": "x"}]}, "invalid_request", False),
        (404, {"error": {"message": "The model `x` does not exist"}}, "unknown_model", False),
        (500, {"error": {"type": "overloaded_error"}}, "overloaded", True),
        (502, "bad gateway", "unavailable", True),
        (504, None, "timeout", True),
        (302, None, "bad_response", True),
    ],
)  # fmt: skip
async def test_a_refusal_is_named_by_what_it_means(
    world: LlmWorld, status: int, error: Any, expected: str, retryable: bool
) -> None:
    failure = await failure_of(world, Say(status=status, error=error, headers={"location": "http://127.0.0.1:1/"}))

    assert (failure.error_type, failure.retryable) == (expected, retryable)
    assert "CANARY" not in failure.message and "fake answered" in failure.message


@pytest.mark.parametrize(
    ("kind", "stream", "say", "expected"),
    [
        ("openai", False, Say(raw=b'{"error": {"message": "Overloaded", "code": 529}}'), "overloaded"),
        ("openai", False, Say(raw=b"<html>proxy</html>", content_type="text/html"), "bad_response"),
        ("openai", False, Say(raw=b'{"choices": []}'), "empty_answer"),
        ("openai", False, Say(raw=b'{"choices": [{"message": {"content": null}}]}'), "empty_answer"),
        ("openai", False, Say(raw=b'{"choices": [{"message": {"refusal": "no"}}]}'), "refused"),
        ("openai", False, Say(raw=b"[" * 100_000), "bad_response"),
        ("openai", False, Say(raw=b"\xff\xfe\x00"), "bad_response"),
        ("openai", False, Say(finish="length"), "truncated"),
        ("openai", True, Say(finish="content_filter"), "content_filter"),
        ("openai", True, Say(text="a b c", cut_after=2), "connection"),
        ("openai", True, Say(events=('data: {"choices": [{"delta": {"content": "x"}}]}',)), "connection"),
        ("openai", True, Say(events=('data: {"error": {"code": 429, "message": "slow down"}}',)), "rate_limit"),
        ("openai", True, Say(events=("data: {nonsense",)), "bad_response"),
        ("openai", True, Say(text=" ", usage=False), "empty_answer"),
        ("anthropic", False, Say(finish="refusal"), "refused"),
        ("anthropic", False, Say(finish="max_tokens"), "truncated"),
        ("anthropic", False, Say(raw=b'{"type": "error", "error": {"type": "overloaded_error"}}'), "overloaded"),
        ("anthropic", False, Say(raw=b"{}"), "bad_response"),
        ("anthropic", True, Say(text=None), "empty_answer"),
        ("anthropic", True, Say(text="a b c", cut_after=4), "connection"),
        (
            "anthropic", True,
            Say(events=('event: error\ndata: {"type": "error", "error": {"type": "overloaded_error"}}',)), "overloaded",
        ),
    ],
)  # fmt: skip
async def test_a_broken_answer_is_named_by_what_it_means(
    world: LlmWorld, kind: str, stream: bool, say: Say, expected: str
) -> None:
    failure = await failure_of(world, say, kind=kind, stream=stream)

    assert failure.error_type == expected


async def test_what_a_broken_stream_cost_is_estimated(world: LlmWorld) -> None:
    failure = await failure_of(world, Say(text="a b c d", cut_after=3), stream=True)

    call = failure.call  # type: ignore[attr-defined]
    assert call["estimated"] and call["output_tokens"] > 0 and call["cost_usd"] > 0


@pytest.mark.parametrize("stream", [False, True])
async def test_a_provider_that_accepts_and_says_nothing_ends_as_a_timeout(world: LlmWorld, stream: bool) -> None:
    failure = await failure_of(world, Say(silent_seconds=30), stream=stream, silence_timeout_seconds=0.2)

    call = failure.call  # type: ignore[attr-defined]
    assert (failure.error_type, failure.retryable, call["estimated"]) == ("timeout", True, True)
    assert call["input_tokens"] > 0 and call["cost_usd"] > 0


async def test_a_stream_that_drips_ends_at_the_deadline(world: LlmWorld) -> None:
    say = Say(text="a " * 500, drip_seconds=0.05)
    failure = await failure_of(world, say, stream=True, deadline_seconds=0.4)

    assert failure.error_type == "timeout" and "within 0.4 seconds" in failure.message


@pytest.mark.parametrize("kind", ["openai", "anthropic"])
async def test_a_stream_that_stays_open_after_its_end_is_not_waited_for(world: LlmWorld, kind: str) -> None:
    world.provider.say = Say(text="a b c", linger_seconds=30)
    ctx = await world.context(world.llm(providers={"fake": world.provider.settings(kind, deadline_seconds=15)}))

    answer = await ctx.llm.chat(ASKED, stream=True)

    assert (answer.text, answer.estimated) == ("a b c", False)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("kind", ["openai", "anthropic"])
async def test_five_megabytes_are_cut_off(world: LlmWorld, stream: bool, kind: str) -> None:
    failure = await failure_of(world, Say(text="x" * 5_000_000), kind=kind, stream=stream, max_answer_bytes=100_000)

    assert failure.error_type == "answer_too_large" and not failure.retryable
    assert failure.call["response"] is None  # type: ignore[attr-defined]


async def test_nobody_there_costs_nothing(world: LlmWorld) -> None:
    failure = await failure_of(world, Say(), base_url="http://127.0.0.1:1/v1")

    call = failure.call  # type: ignore[attr-defined]
    assert (failure.error_type, failure.retryable, call["cost_usd"], call["input_tokens"]) == ("connection", True, 0, 0)


async def test_a_key_that_is_missing_is_named_by_its_place(world: LlmWorld) -> None:
    failure = await failure_of(world, Say(), api_key_env="DESPACHO_TEST_NO_SUCH_KEY")

    assert failure.error_type == "permission" and "DESPACHO_TEST_NO_SUCH_KEY" in failure.message
    assert world.provider.calls == 0


async def test_keys_go_where_each_dialect_wants_them(world: LlmWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_LLM_KEY", "k-1234567")
    for kind in ("openai", "anthropic"):
        provider = world.provider.settings(kind, api_key_env="TEST_LLM_KEY", headers={"x-title": "despacho"})
        ctx = await world.context(world.llm(providers={"fake": provider}))
        await ctx.llm.chat(ASKED)

    first, second = world.provider.request_headers
    assert (first["authorization"], second["x-api-key"]) == ("Bearer k-1234567", "k-1234567")
    assert first["x-title"] == "despacho" and "anthropic-version" in second


class Note(BaseModel):
    text: str


@pytest.mark.parametrize("stream", [False, True])
async def test_nul_and_lone_surrogates_are_replaced_in_prose_and_refused_in_json(world: LlmWorld, stream: bool) -> None:
    world.prompt("note@1", "{{text}}")
    llm = world.llm()
    ctx = await world.context(llm)

    world.provider.say = Say(text="a\x00b\ud800c")
    assert await ctx.llm.complete("note@1", text="p\ud800q", stream=stream) == "a�b�c"
    world.provider.queue = [Say(text=json.dumps({"text": "a\ud800"})), Say(text='{"text": "ab"}')]
    note = await ctx.llm.complete("note@1", text="y", returns=Note, stream=stream)

    assert note.text == "ab"
    assert "lone surrogate" in json.dumps(world.provider.requests[-1])
    outcomes = [call["outcome"] for call in await world.calls(ctx.task_id)]
    assert outcomes == ["answered", "invalid_output", "answered"]
