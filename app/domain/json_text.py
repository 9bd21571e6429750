"""Text that a model wrote, made fit to keep: lone surrogates and NUL replaced in prose, refused in JSON."""

import json
import re
from typing import Any

_UNFIT = re.compile(r"[\x00\ud800-\udfff]")
_FENCED = re.compile(r"```[A-Za-z0-9_-]*[ \t]*\r?\n(.*?)```", re.DOTALL)
_MOST_DEEP = 64


class NotJson(ValueError):
    """The text holds no JSON that can be used; the message says why, without any of it."""


def clean_text(text: str) -> str:
    """Replace what no database and no JSON takes (NUL, lone surrogates) by the replacement character."""
    return _UNFIT.sub("\N{REPLACEMENT CHARACTER}", text)


def read_json(text: str) -> Any:
    """Read the JSON value that a model answered with, bare, fenced or with words around it.

    Raises NotJson: no JSON, NaN or Infinity, deeper than 64, or a string with NUL or a lone surrogate.
    """
    for candidate in _candidates(text):
        try:
            value = json.loads(candidate, parse_constant=_refuse)
        except (ValueError, RecursionError):
            continue
        if (unfit := _unfit_place(value, "answer", 0)) is not None:
            raise NotJson(unfit)
        return value
    raise NotJson("the answer should be one JSON value and nothing else")


def is_fit(value: Any) -> bool:
    """Say whether a JSON value can be kept as it is: no NUL, no lone surrogate, not deeper than 64."""
    return _unfit_place(value, "value", 0) is None


def _refuse(name: str) -> Any:
    raise ValueError(name)


def _candidates(text: str) -> list[str]:
    """Give what may be the JSON: the whole, what follows the model's thoughts, a fenced block, the outermost braces."""
    whole = text.strip().removeprefix("\ufeff")
    _, thought, after = whole.rpartition("</think>")
    rest = after.strip() if thought else whole
    found = [rest, *(match.strip() for match in _FENCED.findall(rest))]
    # The one that opens first holds the other.
    bounds = sorted((rest.find(opening), rest.rfind(closing)) for opening, closing in ("{}", "[]"))
    found += [rest[begin : end + 1] for begin, end in bounds if 0 <= begin < end]
    return list(dict.fromkeys(found))


def _unfit_place(value: Any, place: str, depth: int) -> str | None:
    if depth > _MOST_DEEP:
        return f"the answer is nested deeper than {_MOST_DEEP}"
    if isinstance(value, str):
        return f"{place}: holds NUL or a lone surrogate" if _UNFIT.search(value) else None
    if isinstance(value, list):
        inner = ((f"{place}.{i}", one) for i, one in enumerate(value))
    elif isinstance(value, dict):
        if any(_UNFIT.search(name) for name in value):
            return f"{place}: a name holds NUL or a lone surrogate"
        inner = ((f"{place}.{name[:64]}", one) for name, one in value.items())
    else:
        return None
    return next((unfit for name, one in inner if (unfit := _unfit_place(one, name, depth + 1)) is not None), None)
