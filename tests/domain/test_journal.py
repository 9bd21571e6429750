"""What a journal keeps comes back as it was written, or is refused before it is kept."""

import json
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from app.domain.errors import DeadLetter
from app.domain.journal import MAX_DEPTH, MAX_NAME_CHARACTERS, NotJson, check_step_name, fingerprint, json_text

TEXT = st.text(st.characters(codec="utf-8"))
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**40), 10**40)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT
    | st.sampled_from([1e22, -0.0, 2**63, 1e-320, "a\0b", "\\u0000", "\N{EURO SIGN}"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=20,
)


def same(one: object, other: object) -> bool:
    """Say whether two values are equal to the last bit: 1 is not 1.0 here, and 0.0 is not -0.0."""
    return repr(one) == repr(other)


@settings(deadline=None)
@given(JSON)
def test_json_comes_back_exactly_as_it_was_written(value: object) -> None:
    assert same(json.loads(json_text(value)), value)


@settings(deadline=None)
@given(JSON)
def test_what_came_back_is_written_as_before(value: object) -> None:
    text = json_text(value)

    assert json_text(json.loads(text)) == text
    assert fingerprint([json.loads(text)]) == fingerprint([value])


def test_models_dataclasses_and_tuples_are_written_as_json() -> None:
    class Inner(BaseModel):
        n: int

    @dataclass
    class Outer:
        inner: list[Inner]
        pair: tuple[int, str]

    assert json_text({"outer": Outer([Inner(n=1)], (2, "a"))}) == '{"outer":{"inner":[{"n":1}],"pair":[2,"a"]}}'


def nested(depth: int) -> object:
    value: object = 1
    for _ in range(depth):
        value = [value]
    return value


class Broken(BaseModel):
    value: object


@pytest.mark.parametrize(
    "value",
    [
        float("nan"),
        {"deep": [float("-inf")]},
        "a\ud800b",
        {"\udfff": 1},
        {1: "one"},
        {1: "a", "1": "b"},
        {1, 2},
        b"bytes",
        object(),
        Broken(value=object()),
        BaseModel,
        lambda: None,
        nested(MAX_DEPTH + 1),
        nested(20_000),
        10**5000,
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_would_not_come_back_is_refused(value: object) -> None:
    with pytest.raises(NotJson):
        json_text(value)


def test_a_value_that_holds_itself_is_refused() -> None:
    ring: list[object] = []
    ring.append(ring)

    with pytest.raises(NotJson):
        json_text(ring)


def test_the_deepest_value_that_is_allowed_is_kept() -> None:
    assert json.loads(json_text(nested(MAX_DEPTH))) == nested(MAX_DEPTH)


def test_a_fingerprint_tells_arguments_apart_and_not_the_order_of_keys() -> None:
    assert fingerprint([{"a": 1, "b": 2}]) == fingerprint([{"b": 2, "a": 1}])
    different = [[], [[]], [None], [1], [1.0], ["1"], [1, 2], [[1, 2]], [True], [0.0], [-0.0], [b"1"], [b"2"]]
    assert len({fingerprint(arguments) for arguments in different}) == len(different)


@pytest.mark.parametrize("name", ["", None, 7, "a\0b", "a\nb", "a\ud800", "x" * (MAX_NAME_CHARACTERS + 1)])
def test_a_name_that_cannot_be_kept_is_refused(name: object) -> None:
    with pytest.raises(DeadLetter) as refused:
        check_step_name(name)

    assert refused.value.error_type == "invalid_step"
