"""What a task's journal keeps: values as exact JSON text, and the identity of a step.

A value comes back as it was written: 1e22 stays a float, -0.0 keeps its sign, an integer all its digits. What would
not come back as it was (NaN, half of a surrogate pair, a key that is no text) is refused before it is kept.
"""

import dataclasses
import hashlib
import json
import math
import re
from collections.abc import Callable, Sequence
from typing import Any

from app.domain.errors import DeadLetter

MAX_DEPTH = 100
MAX_NAME_CHARACTERS = 200
_HALF_PAIR = re.compile("[\ud800-\udfff]")
_NOT_IN_NAMES = re.compile("[\x00-\x1f\x7f\ud800-\udfff]")


class NotJson(ValueError):
    """A value has no exact JSON form; the text says why, and never holds the value."""


def json_text(value: object) -> str:
    """Spell a value as JSON that gives back what was written. Raises NotJson.

    Takes what JSON has, tuples (as lists), dataclasses and pydantic models, nested as deep as `MAX_DEPTH`.
    """
    return _dumped(_plain(value, 0, _refused))


def fingerprint(arguments: Sequence[object]) -> bytes:
    """Digest the arguments of a call; the order of keys does not count, and bytes go by their own digest.

    Raises NotJson for what has no exact JSON form.
    """
    plain = [_plain(argument, 0, _digested) for argument in arguments]
    return hashlib.sha256(_dumped(plain, sort_keys=True).encode()).digest()


def check_step_name(name: object) -> str:
    """Give the name back when a step may have it. Raises DeadLetter (`invalid_step`)."""
    if isinstance(name, str) and 0 < len(name) <= MAX_NAME_CHARACTERS and _NOT_IN_NAMES.search(name) is None:
        return name
    raise DeadLetter(
        "invalid_step",
        f"the name of a step should be text of 1 to {MAX_NAME_CHARACTERS} characters without control characters",
    )


def _dumped(plain: object, *, sort_keys: bool = False) -> str:
    try:
        return json.dumps(plain, ensure_ascii=False, allow_nan=False, separators=(",", ":"), sort_keys=sort_keys)
    except ValueError:
        raise NotJson("an integer of more digits than can be written") from None


def _plain(value: object, depth: int, otherwise: Callable[[object], object]) -> object:
    if depth > MAX_DEPTH:
        raise NotJson(f"nested deeper than {MAX_DEPTH} levels")
    match value:
        case None | bool() | int():
            return value
        case str():
            return _whole(value)
        case float():
            if not math.isfinite(value):
                raise NotJson("NaN or an infinity, which JSON does not have")
            return value
        case list() | tuple():
            return [_plain(one, depth + 1, otherwise) for one in value]
        case dict():
            return {_key(key): _plain(one, depth + 1, otherwise) for key, one in value.items()}
    return _plain(_unpacked(value, otherwise), depth + 1, otherwise)


def _unpacked(value: object, otherwise: Callable[[object], object]) -> object:
    dump = getattr(type(value), "model_dump", None)
    if dump is not None:
        try:
            return dump(value, mode="json")
        except Exception as error:
            raise NotJson(f"a {type(value).__name__} that cannot be dumped ({type(error).__name__})") from None
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {one.name: getattr(value, one.name) for one in dataclasses.fields(value)}
    return otherwise(value)


def _key(key: object) -> str:
    if not isinstance(key, str):
        raise NotJson(f"a key that is no text but a {type(key).__name__}")
    return _whole(key)


def _whole(text: str) -> str:
    if _HALF_PAIR.search(text):
        raise NotJson("text with half of a surrogate pair, which UTF-8 does not have")
    return text


def _refused(value: object) -> Any:
    raise NotJson(f"a {type(value).__name__}, which JSON does not have")


def _digested(value: object) -> object:
    if isinstance(value, bytes | bytearray | memoryview):
        return {"sha256": hashlib.sha256(value).hexdigest()}
    return _refused(value)
