"""Words of a text, folded so that spelling habits do not matter. Pure: no I/O, no state but a bounded cache.

Folding takes away what writers, keyboards and converters vary: case, accents, full-width letters, ligatures, ß and ẞ,
the dotted and dotless i of Turkish, soft hyphens and zero-width characters inside a word. Text and keywords go through
the same functions, so a keyword may be written the natural way.
"""

import re
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache

# A word: letters and digits, with combining marks and invisible characters inside it. The underscore separates, so that
# `invoice_number` is two words. Every character is looked at once: the pattern cannot backtrack.
_WORD = re.compile(r"[^\W_]+(?:[\u0300-\u036f\u00ad\u200b-\u200d\u2060\ufeff]+[^\W_]*)*")
_INVISIBLE = dict.fromkeys((0x00AD, 0x200B, 0x200C, 0x200D, 0x2060, 0xFEFF))
# Letters with a stroke or tied together: Unicode gives them no decomposition, readers do.
_UNDECOMPOSED = str.maketrans(
    {"ł": "l", "ø": "o", "đ": "d", "ð": "d", "þ": "th", "æ": "ae", "œ": "oe", "ı": "i", "ħ": "h", "ŀ": "l"}
)
_UMLAUTS = str.maketrans({"ä": "ae", "ö": "oe", "ü": "ue", "Ä": "Ae", "Ö": "Oe", "Ü": "Ue"})
_CACHED_WORD_LENGTH = 64
LANGUAGE_SAMPLE_WORDS = 5000
_LANGUAGE_MINIMUM_HITS = 3

# Frequent words of each language, folded.
_STOPWORDS: dict[str, frozenset[str]] = {
    language: frozenset(words.split())
    for language, words in {
        "en": "the of and to is that for with this be are was which by from you your not have or it",
        "pt": "nao uma um dos das ao aos pela pelo voce foi sao sua seu mais como em os as com na no",
        "es": "el los las del una un por con para su al es y esta como mas pero sus lo se fue",
        "fr": "le les des du une un et est pour dans que qui sur avec pas vous nous au aux par ce",
        "de": "der die das und ist nicht ein eine von mit den dem zu auf fur sie wir im des wird",
    }.items()
}


@dataclass(frozen=True, slots=True)
class Word:
    """One word of a text: its folded form and where it stands in the text as given (character offsets)."""

    folded: str
    start: int
    end: int


def fold(text: str) -> str:
    """Return `text` without case, accents and typographic variants; lengths may change (ß becomes ss)."""
    if text.isascii():
        return text.lower()
    return _fold_unicode(text) if len(text) > _CACHED_WORD_LENGTH else _fold_cached(text)


def _fold_unicode(text: str) -> str:
    decomposed = unicodedata.normalize("NFKD", text.translate(_INVISIBLE).casefold())
    marks_off = "".join(char for char in decomposed if not unicodedata.combining(char))
    return marks_off.translate(_UNDECOMPOSED).casefold()


@lru_cache(maxsize=16_384)
def _fold_cached(text: str) -> str:
    return _fold_unicode(text)


def words_of(text: str, start: int = 0, end: int | None = None) -> Iterator[Word]:
    """Yield the words of `text[start:end]` in order; offsets count from the beginning of `text`."""
    for match in _WORD.finditer(text, start, len(text) if end is None else end):
        yield Word(fold(match.group()), match.start(), match.end())


def spellings(phrase: str) -> tuple[tuple[str, ...], ...]:
    """Return the folded words of a keyword, once for each way to write it.

    German umlauts are written ü, u (by folding) or ue (by keyboards without them), so `Kündigung` gives two.
    """
    written = {phrase: None, phrase.translate(_UMLAUTS): None}
    folded = {tuple(word.folded for word in words_of(one)): None for one in written}
    return tuple(folded)


def guess_language(folded_words: Iterable[str]) -> str:
    """Return `en`, `pt`, `es`, `fr` or `de` by counting frequent words, or `unknown` when too few speak for one.

    `folded_words` should be a sample (LANGUAGE_SAMPLE_WORDS is plenty). A word of several languages counts for each.
    """
    hits = dict.fromkeys(_STOPWORDS, 0)
    for word in folded_words:
        if len(word) <= 5:
            for language, stopwords in _STOPWORDS.items():
                hits[language] += word in stopwords
    ranked = sorted(hits.items(), key=lambda item: (-item[1], item[0]))
    (best, count), (_, second) = ranked[0], ranked[1]
    return best if count >= _LANGUAGE_MINIMUM_HITS and count > second else "unknown"
