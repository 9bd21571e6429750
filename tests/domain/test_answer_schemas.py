from typing import Any

import pytest

from app.domain.answer_schemas import SchemaProblem, check_schema, leaves, may_be_missing

INVOICE: dict[str, Any] = {
    "type": "object",
    "properties": {
        "number": {"type": "string", "maxLength": 40},
        "total": {"type": ["number", "null"], "minimum": 0},
        "seller": {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]},
        "kind": {"type": "string", "enum": ["a", "b"]},
        "items": {"type": "array", "items": {"type": "object", "properties": {"price": {"type": "number"}}}},
    },
    "required": ["number", "seller"],
}


def deep(levels: int) -> dict[str, Any]:
    node: dict[str, Any] = {"type": "string"}
    for _ in range(levels):
        node = {"type": "object", "properties": {"x": node}}
    return node


def with_property(schema: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {"total": schema}}


def test_a_schema_of_the_subset_is_taken() -> None:
    check_schema(INVOICE)


@pytest.mark.parametrize(
    ("schema", "pointer"),
    [
        ([], ""),
        ({}, "/type"),
        ({"type": "array", "items": {"type": "string"}}, "/type"),
        ({"type": "object"}, "/properties"),
        ({"type": "object", "properties": {"a b": {"type": "string"}}}, "/properties"),
        ({"type": "object", "properties": {"a": {"type": "string"}}, "required": ["b"]}, "/required"),
        (
            {"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": True},
            "/additionalProperties",
        ),
        (with_property({"type": "text"}), "/properties/total/type"),
        (with_property({"type": ["string", "number"]}), "/properties/total/type"),
        (with_property({"type": []}), "/properties/total/type"),
        (with_property({}), "/properties/total/type"),
        (with_property(True), "/properties/total"),
        (with_property({"type": "string", "pattern": "(a+)+$"}), "/properties/total"),
        (with_property({"$ref": "http://x/"}), "/properties/total/type"),
        (with_property({"type": "string", "format": "regex"}), "/properties/total/format"),
        (with_property({"type": "string", "maxLength": -1}), "/properties/total/maxLength"),
        (with_property({"type": "string", "minLength": 5, "maxLength": 1}), "/properties/total/minLength"),
        (with_property({"type": "number", "minimum": "0"}), "/properties/total/minimum"),
        (with_property({"type": "number", "minimum": True}), "/properties/total/minimum"),
        (with_property({"type": "string", "enum": []}), "/properties/total/enum"),
        (with_property({"type": "string", "enum": [{}]}), "/properties/total/enum"),
        (with_property({"type": "array"}), "/properties/total"),
        (with_property({"type": "array", "items": {"type": "x"}}), "/properties/total/items/type"),
        (deep(7), "/properties/x" * 7),
        (deep(5000), ""),
        ({"type": "object", "properties": {f"p{i}": {"type": "string"} for i in range(201)}}, "/properties"),
        ({"type": "object", "description": "x" * 40_000, "properties": {"a": {"type": "string"}}}, ""),
    ],
)
def test_anything_else_is_refused_with_its_place(schema: Any, pointer: str) -> None:
    with pytest.raises(SchemaProblem) as refused:
        check_schema(schema)

    assert refused.value.pointer == pointer


def test_every_field_may_be_missing_and_has_to_be_spoken_of() -> None:
    asked = may_be_missing(INVOICE)

    assert asked["required"] == list(INVOICE["properties"])
    assert asked["properties"]["number"]["type"] == ["string", "null"]
    assert asked["properties"]["kind"]["enum"] == ["a", "b", None]
    assert asked["properties"]["items"]["items"]["properties"]["price"]["type"] == ["number", "null"]
    assert list(leaves(INVOICE)) == [
        ("/number", True), ("/total", False), ("/seller/name", True), ("/kind", False), ("/items", False),
    ]  # fmt: skip
