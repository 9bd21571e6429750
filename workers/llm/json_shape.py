"""Answers that should fit a JSON schema which came with the task, instead of a type of the handler's own."""

from collections.abc import Callable, Mapping
from typing import Any

from jsonschema import Draft202012Validator, FormatChecker

from app.domain.json_text import NotJson, read_json
from app.domain.llm import Answer
from workers.llm.messages import Schema
from workers.llm.structured import ANSWER_TOOL, Misfit, Shape

_MOST_LISTED = 20
_FORMATS = FormatChecker(("date", "time", "email", "uuid"))
_SAID: Mapping[str, str] = {
    "type": "should be of type {limit}",
    "required": "lacks a field that is required",
    "additionalProperties": "has a field that the schema does not know",
    "enum": "should be one of the values that the schema lists",
    "const": "should be the value that the schema gives",
    "format": "should be a {limit}",
    "minimum": "should be at least {limit}",
    "maximum": "should be at most {limit}",
    "exclusiveMinimum": "should be above {limit}",
    "exclusiveMaximum": "should be below {limit}",
    "minLength": "should have at least {limit} characters",
    "maxLength": "should have at most {limit} characters",
    "minItems": "should have at least {limit} items",
    "maxItems": "should have at most {limit} items",
}


def misfits(schema: Mapping[str, Any], value: Any) -> list[str]:
    """Say where and how a value does not fit, at most 20 times, without any value. Empty where it fits."""
    found = []
    for error in Draft202012Validator(schema, format_checker=_FORMATS).iter_errors(value):
        place = ".".join(str(part)[:64] for part in error.absolute_path) or "answer"
        said = _SAID.get(str(error.validator), "does not fit the schema")
        limit = error.validator_value
        found.append(f"{place}: {said.format(limit=' or '.join(limit) if isinstance(limit, list) else limit)}")
        if len(found) == _MOST_LISTED:
            break
    return found


class JsonShape(Shape):
    """A JSON schema with an object at its root as the shape of an answer; `also` adds checks that no schema can say.

    `also` takes the value and gives what is wrong with it, each as `place: what would be right`.
    """

    def __init__(
        self, schema: Mapping[str, Any], *, name: str = "answer", also: Callable[[Any], list[str]] | None = None
    ) -> None:
        self.schema = Schema(name, schema)
        self._also = also

    def read(self, answer: Answer) -> Any:
        """Give the value of an answer that fits. Raises Misfit."""
        called = next((call for call in answer.tool_calls if call.name == ANSWER_TOOL), None)
        try:
            value = read_json(called.raw if called is not None else answer.text)
        except NotJson as error:
            raise Misfit([str(error)], [str(error)]) from None
        found = misfits(self.schema.json_schema, value)
        if not found and self._also is not None:
            found = self._also(value)
        if found:
            raise Misfit(found, found)
        return value
