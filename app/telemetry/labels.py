"""Label values that cannot hurt: codes of a small alphabet, bounded in number, whatever comes in.

A label with a lone surrogate breaks the whole `/metrics` page, one that grows without bound kills the server that
scrapes it, and one made of text may hold what nobody should read. So every label of every metric goes through one of
the two classes here: what is not shaped like a code is `other`. Neither ever raises.
"""

import re
from collections.abc import Iterable
from threading import Lock

OTHER = "other"
UNKNOWN = "unknown"

CODE = re.compile(r"[A-Za-z0-9_.:+-]{1,80}")
ROUTE = re.compile(r"[A-Za-z0-9_.:/{}-]{1,120}")


class BoundedLabel:
    """A label that takes at most `limit` distinct values, first come first served; the rest are `other`.

    Names known beforehand are reserved, so that a flood of invented ones cannot push them out.
    """

    __slots__ = ("_limit", "_lock", "_names", "_shape")

    def __init__(self, limit: int, shape: re.Pattern[str] = CODE) -> None:
        self._limit = limit
        self._shape = shape
        self._names: dict[str, str] = {}
        self._lock = Lock()

    def __call__(self, raw: str | None) -> str:
        """Return the label value for `raw`."""
        if not isinstance(raw, str) or not raw:
            return UNKNOWN
        known = self._names.get(raw)
        return known if known is not None else self._admit(raw)

    def reserve(self, names: Iterable[str]) -> None:
        """Make room for names that must never fall under `other`, beyond the limit if need be."""
        with self._lock:
            self._names |= {str(name): str(name) for name in names if self._shape.fullmatch(name)}

    def _admit(self, raw: str) -> str:
        if not self._shape.fullmatch(raw):
            return OTHER
        with self._lock:
            if raw not in self._names and len(self._names) >= self._limit:
                return OTHER
            # A plain str: the value of a StrEnum member, not the member.
            return self._names.setdefault(str(raw), str(raw))


class FixedLabel:
    """A label of a closed vocabulary; everything else is `other`."""

    __slots__ = ("_names",)

    def __init__(self, names: Iterable[str]) -> None:
        self._names = {str(name): str(name) for name in names}

    def __call__(self, raw: str | None) -> str:
        """Return the label value for `raw`."""
        return self._names.get(raw, OTHER) if isinstance(raw, str) else UNKNOWN
