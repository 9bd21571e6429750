"""What can be asked, what is the same question, and what a yes covers."""

from typing import Any

import pytest
from pydantic import BaseModel

from app.domain.approvals import InvalidQuestion, Question, covers, denied_because, question


class Refund(BaseModel):
    """A detail with a schema."""

    order: str
    amount: float


def asked(action: object = "refund", detail: object = None, expires_seconds: Any = 60.0, most: int = 1000) -> Question:
    """Ask, with a bound that most tests do not meet."""
    return question(action, detail, expires_seconds=expires_seconds, most_detail_bytes=most)


def test_the_order_of_keys_makes_no_other_question_and_any_other_difference_does() -> None:
    first = asked(detail={"a": 1, "b": [1, 2]})

    assert asked(detail={"b": [1, 2], "a": 1}).fingerprint == first.fingerprint
    others = [None, {}, [], "", 0, False, {"a": 1, "b": [2, 1]}, {"a": "1", "b": [1, 2]}, {"a": 1}]
    assert len({asked(detail=one).fingerprint for one in others} | {first.fingerprint}) == len(others) + 1


def test_a_detail_is_kept_as_exact_json() -> None:
    assert asked(detail=Refund(order="Ü<script>", amount=1e22)).detail == '{"order":"Ü<script>","amount":1e+22}'
    assert asked(detail=None).detail is None


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"action": 7}, "action: should be a text"),
        ({"action": ""}, "action: should be 1 to 200 printable"),
        ({"action": "x" * 201}, "action: should be 1 to 200 printable"),
        ({"action": "a\x00b"}, "action: should be 1 to 200 printable"),
        ({"action": "a\nb"}, "action: should be 1 to 200 printable"),
        ({"action": "\ud800"}, "action: should be 1 to 200 printable"),
        ({"expires_seconds": 0}, "expires_seconds: should be above 0"),
        ({"expires_seconds": -1.0}, "expires_seconds: should be above 0"),
        ({"expires_seconds": float("inf")}, "expires_seconds: should be above 0"),
        ({"expires_seconds": float("nan")}, "expires_seconds: should be above 0"),
        ({"expires_seconds": "60"}, "expires_seconds: should be a number"),
        ({"expires_seconds": True}, "expires_seconds: should be a number"),
        ({"expires_seconds": 10**400}, "expires_seconds: should be above 0"),
        ({"detail": {"deep": ["a\x00b"]}}, "detail: holds NUL"),
        ({"detail": {"a\x00b": 1}}, "detail: holds NUL"),
        ({"detail": ["\udfff"]}, "detail: holds half of a surrogate pair"),
        ({"detail": {"\ud800": 1}}, "detail: holds half of a surrogate pair"),
        ({"detail": float("nan")}, "detail: should be JSON"),
        ({"detail": {"a": float("inf")}}, "detail: should be JSON"),
        ({"detail": object()}, "detail: should be JSON"),
        ({"detail": {1, 2}}, "detail: should be JSON"),
        ({"detail": b"bytes"}, "detail: should be JSON"),
        ({"detail": {(1, 2): 3}}, "detail: should be JSON"),
        ({"detail": "ü" * 500}, "detail: has 1002 bytes as JSON; it may have 1000"),
    ],
)
def test_what_cannot_be_asked_is_refused_with_what_would_be_right(given: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidQuestion) as refused:
        asked(**given)

    assert says in str(refused.value)


@pytest.mark.parametrize("levels", [65, 900, 100_000])
def test_a_detail_that_is_nested_too_deep_is_refused(levels: int) -> None:
    nested: list[Any] = []
    for _ in range(levels):
        nested = [nested]

    with pytest.raises(InvalidQuestion, match="nested deeper than 64 levels"):
        asked(detail=nested, most=10**6)


def test_a_detail_that_holds_itself_is_refused() -> None:
    loop: list[Any] = []
    loop.append(loop)

    with pytest.raises(InvalidQuestion, match="detail: should be JSON"):
        asked(detail=loop)


@pytest.mark.parametrize(
    ("action", "detail", "is_covered"),
    [
        ("delete", None, True),
        ("delete", "{}", True),
        ("delete", '{"why":"old"}', True),
        ("delete", '["k1"]', True),
        ("delete", '{"key":"k1"}', True),
        ("delete", '{"key":"k2"}', False),
        ("delete", '{"key":null}', False),
        ("delete", '{"key":["k1"]}', False),
        ("Delete", None, False),
        ("delete ", None, False),
    ],
)
def test_a_yes_covers_its_effect_and_no_other(action: str, detail: str | None, is_covered: bool) -> None:
    assert covers(action, detail, "delete", "k1") is is_covered


def test_a_no_always_has_a_reason() -> None:
    assert denied_because("too dear") == "too dear"
    assert denied_because(None) == denied_because("  ") == "the approval was denied without a comment"
