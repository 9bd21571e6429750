"""The JSON schemas that a submitter may ask an answer to fit: a bounded subset, checked before anything runs. Pure.

Left out is what can run away (patterns, references, recursion), what models do not keep to, and names that could not be
told in an error.
"""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

MAX_DEPTH = 6
MAX_PROPERTIES = 200
MAX_BYTES = 32 * 1024
MAX_ENUM = 200
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}")
_TYPES = ("object", "array", "string", "number", "integer", "boolean", "null")
FORMATS = ("date", "date-time", "time", "email", "uri", "uuid")
_ANYWHERE = frozenset({"type", "title", "description", "enum", "const"})
_OF_TYPE: Mapping[str, frozenset[str]] = {
    "object": frozenset({"properties", "required", "additionalProperties"}),
    "array": frozenset({"items", "minItems", "maxItems"}),
    "string": frozenset({"minLength", "maxLength", "format"}),
    "number": frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"}),
    "integer": frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"}),
    "boolean": frozenset(),
    "null": frozenset(),
}
_COUNTS = ("minLength", "maxLength", "minItems", "maxItems")
_BOUNDS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
_ROOT_ONLY = frozenset({"$schema", "$id"})


class SchemaProblem(ValueError):
    """A schema that cannot be asked for; `pointer` says where (as JSON Pointer), `message` what would be right."""

    def __init__(self, pointer: str, message: str) -> None:
        super().__init__(f"{pointer or '/'}: {message}")
        self.pointer = pointer
        self.message = message


def check_schema(schema: Any, *, object_root: bool = True) -> None:
    """Check a schema. Raises SchemaProblem for the first thing that is wrong."""
    try:
        size = len(json.dumps(schema))
    except (RecursionError, ValueError, TypeError):
        raise SchemaProblem("", "should be plain JSON, not nested without end") from None
    if size > MAX_BYTES:
        raise SchemaProblem("", f"should be at most {MAX_BYTES} bytes of JSON")
    if not isinstance(schema, dict):
        raise SchemaProblem("", "should be a JSON schema, which is an object")
    if object_root and schema.get("type") != "object":
        raise SchemaProblem("/type", 'the root should be of type "object", with the fields as properties')
    if object_root and not schema.get("properties"):
        raise SchemaProblem("/properties", "the root should have at least one property")
    seen = 0
    for pointer, properties in _checked(schema, "", 0):
        seen += len(properties)
        if seen > MAX_PROPERTIES:
            raise SchemaProblem(pointer, f"a schema may have {MAX_PROPERTIES} properties in all")


