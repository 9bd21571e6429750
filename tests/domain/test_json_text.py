import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.json_text import NotJson, clean_text, read_json


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a": 1}', {"a": 1}),
        ("  [1, 2]\n", [1, 2]),
        ('Sure!\n```json\n{"a": 1}\n```\nAnything else?', {"a": 1}),
        ('<think>{"a": 0} or so</think>\n{"a": 1}', {"a": 1}),
        ('Here: {"a": {"b": [1]}} as asked.', {"a": {"b": [1]}}),
        ('As asked: [{"a": 1}]', [{"a": 1}]),
        ("\ufeff7", 7),
    ],
)
def test_json_is_found_bare_fenced_and_among_words(text: str, value: object) -> None:
    assert read_json(text) == value


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "one JSON value"),
        ("I cannot do that.", "one JSON value"),
        ('{"a": NaN}', "one JSON value"),
        ('{"a": ["\\u0000"]}', "answer.a.0: holds NUL or a lone surrogate"),
        ('{"a": "\\ud800"}', "answer.a: holds NUL or a lone surrogate"),
        ('{"\\ud800": 1}', "a name holds NUL"),
        ('{"a": {"b": 1}, "c": [2], "d": "\\ud800"}', "answer.d: holds NUL"),
        ("[" * 70 + "]" * 70, "nested deeper than 64"),
        ("[" * 100_000, "one JSON value"),
    ],
)
def test_what_cannot_be_used_is_told_without_the_text(text: str, said: str) -> None:
    with pytest.raises(NotJson, match=said):
        read_json(text)


@given(st.text(alphabet="a\0\ud800\udfffé€\U0001f600\ufeff", max_size=40))
def test_cleaned_text_can_be_stored(text: str) -> None:
    cleaned = clean_text(text)

    assert len(cleaned) == len(text) and "\0" not in cleaned
    assert json.loads(json.dumps(cleaned)) == cleaned
    cleaned.encode()
