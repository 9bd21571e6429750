"""Label values that cannot hurt: cleaned to a small alphabet and bounded in number, whatever comes in.

A label with a lone surrogate breaks the whole `/metrics` page, and one that grows without bound kills the server that
scrapes it. So every label of every metric goes through one of these two; neither ever raises.
"""

import re
from collections.abc import Iterable
from threading import Lock

OTHER = "other"
UNKNOWN = "unknown"
MAX_LABEL_CHARACTERS = 80

_CLEAN = re.compile(r"[A-Za-z0-9_.:/{}-]{1,80}")
_UNWANTED = re.compile(r"[^A-Za-z0-9_.:/{}-]")


def clean(raw: object) -> str:
    """Make a label value of anything: unwanted characters become `_`, nothing becomes `unknown`."""
    if not isinstance(raw, str) or not raw:
        return UNKNOWN
    if _CLEAN.fullmatch(raw):
        return str(raw)
    return _UNWANTED.sub("_", raw[:MAX_LABEL_CHARACTERS])


class BoundedLabel:
    """A label that takes at most `limit` distinct values, first come first served; the rest are `other`.

    Names known beforehand are reserved, so that a flood of invented ones cannot push them out.
    """

    __slots__ = ("_cache", "_limit", "_lock", "_names")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._names: set[str] = {OTHER, UNKNOWN}
        self._cache: dict[str, str] = {}
        self._lock = Lock()

    def __call__(self, raw: str | None) -> str:
        """Return the label value for `raw`."""
        if raw.__class__ is str and (cached := self._cache.get(raw)) is not None:
            return cached
        name = clean(raw)
        with self._lock:
            if name not in self._names:
                if len(self._names) - 2 >= self._limit:
                    return OTHER
                self._names.add(name)
            if isinstance(raw, str) and len(self._cache) < 2 * self._limit:
                self._cache[raw] = name
        return name

    def reserve(self, names: Iterable[str]) -> None:
        """Make room for names that must never fall under `other`, beyond the limit if need be."""
        with self._lock:
            for raw in names:
                name = clean(raw)
                self._names.add(name)
                self._cache[raw] = name


class FixedLabel:
    """A label of a closed vocabulary; everything else is `other`."""

    __slots__ = ("_names",)

    def __init__(self, names: Iterable[str]) -> None:
        self._names = {str(name): clean(str(name)) for name in names}

    def __call__(self, raw: str | None) -> str:
        """Return the label value for `raw`."""
        return self._names.get(raw, OTHER) if isinstance(raw, str) else UNKNOWN
