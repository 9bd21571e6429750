"""How a handler gave its worker back: found in what it raised, and spelled for the pipe of a child process."""

from typing import Any

from app.domain.errors import OwnershipLost, Snoozed, Suspended, Yielded

_KINDS: dict[str, type[Yielded]] = {one.__name__: one for one in (Snoozed, Suspended, OwnershipLost)}


def yielded_in(error: BaseException) -> Yielded | None:
    """Find the yield in what a handler raised: itself, or in a group (of a TaskGroup) that holds nothing else."""
    found = list(_leaves(error))
    yields = [one for one in found if isinstance(one, Yielded)]
    if not yields or len(yields) < len(found):
        return None
    return yields[0]


def _leaves(error: BaseException) -> list[BaseException]:
    if not isinstance(error, BaseExceptionGroup):
        return [error]
    return [leaf for one in error.exceptions for leaf in _leaves(one)]


def message_of(how: Yielded) -> list[Any]:
    """Spell a yield as JSON values."""
    kind = next((name for name, one in _KINDS.items() if type(how) is one), OwnershipLost.__name__)
    return [kind, [] if kind == OwnershipLost.__name__ else list(how.__reduce__()[1])]


def of_message(message: list[Any]) -> Yielded:
    """Read a yield back. Raises KeyError or TypeError for what is none."""
    kind, arguments = message
    return _KINDS[kind](*arguments)
