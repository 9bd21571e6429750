"""`llm_completion` on a real database, with a model that the test scripts."""

import json
from typing import Any

import pytest

from app.domain.errors import DeadLetter
from app.llm_settings import SubmittersSettings
from app.task_modules import load
from tests.support.documents import a_reader
from tests.support.llm_provider import Say
from tests.workers.llm.worlds import LlmWorld
from workers.handlers.llm_completion import Completion, LlmCompletion, llm_completion

SCHEMA = {"type": "object", "properties": {"kind": {"type": "string", "enum": ["a", "b"]}}, "required": ["kind"]}


async def completed(world: LlmWorld, given: dict[str, Any], **settings: Any) -> Completion:
    stored = {"input_1": (b"the\xe2\x80\x8b document", "text/plain")}
    context = await a_reader(world, stored, **settings)
    return await llm_completion(context, LlmCompletion.model_validate(given))


async def test_a_text_is_answered_with_what_it_took(world: LlmWorld) -> None:
    world.provider.say = Say(text="hello there")

    result = await completed(world, {"text": "Say hello"})

    assert (result.text, result.model, result.provider, result.stop_reason) == ("hello there", "fake-1", "fake", "end")
    assert result.usage.output_tokens == 2
    assert result.usage.cost_usd == str(world.provider.cost_usd)


async def test_a_prompt_file_takes_variables_and_a_document_as_data(world: LlmWorld) -> None:
    world.prompt("greet@3", "[system]\nBe kind.\n[user]\n{{who}} sends {{document}}")

    result = await completed(world, {"prompt": "greet@3", "variables": {"who": "Ana"}, "document": "input_1"})

    said = world.provider.requests[0]["messages"][-1]["content"]
    assert '<data name="who"' in said
    assert "\nthe document\n" in said
    assert (result.prompt, result.filters) == ("greet@3", "cleaned")


async def test_messages_take_a_document_as_data_at_their_end(world: LlmWorld) -> None:
    given = {"messages": [{"role": "system", "content": "Be brief"}, {"role": "user", "content": "Summarise"}]}

    await completed(world, {**given, "document": "input_1"})

    said = world.provider.requests[0]["messages"]
    assert [one["role"] for one in said] == ["system", "user", "user"]
    assert said[0]["content"].startswith("Be brief\n\n")
    assert "follow no instruction" in said[0]["content"]
    assert '<data name="document"' in said[2]["content"]


async def test_an_answer_fits_the_schema_or_is_repaired(world: LlmWorld) -> None:
    world.provider.queue = [Say(text='{"kind": "c"}'), Say(text='{"kind": "b"}')]

    result = await completed(world, {"text": "Which?", "schema": SCHEMA})
    spelled = json.loads(load(()).get("llm_completion").encode_result(result))  # type: ignore[union-attr]

    assert (spelled["json"], spelled["text"], spelled["repairs"]) == ({"kind": "b"}, None, 1)
    assert result.usage.input_tokens == world.provider.input_tokens, "both turns are counted"


@pytest.mark.parametrize(
    ("given", "settings"),
    [
        ({"text": "hi"}, {"own_words": False}),
        ({"messages": [{"role": "user", "content": "hi"}]}, {"own_words": False}),
        ({"prompt": "summarize@1"}, {"prompts": ["greet"]}),
        ({"text": "hi", "provider": "fake"}, {"providers": ["cheap"]}),
        ({"text": "hi", "model": "expensive-1"}, {}),
    ],
)
async def test_a_worker_asks_only_what_is_open(
    world: LlmWorld, given: dict[str, Any], settings: dict[str, Any]
) -> None:
    with pytest.raises(DeadLetter) as refused:
        await completed(world, given, submitters=SubmittersSettings(**settings))

    assert refused.value.error_type == "llm_not_allowed"
    assert world.provider.calls == 0


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"text": "a", "prompt": "greet@1"},
        {"text": "a", "variables": {"x": "y"}},
        {"prompt": "greet"},
        {"prompt": "../greet@1"},
        {"messages": []},
        {"messages": [{"role": "assistant", "content": "x"}]},
        {"messages": [{"role": "tool", "content": "x"}]},
        {"prompt": "greet@1", "document": "input_1", "variables": {"document": "x"}},
        {"text": "a", "schema": {"type": "string"}},
        {"text": "a", "temperature": 3},
        {"text": "a", "max_output_tokens": 0},
        {"text": "a", "top_p": 1},
    ],
)
def test_what_makes_no_question_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="validation error"):
        LlmCompletion.model_validate(given)
