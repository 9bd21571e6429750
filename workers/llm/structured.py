"""Answers with a shape: the schema that goes to the model, and the checking of what comes back."""

import json
from collections.abc import Mapping
from typing import Any

from pydantic import TypeAdapter, ValidationError

from app.domain.json_text import NotJson, read_json
from app.domain.llm import Answer
from workers.llm.messages import Message, Schema, Tool

ANSWER_TOOL = "answer"
_MOST_LISTED = 20
_MOST_REPEATED = 20_000
_WRAPPED = "value"


class Misfit(Exception):
    """An answer that does not fit; `places` say where and why without a value, `told` is for the model."""

    def __init__(self, places: list[str], told: list[str]) -> None:
        super().__init__("the answer does not fit its schema")
        self.places = places
        self.told = told


class Shape:
    """The type that an answer should have. One that is no object in JSON travels as `{"value": …}`."""

    def __init__(self, returns: Any) -> None:
        """Take a pydantic model, or any type that pydantic knows. Raises TypeError for another."""
        try:
            self._adapter: TypeAdapter[Any] = TypeAdapter(returns)
            schema = self._adapter.json_schema()
        except Exception as error:
            raise TypeError(f"returns should be a type that pydantic knows ({type(error).__name__})") from None
        self._wrapped = not _is_object(schema)
        if self._wrapped:
            definitions = schema.pop("$defs", None)
            schema = {"type": "object", "properties": {_WRAPPED: schema}, "required": [_WRAPPED]}
            if definitions:
                schema["$defs"] = definitions
        name = getattr(returns, "__name__", "answer")
        self.schema = Schema(
            "".join(c for c in name if c.isascii() and (c.isalnum() or c in "_-"))[:60] or "answer", schema
        )

    def read(self, answer: Answer) -> Any:
        """Give the validated value of an answer. Raises Misfit."""
        called = next((call for call in answer.tool_calls if call.name == ANSWER_TOOL), None)
        try:
            value = read_json(called.raw if called is not None else answer.text)
        except NotJson as error:
            raise Misfit([str(error)], [str(error)]) from None
        if self._wrapped:
            if not isinstance(value, dict) or value.keys() != {_WRAPPED}:
                said = f"the answer should be an object with the one member {_WRAPPED}"
                raise Misfit([said], [said])
            value = value[_WRAPPED]
        try:
            return self._adapter.validate_json(json.dumps(value))
        except ValidationError as error:
            raise _misfit(error) from None


def repair_messages(answer: Answer, misfit: Misfit) -> tuple[Message, Message]:
    """Give the model its own answer back with what is wrong with it."""
    called = next((call.raw for call in answer.tool_calls if call.name == ANSWER_TOOL), None)
    said = (called if called is not None else answer.text)[:_MOST_REPEATED]
    listed = "\n".join(f"- {line}" for line in misfit.told)
    return (
        Message("assistant", said or "(nothing)"),
        Message(
            "user",
            f"That answer cannot be used:\n{listed}\n"
            "Answer again, completely, with JSON that fits the schema, and with nothing else.",
        ),
    )


def in_words(schema: Schema) -> str:
    """Ask for the schema in words, for models that take no other way."""
    text = json.dumps(schema.json_schema, separators=(",", ":"))
    return f"Answer with one JSON object that fits this JSON schema, and with nothing else:\n{text}"


def answer_tool(schema: Schema) -> Tool:
    """Give the tool that a model has to call with its answer."""
    return Tool(ANSWER_TOOL, "Give the answer.", schema.json_schema)


def strict_schema(schema: Mapping[str, Any]) -> dict[str, Any] | None:
    """Give the schema as OpenAI's strict mode wants it (every object closed), or None where that would change it.

    Strict mode wants every property required; a property with a default, or an object with free names, rules it out.
    """
    try:
        closed = _closed(dict(schema))
    except ValueError:
        return None
    return closed if isinstance(closed, dict) else None


def _closed(node: Any) -> Any:
    if isinstance(node, list):
        return [_closed(one) for one in node]
    if not isinstance(node, dict):
        return node
    if node.get("type") == "object" or "properties" in node:
        properties = node.get("properties")
        if not properties or set(node.get("required", ())) != set(properties) or node.get("additionalProperties"):
            raise ValueError("open")
        node = {**node, "additionalProperties": False}
    if "default" in node:
        raise ValueError("default")
    return {
        name: ({key: _closed(one) for key, one in value.items()} if name in ("properties", "$defs") else _closed(value))
        for name, value in node.items()
    }


def _is_object(schema: Mapping[str, Any]) -> bool:
    if "$ref" in schema:
        name = str(schema["$ref"]).rpartition("/")[2]
        return _is_object(schema.get("$defs", {}).get(name, {}))
    return schema.get("type") == "object"


def _misfit(error: ValidationError) -> Misfit:
    places, told = [], []
    found = error.errors(include_url=False, include_context=False, include_input=False)
    for one in found[:_MOST_LISTED]:
        place = ".".join(str(part)[:64] for part in one["loc"]) or "answer"
        told.append(f"{place}: {one['msg'][:300]}")
        # A validator's own text may repeat the value.
        own = one["type"] in ("value_error", "assertion_error")
        places.append(f"{place}: {'is not valid' if own else one['msg'][:200]}")
    if len(found) > _MOST_LISTED:
        more = f"and {len(found) - _MOST_LISTED} more"
        places.append(more)
        told.append(more)
    return Misfit(places, told)
