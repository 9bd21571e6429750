"""Cutting a long text into parts that a prompt can hold, at the best place near each end. Pure."""

from collections.abc import Sequence

_BREAKS = ("\n\n", "\n", ". ", " ")
_SEARCHED = 0.25


def cut(text: str, size: int, overlap: int = 0) -> Sequence[str]:
    """Cut into parts of at most `size` characters, each of which repeats the last `overlap` ones of the part before.

    A part ends at a paragraph, a line, a sentence or a word, if there is one in its last quarter.
    """
    if not 0 <= overlap < size // 2:
        raise ValueError("overlap should be from 0 to less than half of size")
    parts: list[str] = []
    start = 0
    while len(text) - start > size:
        end = _end(text, start, start + size)
        parts.append(text[start:end])
        start = max(end - overlap, start + 1)
    parts.append(text[start:])
    return parts


def _end(text: str, start: int, most: int) -> int:
    least = most - int((most - start) * _SEARCHED)
    for mark in _BREAKS:
        place = text.rfind(mark, least, most)
        if place >= 0:
            return place + len(mark)
    return most
