"""Ids and names in paths."""

import re

from app.ids import is_id
from app.services.errors import NotFound

_SLUG = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")


def check_id(value: str, *nouns: str) -> str:
    """Return an id of one of `nouns`. Raises NotFound for anything else: nothing lies under it."""
    if not any(is_id(noun, value) for noun in nouns):
        raise NotFound
    return value


def check_slug(value: str) -> str:
    """Return a name as tenants have one. Raises NotFound for anything else: nothing lies under it."""
    if not _SLUG.fullmatch(value):
        raise NotFound
    return value
