"""Whether a document has a quote: spacing, case and look-alike punctuation do not matter, all else does. Pure."""

import re
import unicodedata

_MARKS = str.maketrans(dict.fromkeys("‘’‚‛′`´", "'") | dict.fromkeys("“”„‟″«»", '"') | dict.fromkeys("‐‑‒–—―−", "-"))
_SPACE = re.compile(r"\s+")
_LEAST = 2


class Quotable:
    """A document that quotes are looked for in."""

    def __init__(self, text: str) -> None:
        self._text = _folded(text)

    def has(self, quote: str) -> bool:
        """Say whether the quote occurs. A quote without letters or digits is none."""
        folded = _folded(quote).strip(" \"'")
        if len(folded) < _LEAST and not folded.isalnum():
            return False
        return any(one.isalnum() for one in folded) and folded in self._text


def _folded(text: str) -> str:
    return _SPACE.sub(" ", unicodedata.normalize("NFKC", text).translate(_MARKS).casefold()).strip()
