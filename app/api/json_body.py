"""Reading JSON bodies strictly: what is not JSON is 400, what cannot be kept or does not validate is 422.

Cheap checks come first; the walks over every value happen only for bodies that hold an escape or a huge number.
Of a key that is repeated in one object the last value counts, as in most readers.
"""

import json
import math
import re
from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

import msgspec
from pydantic import BaseModel, TypeAdapter, ValidationError

from app.services.errors import FieldError, Invalid, ServiceError
from app.task_modules import schema_field_names

M = TypeVar("M", bound=BaseModel)

MAX_DEPTH = 64
_MAX_ERRORS = 50

_NOT_BRACKETS = re.compile(rb'"(?:[^"\\]|\\.)*"|[^\[\]{}"]+', re.DOTALL)
_TO_SQUARE = bytes.maketrans(b"{}", b"[]")
_ESCAPE = b"\\u"
_MAYBE_HUGE = re.compile(rb"[0-9][eE]|[0-9]{300}")
_UNKEEPABLE = re.compile("[\x00\ud800-\udfff]")

# Pydantic's own messages of these kinds may repeat what was sent, or say nothing that helps.
_INSTEAD = {
    "value_error": "the value is refused here",
    "assertion_error": "the value is refused here",
    "json_invalid": "not valid JSON",
    "union_tag_invalid": "not one of the known kinds",
    "extra_forbidden": "a field that is not known here",
}


def malformed(why: str) -> ServiceError:
    """Say that the body is not JSON."""
    return ServiceError("malformed_json", f"The body is not JSON that can be read here: {why}.")


def check_json(raw: bytes) -> None:
    """Check syntax, encoding and depth. Raises malformed_json."""
    try:
        raw.decode()
    except UnicodeDecodeError:
        raise malformed("it is not UTF-8") from None
    if not raw.strip():
        raise malformed("it is empty")
    if raw.count(b"[") + raw.count(b"{") > MAX_DEPTH and _is_deep(raw):
        raise malformed(f"it is nested deeper than {MAX_DEPTH} levels")


def _is_deep(raw: bytes) -> bool:
    """Strip one level of brackets at a time: no recursion, and the work shrinks with every level."""
    brackets = _NOT_BRACKETS.sub(b"", raw).translate(_TO_SQUARE)
    for _ in range(MAX_DEPTH):
        brackets = brackets.replace(b"[]", b"")
        if not brackets:
            return False
    return True


def check_values(raw: bytes, names: frozenset[str]) -> None:
    """Refuse NUL, lone surrogates and numbers beyond what a float can hold, wherever they stand. Raises Invalid.

    `raw` is checked JSON; `names` are the only names that an error may point at.
    """
    if _ESCAPE not in raw and _MAYBE_HUGE.search(raw) is None:
        return
    try:
        value = json.loads(raw, parse_constant=_not_json)
    except (ValueError, RecursionError):
        raise malformed("its syntax is wrong") from None
    errors = list(_unkeepable(value, (), names))[:_MAX_ERRORS]
    if errors:
        raise Invalid(errors)


def _not_json(constant: str) -> None:
    raise ValueError("NaN and Infinity are not JSON")


def _unkeepable(value: object, path: tuple[str, ...], names: frozenset[str]) -> Iterable[FieldError]:
    match value:
        case str() if _UNKEEPABLE.search(value):
            yield FieldError(pointer(path, names), "holds NUL or half of a surrogate pair, which cannot be kept")
        case float() if not math.isfinite(value):
            yield FieldError(pointer(path, names), "is a number beyond what a double can hold")
        case dict():
            for key, one in value.items():
                if _UNKEEPABLE.search(key):
                    yield FieldError(
                        pointer(path, names), "has a name with NUL or half of a surrogate pair, which cannot be kept"
                    )
                yield from _unkeepable(one, (*path, key), names)
        case list():
            for index, one in enumerate(value):
                yield from _unkeepable(one, (*path, str(index)), names)


def check_syntax(raw: bytes) -> None:
    """Check the syntax: pydantic's parser takes NaN and Infinity for numbers. Raises malformed_json."""
    try:
        msgspec.json.decode(raw, type=msgspec.Raw)
    except (msgspec.DecodeError, RecursionError):
        raise malformed("its syntax is wrong") from None


def pointer(location: Iterable[str | int], names: frozenset[str]) -> str:
    """Spell a JSON Pointer up to the first part that only the sender named."""
    kept = ["#"]
    for part in location:
        if isinstance(part, int) or part.isdecimal():
            kept.append(str(part))
        elif part in names:
            kept.append(part)
        else:
            break
    return "/".join(kept)


def field_errors(
    error: ValidationError, names: frozenset[str], *, later: frozenset[str] = frozenset()
) -> list[FieldError]:
    """Translate pydantic's findings; nothing of the value goes along. `later` names fields of a later release."""
    found = error.errors(include_url=False, include_context=False, include_input=False)
    return [_field_error(item["type"], item["loc"], item["msg"], names, later) for item in found[:_MAX_ERRORS]]


def _field_error(
    kind: str, location: Sequence[int | str], message: str, names: frozenset[str], later: frozenset[str]
) -> FieldError:
    if kind == "extra_forbidden" and len(location) == 1 and location[0] in later:
        return FieldError(f"#/{location[0]}", "not available in this release")
    return FieldError(pointer(location, names), _INSTEAD.get(kind, message))


class Reader:
    """Reads bodies of one model."""

    def __init__(
        self, model: type[M], *, free: frozenset[str] = frozenset(), later: frozenset[str] = frozenset()
    ) -> None:
        """`free` names fields whose content is not the model's; `later` fields that a later release will know."""
        self.adapter: TypeAdapter[Any] = TypeAdapter(model)
        self.names = schema_field_names(model.model_json_schema()) | free
        self.later = later

    def read(self, raw: bytes) -> Any:
        """Parse and validate a body. Raises malformed_json or Invalid."""
        check_json(raw)
        check_values(raw, self.names)
        check_syntax(raw)
        return self.validate(raw)

    def validate(self, raw: bytes) -> Any:
        """Validate JSON that was checked before. Raises malformed_json or Invalid."""
        try:
            return self.adapter.validate_json(raw)
        except ValidationError as error:
            if any(item["type"] == "json_invalid" for item in error.errors(include_url=False, include_input=False)):
                raise malformed("its syntax is wrong") from None
            raise Invalid(field_errors(error, self.names, later=self.later)) from None
