"""Ids: `<noun>_<ULID>`, time-ordered, minted by this process before the first try of whatever they name."""

import re

from ulid import ULID

_ULID = re.compile(r"[0-9A-HJKMNP-TV-Z]{26}")


def mint(noun: str) -> str:
    """Mint a new id such as `task_01JZ8W4W9GZK4K2GZ7Q2ABCD12`."""
    return f"{noun}_{ULID()}"


def is_id(noun: str, value: str) -> bool:
    """Say whether `value` has the shape of an id of `noun`."""
    prefix, _, rest = value.partition("_")
    return prefix == noun and _ULID.fullmatch(rest) is not None
