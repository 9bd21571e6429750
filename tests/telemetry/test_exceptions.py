import json

import asyncpg
import pytest
from pydantic import BaseModel, SecretStr, ValidationError
from sqlalchemy.exc import IntegrityError

from app.telemetry.exceptions import MAX_CHAIN, MAX_FRAMES, MAX_MESSAGE_CHARACTERS, describe, message_of
from app.telemetry.redaction import Redactor


def raised(error: BaseException) -> BaseException:
    try:
        raise error
    except BaseException as caught:
        return caught


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


class Login(BaseModel):
    name: int
    password: SecretStr


def test_a_validation_error_names_the_fields_and_none_of_the_values() -> None:
    with pytest.raises(ValidationError) as caught:
        Login.model_validate({"name": "sk-CANARY-1", "password": 17})

    assert message_of(caught.value) == "name: int_parsing; password: string_type"


def test_a_database_error_shows_neither_statement_nor_parameters_nor_row() -> None:
    cause = asyncpg.UniqueViolationError("duplicate key value violates unique constraint")
    cause.detail = "Key (name)=(CANARY) already exists."
    error = IntegrityError("INSERT INTO t VALUES ($1)", {"name": "CANARY"}, cause)

    text = json.dumps(describe(raised(error), Redactor()))

    assert "CANARY" not in text
    assert "INSERT" not in text
    assert message_of(error) == "duplicate key value violates unique constraint"


def test_an_exception_that_cannot_be_printed_is_still_described() -> None:
    described = describe(raised(Unprintable()), Redactor())

    assert described["message"] == "<Unprintable whose message cannot be shown: RuntimeError>"
    assert str(described["type"]).endswith("Unprintable")


def test_the_description_has_places_but_no_locals_and_no_source() -> None:
    local_secret = "CANARY-" + "local"

    described = describe(raised(ValueError(f"bad {len(local_secret)}")), Redactor())

    assert "CANARY" not in json.dumps(described)
    assert "test_exceptions.py" in json.dumps(described["frames"])


def test_messages_are_redacted_and_cut() -> None:
    described = describe(raised(ValueError("password=CANARY " + "x" * 100_000)), Redactor())

    assert "CANARY" not in str(described["message"])
    assert len(str(described["message"])) <= MAX_MESSAGE_CHARACTERS + 1


def test_causes_are_described_to_a_bounded_depth_even_in_a_circle() -> None:
    first, second = ValueError("first"), KeyError("second")
    first.__cause__, second.__cause__ = second, first

    described: object = describe(first, Redactor())

    depth = 0
    while isinstance(described, dict):
        described = described.get("cause")
        depth += 1
    assert depth == MAX_CHAIN


def test_a_deep_recursion_shows_its_last_frames() -> None:
    def deeper(level: int) -> None:
        if level == 0:
            raise ValueError("bottom")
        deeper(level - 1)

    with pytest.raises(ValueError, match="bottom") as caught:
        deeper(100)

    frames = describe(caught.value, Redactor())["frames"]
    assert isinstance(frames, list)
    assert len(frames) == MAX_FRAMES
    assert frames[-1].endswith("deeper")


def test_the_parts_of_a_group_are_listed() -> None:
    described = describe(ExceptionGroup("two", [ValueError("a"), KeyError("b")]), Redactor())

    parts = described["exceptions"]
    assert isinstance(parts, list)
    assert [part["type"] for part in parts] == ["builtins.ValueError", "builtins.KeyError"]
