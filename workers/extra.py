"""The optional extra `agents` (the packages `mcp` and `a2a-sdk`), loaded when it is first used."""

import importlib
import logging
from typing import Any

from app.domain.errors import DeadLetter

_TALKATIVE = ("mcp", "a2a", "httpx2", "httpcore2")


class ExtraMissing(DeadLetter):
    """The packages are not installed here."""

    def __init__(self) -> None:
        super().__init__("extra_missing", "MCP and A2A need more packages: pip install despacho[agents]")

    def __reduce__(self) -> tuple[type["ExtraMissing"], tuple[()]]:  # type: ignore[override]
        return type(self), ()


def load_extra(name: str) -> Any:
    """Import a module of the extra. Raises ExtraMissing."""
    try:
        found = importlib.import_module(name)
    except ModuleNotFoundError:
        raise ExtraMissing from None
    for talkative in _TALKATIVE:  # they log what servers answer, which may be anybody's data
        logging.getLogger(talkative).setLevel(logging.CRITICAL)
    return found
