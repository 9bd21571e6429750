"""Ids in paths."""

from app.ids import is_id
from app.services.errors import NotFound


def check_id(value: str, *nouns: str) -> str:
    """Return an id of one of `nouns`. Raises NotFound for anything else: nothing lies under it."""
    if not any(is_id(noun, value) for noun in nouns):
        raise NotFound
    return value
