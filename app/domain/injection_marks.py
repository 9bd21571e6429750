"""Looking for text that is written to a model: a score, with the places. Pure, and linear in the text's length.

The text is looked at without case, look-alikes and invisible characters; phrases are sought without anything between
the letters, with digits read as letters, and rotated by 13. What is encoded in it (base64, hex, percent signs, HTML
entities, tag characters) is decoded and looked at, too. A score is a hint: the documents are marked as data anyway.
"""

import base64
import binascii
import html
import re
from collections import Counter
from collections.abc import Iterator
from urllib.parse import unquote

from app.domain.hidden_text import clean_hidden, smuggled
from app.domain.injection_phrases import PHRASES, SIGNS
from app.domain.input_filters import Filtered, Span, Verdict
from app.domain.mark_folding import DIGITS, LETTERS, PLAIN, ROTATED, Folded

_BASE64 = re.compile(r"[A-Za-z0-9+/_-]{24,}(?:\s{1,2}[A-Za-z0-9+/_-]{24,})*={0,2}")
_HEX = re.compile(r"(?:[0-9a-fA-F]{2}[ :]?){16,}|(?:\\x[0-9a-fA-F]{2}){12,}|(?:\\u00[0-9a-fA-F]{2}){12,}")
_PERCENT = re.compile(r"(?:[\w. -]{0,40}%[0-9a-fA-F]{2}){4,}[\w. -]{0,40}")
_ENTITIES = re.compile(r"(?:[\w ]{0,40}&#?\w{2,8};){4,}[\w ]{0,40}")
_DIGIT_AMONG_LETTERS = re.compile(r"[a-z][0134578@$!|][a-z]")
_MOST_SPANS, _MOST_BLOBS, _MOST_DECODED, _DEEPEST = 100, 200, 256 * 1024, 2
_MOST_OF_A_KIND = 3


def scan(text: str, *, flag_score: float, refuse_score: float | None = None) -> Filtered:
    """Weigh a text. Flagged from `flag_score` on, refused from `refuse_score` on; the text goes on as it is."""
    spans: list[Span] = []
    weights: dict[str, float] = {}
    found: Counter[str] = Counter()
    for kind, weight, start, end in _marks(text, 0):
        found[kind] += 1
        weights[kind] = max(weight, weights.get(kind, 0.0))
        if len(spans) < _MOST_SPANS:
            spans.append(Span(kind, start, end))
    # The first of a kind counts whole, the next ones half: many of one kind are less than several kinds.
    score = sum(weights[kind] * (1 + 0.5 * (min(found[kind], _MOST_OF_A_KIND) - 1)) for kind in found)
    verdict = Verdict.PASSED
    if refuse_score is not None and found and score >= refuse_score:
        verdict = Verdict.REFUSED
    elif found and score >= flag_score:
        verdict = Verdict.FLAGGED
    return Filtered(text, verdict, dict(found), tuple(spans), round(score, 2))


def _marks(text: str, depth: int) -> Iterator[tuple[str, float, int, int]]:
    """Yield kind, weight, start and end of every mark."""
    seen: set[tuple[str, int]] = set()
    for kind, weight, start, end in _visible(text):
        # The same words found by two ways to fold are one mark.
        if not any((kind, place) in seen for place in range(start - 3, start + 4)):
            seen.add((kind, start))
            yield kind, weight, start, end
    said = smuggled(text)
    if len(said) >= 8 and any(True for _ in _visible(said)):
        yield "encoded_hidden", 6.0, 0, len(text)
    if depth < _DEEPEST:
        for start, end, decoded in _decoded(text):
            for kind, weight, _, _ in _marks(decoded, depth + 1):
                yield kind if kind.startswith("encoded_") else f"encoded_{kind}", weight + 1, start, end


def _visible(text: str) -> Iterator[tuple[str, float, int, int]]:
    plain = Folded(text, PLAIN)
    yield from _found(plain, signs=True)
    yield from _found(Folded(text, LETTERS))
    if _DIGIT_AMONG_LETTERS.search(plain.text):
        yield from _found(Folded(text, DIGITS))
    yield from _found(Folded(text, ROTATED), weight=1.0, prefix="encoded_")


def _found(
    folded: Folded, *, signs: bool = False, weight: float = 0.0, prefix: str = ""
) -> Iterator[tuple[str, float, int, int]]:
    for mark in SIGNS if signs else PHRASES:
        for match in mark.pattern.finditer(folded.text):
            if prefix and not match.group().isascii():
                continue  # only Latin letters are rotated
            yield f"{prefix}{mark.kind}", mark.weight + weight, *folded.place(*match.span())


def _decoded(text: str) -> Iterator[tuple[int, int, str]]:
    """Yield what is encoded in a text and where; the sum of it is bounded."""
    room = _MOST_DECODED
    blobs = 0
    for pattern, decode in (
        (_BASE64, _from_base64),
        (_HEX, _from_hex),
        (_PERCENT, unquote),
        (_ENTITIES, html.unescape),
    ):
        for match in pattern.finditer(text):
            blobs += 1
            if blobs > _MOST_BLOBS or room <= 0:
                return
            given = match.group()[: 2 * room]
            decoded = decode(given)
            room -= len(given)
            if len(decoded) >= 12 and decoded != given and _is_text(decoded):
                yield *match.span(), clean_hidden(decoded).text


def _from_base64(given: str) -> str:
    compact = re.sub(r"\s", "", given).rstrip("=").translate({ord("-"): "+", ord("_"): "/"})
    compact = compact[: len(compact) - (len(compact) % 4 == 1)]
    try:
        raw = base64.b64decode(compact + "=" * (-len(compact) % 4))
    except (binascii.Error, ValueError):
        return ""
    return _text_of(raw)


def _from_hex(given: str) -> str:
    try:
        return _text_of(bytes.fromhex(re.sub(r"\\x|\\u00|[\s:]", "", given)))
    except ValueError:
        return ""


def _text_of(raw: bytes) -> str:
    if raw[1:8:2] == b"\0\0\0\0"[: len(raw[1:8:2])] and raw:
        return raw.decode("utf-16-le", "replace")
    return raw.decode("utf-8", "replace")


def _is_text(decoded: str) -> bool:
    sample = decoded[:2000]
    bad = sum(
        1 for one in sample if one == "\N{REPLACEMENT CHARACTER}" or (not one.isprintable() and not one.isspace())
    )
    return bad <= 0.1 * len(sample)
