"""What services hide from a caller: the answer is that of a thing that does not exist, and the attempt is audited."""

from collections.abc import Iterator
from contextlib import contextmanager

from app.api.front import Front
from app.ids import is_id
from app.services.actors import Hidden
from app.services.callers import Caller
from app.services.errors import NotFound


@contextmanager
def seeing(front: Front, caller: Caller) -> Iterator[None]:
    """Have it audited when what is done in here reaches for another tenant's things; they stay hidden."""
    try:
        yield
    except Hidden as hidden:
        front.refusals.note(caller, hidden.target, hidden.tenant_id)
        raise


def check_id(value: str, *nouns: str) -> str:
    """Return an id of one of `nouns`. Raises NotFound for anything else: nothing lies under it."""
    if not any(is_id(noun, value) for noun in nouns):
        raise NotFound
    return value
