from typing import Any

from app.domain.quotes import Quotable
from workers.handlers.extract_fields.merging import evidence_of, is_complete, merged, missing_in, without_missing

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": ["string", "null"]},
        "address": {"type": "object", "properties": {"city": {"type": "string"}}},
        "lines": {"type": "array", "items": {"type": "object", "properties": {"price": {"type": "number"}}}},
    },
}


def test_a_field_is_known_however_models_write_its_name() -> None:
    quotes = [
        {"field": "$.Address.city", "quote": "Porto"},
        {"field": "lines[0]", "quote": "no"},
        {"field": "/lines/1", "quote": "9 EUR"},
        {"field": "nothing", "quote": "Porto"},
    ]

    found = evidence_of(SCHEMA, quotes, Quotable("Porto, 9 EUR"))

    assert {place: one["verified"] for place, one in found.items()} == {"/address/city": True, "/lines": True}


def test_lists_are_joined_without_repeats_and_the_first_of_the_others_stays() -> None:
    old = {"name": "A", "lines": [{"price": 1}], "address": {"city": None}}
    new = {"name": "B", "lines": [{"price": 1}, {"price": 2}], "address": {"city": "Porto"}}

    fields, evidence = merged(SCHEMA, old, {}, new, {"/address/city": {"quote": "Porto", "verified": True}})

    assert fields == {"name": "A", "lines": [{"price": 1}, {"price": 2}], "address": {"city": "Porto"}}
    assert evidence["/address/city"]["verified"]
    assert not is_complete(SCHEMA, fields, evidence)


def test_null_stays_where_the_schema_has_it_and_is_still_missing() -> None:
    fields = {"name": None, "address": {"city": ""}, "lines": [{"price": None}]}

    assert without_missing(SCHEMA, fields) == {"name": None, "lines": [{}]}
    assert missing_in(SCHEMA, fields)[0] == ["/name", "/address/city"]
