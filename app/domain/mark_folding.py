"""A text as a reader who wants to be fooled would see it: case, look-alikes and spacing taken away. Pure.

What is folded keeps the way back: a place in it is told as a place in the text as given.
"""

import unicodedata
from bisect import bisect_right
from collections.abc import Callable
from itertools import accumulate

# Letters of other scripts, and signs, that pass for Latin letters.
_LOOK_ALIKES = dict(
    zip(
        "аеорсухѕіјһԁԛԝѵкмтнвгɡɑαβγεικνορτυχηωոօսհıłøđ",
        "aeopcyxsijhdqwvkmthbrgaabyeiknoptuxnwnouhilod",
        strict=True,
    )
)
_DIGITS = dict(zip("0134578@$!|", "oieastbasii", strict=True))
_ROT = dict(zip("abcdefghijklmnopqrstuvwxyz", "nopqrstuvwxyzabcdefghijklm", strict=True))


def _plain(character: str) -> str:
    decomposed = unicodedata.normalize("NFKD", character).casefold()
    kept = "".join(one for one in unicodedata.normalize("NFKD", decomposed) if not unicodedata.combining(one))
    return "".join(_LOOK_ALIKES.get(one, one) for one in kept)


def _letters(character: str) -> str:
    return "".join(one for one in _plain(character) if one.isalnum())


def _spelled_with_digits(character: str) -> str:
    plain = "".join(_DIGITS.get(one, one) for one in _plain(character))
    return "".join(one for one in plain if one.isalnum())


def _rotated(character: str) -> str:
    return "".join(_ROT.get(one, one) for one in _letters(character))


class _Table(dict[int, str]):
    """Folds a character when it is first seen; bounded by the number of characters that there are."""

    def __init__(self, fold: Callable[[str], str]) -> None:
        super().__init__()
        self._fold = fold

    def __missing__(self, code: int) -> str:
        found = self[code] = self._fold(chr(code))
        return found


PLAIN, LETTERS, DIGITS, ROTATED = (_Table(fold) for fold in (_plain, _letters, _spelled_with_digits, _rotated))
"""The ways to fold: with what is between the words, letters and digits alone, digits read as letters, rotated by 13."""


class Folded:
    """A text folded by one table."""

    def __init__(self, given: str, table: _Table) -> None:
        self._given = given
        self._table = table
        self._ends: list[int] | None = None
        self.text = given.translate(table)

    def place(self, start: int, end: int) -> tuple[int, int]:
        """Give the place in the text as given of a place in the folded one."""
        if self._ends is None:
            self._ends = list(accumulate(len(self._table[ord(one)]) for one in self._given))
        return bisect_right(self._ends, start), min(bisect_right(self._ends, end - 1) + 1, len(self._given))
