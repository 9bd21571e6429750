"""What the parts of a document say, put together. Pure: everything here is JSON, so that it can be checkpointed."""

import json
import re
from collections.abc import Mapping
from typing import Any

from app.domain.answer_schemas import leaves, value_at
from app.domain.quotes import Quotable

_INDEX = re.compile(r"\[?\d+\]?")
_MOST_QUOTE = 500
Evidence = dict[str, dict[str, Any]]
QUOTES: Mapping[str, Any] = {
    "type": "array",
    "items": {
        "type": "object",
        "properties": {"field": {"type": "string"}, "quote": {"type": "string"}},
        "required": ["field", "quote"],
        "additionalProperties": False,
    },
}


def evidence_of(schema: Mapping[str, Any], quotes: list[Mapping[str, str]], document: Quotable) -> Evidence:
    """Give each field's quote, the first that the document has before any that it has not."""
    places = {place.lower(): place for place, _ in leaves(schema)}
    found: Evidence = {}
    for one in quotes:
        place = places.get(_pointer(one["field"]))
        if place is None or found.get(place, {}).get("verified"):
            continue
        quote = one["quote"][:_MOST_QUOTE]
        found[place] = {"quote": quote, "verified": document.has(quote)}
    return found


def _pointer(field: str) -> str:
    """Spell a field's name as models write it (`items[0].price`, `/items/0/price`, `items.price`) as a pointer."""
    parts = re.split(r"[/.]|(?=\[)", field.strip().removeprefix("$").removeprefix("fields"))
    return "".join(f"/{part}" for part in parts if part and not _INDEX.fullmatch(part)).lower()


def merged(
    schema: Mapping[str, Any], old: dict[str, Any], old_evidence: Evidence, new: dict[str, Any], new_evidence: Evidence
) -> tuple[dict[str, Any], Evidence]:
    """Put two parts' answers together: lists are joined, of other fields the first stays that has a verified quote."""
    evidence = dict(old_evidence)
    return _merged(schema, old, new, "", evidence, new_evidence), evidence


def _merged(
    schema: Mapping[str, Any], old: Any, new: Any, at: str, evidence: Evidence, new_evidence: Evidence
) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for name, inner in schema.get("properties", {}).items():
        place = f"{at}/{name}"
        before, after = (one.get(name) if isinstance(one, dict) else None for one in (old, new))
        if inner.get("properties"):
            made[name] = _merged(inner, before, after, place, evidence, new_evidence)
        elif isinstance(before, list) and isinstance(after, list):
            seen = {json.dumps(one, sort_keys=True) for one in before}
            made[name] = [*before, *(one for one in after if json.dumps(one, sort_keys=True) not in seen)]
            if place in new_evidence and not evidence.get(place, {}).get("verified"):
                evidence[place] = new_evidence[place]
        elif _is_missing(before) or (
            not _is_missing(after)
            and new_evidence.get(place, {}).get("verified")
            and not evidence.get(place, {}).get("verified")
        ):
            made[name] = after
            if not _is_missing(after):
                evidence.pop(place, None)
                if place in new_evidence:
                    evidence[place] = new_evidence[place]
        else:
            made[name] = before
    return made


def is_complete(schema: Mapping[str, Any], fields: dict[str, Any], evidence: Evidence) -> bool:
    """Say whether no further part can add anything: all is there with a verified quote, and nothing is a list."""
    return all(
        evidence.get(place, {}).get("verified") and not isinstance(value_at(fields, place), list)
        for place, _ in leaves(schema)
    )


def missing_in(schema: Mapping[str, Any], fields: dict[str, Any]) -> tuple[list[str], list[str]]:
    """List the fields that are not there, and those of them that the schema requires."""
    gone = [(place, must) for place, must in leaves(schema) if _is_missing(value_at(fields, place))]
    return [place for place, _ in gone], [place for place, must in gone if must]


def without_missing(schema: Mapping[str, Any], value: Any) -> Any:
    """Take out what is not there, unless the schema says that null may be."""
    if isinstance(value, list):
        return [without_missing(schema.get("items", {}), one) for one in value]
    if not isinstance(value, dict):
        return value
    kept = {}
    for name, inner in schema.get("properties", {}).items():
        one = without_missing(inner, value.get(name))
        if not _is_missing(one) and one != {}:
            kept[name] = one
        elif one is None and "null" in _types(inner):
            kept[name] = None
    return kept


def _is_missing(value: Any) -> bool:
    return value is None or value == "" or value == []


def _types(node: Mapping[str, Any]) -> list[Any]:
    given = node.get("type")
    return given if isinstance(given, list) else [given]
