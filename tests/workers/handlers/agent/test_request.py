"""What an agent may be asked, and what tools may be declared: refused before anything begins."""

from collections.abc import Callable
from typing import Any

import pytest
from pydantic import ValidationError

from app.tools import TOOL_MARK
from despacho import tool
from workers.handlers.agent.request import AgentTask
from workers.handlers.agent.shelf import shelf

KANARIE = "kanarie"


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"tools": [KANARIE]}, "should be tools that are allowed here"),
        ({"tools": ["files.read"]}, "should be tools that are allowed here"),
        ({"goal": ""}, "at least 1"),
        ({"max_turns": 51}, "max_turns should be at most 50"),
        ({"max_tokens": 2_000_000}, "max_tokens should be at most"),
        ({"max_cost_usd": "5.01"}, "max_cost_usd should be at most 5"),
        ({"max_cost_usd": "NaN"}, "finite"),
        ({"max_seconds": 1e9}, "max_seconds should be at most"),
        ({"max_turns": 0}, "greater than or equal to 1"),
        ({"result_schema": {"type": KANARIE}}, "should be a JSON schema"),
        ({"result_schema": {"$ref": "http://kanarie.example/x"}}, "refers to nothing outside"),
        ({"result_schema": {"properties": {"a": {"pattern": "(a+)+$"}}}}, "should hold no pattern"),
        ({"result_schema": {"title": "a" * 70_000}}, "at most 64 KiB"),
        ({"unknown": 1}, "Extra inputs"),
    ],
)
def test_what_cannot_be_done_is_refused_without_its_values(
    allowed: pytest.MonkeyPatch, fields: dict[str, Any], why: str
) -> None:
    with pytest.raises(ValidationError) as refused:
        AgentTask.model_validate({"goal": "g", **fields})

    said = str([error["msg"] for error in refused.value.errors()])
    assert why in said and KANARIE not in said


def test_only_what_the_operator_allows_may_be_named(allowed: pytest.MonkeyPatch) -> None:
    AgentTask.model_validate({"goal": "g", "tools": ["create_ticket", "look_up"]})
    allowed.setenv("DESPACHO_AGENT__TOOLS", "look_up")
    shelf.cache_clear()

    with pytest.raises(ValidationError, match="finish, look_up, read_document"):
        AgentTask.model_validate({"goal": "g", "tools": ["create_ticket"]})


def test_a_property_may_be_called_pattern(allowed: pytest.MonkeyPatch) -> None:
    schema = {"type": "object", "properties": {"pattern": {"type": "string", "enum": ["pattern"]}}}

    assert AgentTask.model_validate({"goal": "g", "result_schema": schema}).result_schema == schema


def _typed(a: int) -> None:
    """Do it."""


def _untyped(a) -> None:  # type: ignore[no-untyped-def]
    """Do it."""


def _starred(*a: int) -> None:
    """Do it."""


def _silent(a: int) -> None: ...


def _keyed(a: int, *, idempotency_key: str) -> None:
    """Do it."""


def _odd(a: Callable[[], None]) -> None:
    """Do it."""


@pytest.mark.parametrize(
    ("name", "function", "options", "why"),
    [
        ("Bad name", _typed, {}, "its name should be"),
        ("finish", _typed, {}, "its name should be"),
        ("a", _untyped, {}, "the argument a should have a type"),
        ("a", _starred, {}, "names of their own"),
        ("a", _silent, {}, "should tell the model"),
        ("a", _keyed, {}, "only an effect"),
        ("a", _odd, {}, "cannot be a JSON schema"),
        ("a", _typed, {"timeout_seconds": 0}, "timeout_seconds should be"),
        ("a", _typed, {"timeout_seconds": float("nan")}, "timeout_seconds should be"),
        ("a", _typed, {"repeatable": True}, "are for effects"),
        ("a", _typed, {"effect": True, "honours_key_for_seconds": -1}, "honours_key_for_seconds should be"),
    ],
)
def test_a_tool_that_cannot_work_is_refused_when_it_is_declared(
    name: str, function: Callable[..., Any], options: dict[str, Any], why: str
) -> None:
    with pytest.raises((TypeError, ValueError), match=why):
        tool(name, **options)(function)


def test_a_tools_arguments_are_its_schema() -> None:
    @tool("book", destructive=True)
    def book(ctx: Any, seat: int, *, note: str = "", idempotency_key: str) -> None:
        """Book a seat."""

    made = getattr(book, TOOL_MARK)
    assert (made.effect, made.takes_context, made.takes_key, made.description) == (True, True, True, "Book a seat.")
    assert made.parameters()["required"] == ["seat"] and set(made.parameters()["properties"]) == {"seat", "note"}