def _checked(node: Any, at: str, depth: int) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Check a node and what is in it; yields every table of properties with its place."""
    if not isinstance(node, dict):
        raise SchemaProblem(at, "should be a schema, which is an object")
    if depth > MAX_DEPTH:
        raise SchemaProblem(at, f"should not be nested deeper than {MAX_DEPTH}")
    types = _types(node, at)
    allowed = _ANYWHERE.union(*(_OF_TYPE[one] for one in types)) | (_ROOT_ONLY if depth == 0 else frozenset())
    if not node.keys() <= allowed:
        raise SchemaProblem(at, f"may have, being {' or '.join(types)}: {', '.join(sorted(allowed - _ROOT_ONLY))}")
    _check_values(node, at)
    if "properties" in node:
        yield from _checked_properties(node, at, depth)
    elif "required" in node:
        raise SchemaProblem(f"{at}/required", "needs properties beside it")
    if "array" in types:
        if "items" not in node:
            raise SchemaProblem(at, "an array should say with items what it holds")
        yield from _checked(node["items"], f"{at}/items", depth + 1)


def _types(node: Mapping[str, Any], at: str) -> tuple[str, ...]:
    given = node.get("type")
    types = given if isinstance(given, list) else [given]
    if not types or not all(isinstance(one, str) and one in _TYPES for one in types) or len(set(types)) < len(types):
        raise SchemaProblem(f"{at}/type", f"should be one of {', '.join(_TYPES)}, or a list of them")
    if len([one for one in types if one != "null"]) > 1:
        raise SchemaProblem(f"{at}/type", 'a list may hold one type and "null"')
    return tuple(types)


def _checked_properties(node: Mapping[str, Any], at: str, depth: int) -> Iterator[tuple[str, Mapping[str, Any]]]:
    properties, required = node["properties"], node.get("required", [])
    if not isinstance(properties, dict):
        raise SchemaProblem(f"{at}/properties", "should be an object of schemas")
    if not all(_NAME.fullmatch(name) for name in properties):
        raise SchemaProblem(
            f"{at}/properties", "names should be a letter or _, then up to 63 letters, digits, _, . or -"
        )
    if not isinstance(required, list) or not all(isinstance(one, str) and one in properties for one in required):
        raise SchemaProblem(f"{at}/required", "should list names of its properties")
    if node.get("additionalProperties", False) is not False:
        raise SchemaProblem(f"{at}/additionalProperties", "should be false, as it is by default")
    yield f"{at}/properties", properties
    for name, inner in properties.items():
        yield from _checked(inner, f"{at}/properties/{name}", depth + 1)


def _check_values(node: Mapping[str, Any], at: str) -> None:
    for name in ("title", "description"):
        if name in node and not (isinstance(node[name], str) and len(node[name]) <= 2000):
            raise SchemaProblem(f"{at}/{name}", "should be text of at most 2000 characters")
    for name in _COUNTS:
        if name in node and not (_is_number(node[name], whole=True) and 0 <= node[name] <= 1_000_000):
            raise SchemaProblem(f"{at}/{name}", "should be a whole number from 0 to 1000000")
    for name in _BOUNDS:
        if name in node and not _is_number(node[name]):
            raise SchemaProblem(f"{at}/{name}", "should be a number")
    for low, high in (("minLength", "maxLength"), ("minItems", "maxItems"), ("minimum", "maximum")):
        if low in node and high in node and node[low] > node[high]:
            raise SchemaProblem(f"{at}/{low}", f"should not be above {high}")
    if "format" in node and node["format"] not in FORMATS:
        raise SchemaProblem(f"{at}/format", f"should be one of {', '.join(FORMATS)}")
    if "enum" in node:
        values = node["enum"]
        if not isinstance(values, list) or not 1 <= len(values) <= MAX_ENUM or not all(map(_is_scalar, values)):
            raise SchemaProblem(f"{at}/enum", f"should list 1 to {MAX_ENUM} texts, numbers, booleans or null")
    if "const" in node and not _is_scalar(node["const"]):
        raise SchemaProblem(f"{at}/const", "should be a text, a number, a boolean or null")


def _is_number(value: Any, *, whole: bool = False) -> bool:
    return isinstance(value, int if whole else int | float) and not isinstance(value, bool) and abs(value) < 1e300


def _is_scalar(value: Any) -> bool:
    return value is None or isinstance(value, bool | int | float) or (isinstance(value, str) and len(value) <= 500)


def may_be_missing(node: Mapping[str, Any]) -> dict[str, Any]:
    """Give the schema with every property asked for, and null allowed for what a document does not say."""
    made = dict(node)
    if "properties" in node:
        made["properties"] = {name: _or_null(may_be_missing(inner)) for name, inner in node["properties"].items()}
        made["required"] = list(node["properties"])
        made["additionalProperties"] = False
    if "items" in node:
        made["items"] = may_be_missing(node["items"])
    return {name: value for name, value in made.items() if name not in _ROOT_ONLY}


def _or_null(node: dict[str, Any]) -> dict[str, Any]:
    types = node["type"] if isinstance(node["type"], list) else [node["type"]]
    made = dict(node) if "null" in types else {**node, "type": [*types, "null"]}
    if "enum" in made and None not in made["enum"]:
        made["enum"] = [*made["enum"], None]
    if made.get("const") is not None:
        made["enum"] = [made.pop("const"), None]
    return made


def leaves(node: Mapping[str, Any], at: str = "") -> Iterator[tuple[str, bool]]:
    """Yield the place of every field that is no object, and whether it (and all above it) is required."""
    required = node.get("required", ())
    for name, inner in node.get("properties", {}).items():
        if inner.get("properties"):
            yield from ((place, name in required and must) for place, must in leaves(inner, f"{at}/{name}"))
        else:
            yield f"{at}/{name}", name in required


def value_at(value: Any, pointer: str) -> Any:
    """Give what is at a place in nested objects; None where there is nothing."""
    for name in pointer.split("/")[1:]:
        value = value.get(name) if isinstance(value, dict) else None
    return value
