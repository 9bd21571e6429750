"""Cleaning text of unknown origin."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.clean_text import clean_message, clean_name


@given(st.text(alphabet=st.characters(exclude_categories=()), max_size=300))
def test_any_text_comes_out_storable(text: str) -> None:
    cleaned = clean_message(text, "nothing")

    assert cleaned
    assert len(cleaned) <= 2_000
    assert "\0" not in cleaned
    cleaned.encode("utf-8")


@pytest.mark.parametrize("text", ["", " \n", "\t"])
def test_the_fallback_stands_for_nothing(text: str) -> None:
    assert clean_message(text, "nothing") == "nothing"


def test_a_huge_text_is_cut_with_a_sign() -> None:
    cleaned = clean_message("x" * 5_000_000, "nothing")

    assert len(cleaned) == 2_000
    assert cleaned.endswith("…")


def test_ordinary_text_stays_as_it_is() -> None:
    text = "Não foi possível: file 'a b.txt'\n  line 3, token ring, secretary"

    assert clean_message(text, "nothing") == text


@pytest.mark.parametrize(
    "text",
    [
        "cannot connect to postgresql://app:CANARY@db/x",
        "header Authorization: Bearer CANARY123",
        "Basic Q0FOQVJZOkNBTkFSWQ==",
        "api_key=CANARY",
        '{"api_key": "CANARY"}',
        "https://host/path?access_token=CANARY&x=1",
        "LLM_SECRET: CANARY",
        "password = 'CANARY'",
    ],
)
def test_the_plainest_secrets_are_hidden(text: str) -> None:
    cleaned = clean_message(text, "nothing")

    assert "CANARY" not in cleaned
    assert "Q0FOQVJZ" not in cleaned
    assert "[hidden]" in cleaned


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("ValueError", "ValueError"),
        ("a b\0c", "a_b_c"),
        ("\ud800", "fallback"),
        ("", "fallback"),
        ("<script>", "script"),
        ("N" * 500, "N" * 100),
    ],
)
def test_a_name_is_letters_digits_and_underscores(text: str, name: str) -> None:
    assert clean_name(text, "fallback") == name
