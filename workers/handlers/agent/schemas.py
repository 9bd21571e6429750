"""JSON schemas that tasks bring along: checked before they are used, and never followed out of themselves."""

from collections.abc import Mapping
from typing import Any

import jsonschema
from referencing import Registry

_MOST_FAULTS = 10
_PATTERNS = frozenset({"pattern", "patternProperties"})
_TABLES = frozenset({"properties", "$defs", "definitions", "dependentSchemas"})
_VALUES = frozenset({"const", "enum", "default", "examples"})


def schema_fault(schema: Mapping[str, Any]) -> str | None:
    """Say what is wrong with a schema; None where it can be used."""
    try:
        if _has_pattern(schema, names=False):
            return "should hold no pattern and no patternProperties: one that never ends would stop a worker"
        kind = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)
        kind.check_schema(schema)
        list(kind(schema, registry=Registry()).iter_errors({}))
    except jsonschema.SchemaError as error:
        place = "/".join(str(part)[:64] for part in error.absolute_path)
        return f"should be a JSON schema; {place or 'it'} is none ({error.validator})"
    except Exception as error:
        return f"should be a JSON schema that refers to nothing outside of itself ({type(error).__name__})"
    return None


def _has_pattern(node: Any, *, names: bool) -> bool:
    """Say whether a schema has regular expressions; with `names` the node is a table whose keys are free names."""
    if isinstance(node, list):
        return any(_has_pattern(one, names=False) for one in node)
    if not isinstance(node, dict):
        return False
    if not names and not _PATTERNS.isdisjoint(node):
        return True
    return any(
        _has_pattern(value, names=not names and key in _TABLES)
        for key, value in node.items()
        if names or key not in _VALUES
    )


def faults(schema: Mapping[str, Any], value: Any) -> list[str]:
    """List where a value does not fit a schema, without the value."""
    kind = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)
    try:
        found = [
            f"{'/'.join(str(part)[:64] for part in error.absolute_path) or 'the arguments'}: {_said(error)}"
            for _, error in zip(range(_MOST_FAULTS), kind(schema, registry=Registry()).iter_errors(value), strict=False)
        ]
    except Exception as error:  # a pattern that cannot be run, a recursion without an end
        return [f"cannot be checked ({type(error).__name__})"]
    return found


def _said(error: jsonschema.ValidationError) -> str:
    """Say what is asked for: the schema's side alone, bounded."""
    if error.validator == "required":
        missing = [name for name in error.validator_value if name not in error.instance]
        return f"needs {', '.join(missing)[:200]}"
    return f"should fit {error.validator}: {str(error.validator_value)[:200]}"


def finish_parameters(schema: Mapping[str, Any] | None) -> dict[str, Any]:
    """Give the schema of the arguments of `finish`: the result itself where it is an object, else {"result": …}."""
    if schema is None:
        return {"type": "object", "properties": {"answer": {"type": "string"}}, "required": ["answer"]}
    if is_object(schema):
        return dict(schema)
    inner = dict(schema)
    shared: dict[str, Any] = {name: inner.pop(name) for name in ("$defs", "definitions") if name in inner}
    return {"type": "object", "properties": {"result": inner}, "required": ["result"], **shared}


def is_object(schema: Mapping[str, Any]) -> bool:
    """Say whether values of a schema are objects for sure."""
    return schema.get("type") == "object"
