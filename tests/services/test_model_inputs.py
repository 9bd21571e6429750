"""What is known of the models at submission: a choice that is not open is a 422 with its pointer, not a dead letter."""

import json
from typing import Any

import pytest

from app.llm_settings import LlmSettings, ProviderSettings, SubmittersSettings
from app.services.submission import _input_errors
from app.task_modules import load

SCHEMA = {"type": "object", "properties": {"total": {"type": "number"}}}
PROVIDERS = {"local": ProviderSettings(kind="openai", base_url="http://127.0.0.1:1/v1", model="small")}


def errors(task_type: str, given: dict[str, Any], **settings: Any) -> list[tuple[str, str]]:
    known = {"llm": LlmSettings(**{"providers": PROVIDERS, **settings})}
    found = _input_errors(load(())[task_type], json.dumps(given), known)
    return [(one.pointer, one.detail) for one in found]


@pytest.mark.parametrize(
    ("task_type", "given"),
    [
        ("extract_fields", {"text": "x", "schema": SCHEMA}),
        ("extract_fields", {"text": "x", "schema": SCHEMA, "provider": "local", "model": "small"}),
        ("llm_completion", {"text": "x"}),
        ("classify_document", {"text": "x", "engine": "llm", "provider": "local"}),
    ],
)
def test_what_is_open_is_taken(task_type: str, given: dict[str, Any]) -> None:
    assert errors(task_type, given) == []


@pytest.mark.parametrize(
    ("task_type", "given", "pointer"),
    [
        ("extract_fields", {"text": "x", "schema": SCHEMA}, "#/input/provider"),
        ("llm_completion", {"text": "x"}, "#/input/provider"),
        ("classify_document", {"text": "x", "engine": "llm"}, "#/input/engine"),
    ],
)
def test_without_any_provider_it_is_said_at_once(task_type: str, given: dict[str, Any], pointer: str) -> None:
    assert [one[0] for one in errors(task_type, given, providers={})] == [pointer]


def test_the_engine_rules_needs_no_provider() -> None:
    assert errors("classify_document", {"text": "x"}, providers={}) == []


@pytest.mark.parametrize(
    ("given", "pointer"),
    [
        ({"text": "x", "provider": "canary"}, "#/input/provider"),
        ({"text": "x", "model": "canary"}, "#/input/model"),
        ({"prompt": "canary@1"}, "#/input/prompt"),
        ({"messages": [{"role": "user", "content": "canary"}]}, "#/input/messages"),
        ({"text": "canary"}, "#/input/text"),
    ],
)
def test_a_choice_that_is_not_open_is_refused_with_its_place(given: dict[str, Any], pointer: str) -> None:
    found = errors("llm_completion", given, submitters=SubmittersSettings(prompts=["greet"], own_words=False))

    assert pointer in [one[0] for one in found]
    assert "canary" not in str(found)


@pytest.mark.parametrize(
    ("schema", "pointer"),
    [
        ({"type": "object", "properties": {"total": {"type": "number", "minimum": "x"}}}, "/properties/total/minimum"),
        ({"type": "object", "properties": {"a": {"type": "string", "pattern": "(a+)+"}}}, "/properties/a"),
        ({"type": "array"}, "/type"),
        ({}, "/type"),
    ],
)
def test_a_schema_outside_of_the_subset_is_refused_with_the_place_in_it(schema: Any, pointer: str) -> None:
    assert [one[0] for one in errors("extract_fields", {"text": "x", "schema": schema})] == [f"#/input/schema{pointer}"]
