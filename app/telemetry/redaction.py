"""Take secrets and personal data out of text before anybody sees it. Never raises; over-redacts rather than under.

Three ways in: what looks like a secret (patterns), what a name says is one (`password`, `token`, …), and the very
values that this process holds (registered at start, so that a secret of any shape is found).
"""

import re
from threading import Lock
from urllib.parse import quote, quote_plus, unquote, urlsplit

HIDDEN = "[redacted]"
MAX_TEXT_CHARACTERS = 2000
MIN_SECRET_CHARACTERS = 4

_NAMES = (
    r"passwords?|passwd|passphrase|pwd|secrets?|token|api[_-]?keys?|access[_-]?keys?|private[_-]?keys?"
    r"|authorization|credentials?|cookies?|signature"
)
SECRET_NAME = re.compile(rf"(?:{_NAMES})$|^(?:sig|dsn|key)$", re.IGNORECASE)
"""Names of fields whose values are hidden whatever they are; `input_tokens` and `effect_key` are not among them."""

# Every quantifier that can meet itself again is bounded, so that no text makes these slow.
_PATTERNS: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----.*", re.DOTALL), HIDDEN),
    (re.compile(r"://[^\s/:@]{0,256}(?::\S{0,512})?@"), f"://{HIDDEN}@"),
    (re.compile(r"\b(bearer|basic|digest)\s{1,4}[^\s\"',;]{4,}", re.IGNORECASE), rf"\1 {HIDDEN}"),
    (
        re.compile(
            rf"((?:{_NAMES}|\bsig|\bkey)[\"']?\s{{0,4}}[:=]\s{{0,4}})(?!\[redacted\]|bearer |basic |digest )"
            r"(?:\"[^\"]{0,1024}\"?|'[^']{0,1024}'?|[^\s\"'&;,}\])]{1,1024})",
            re.IGNORECASE,
        ),
        rf"\1{HIDDEN}",
    ),
    (re.compile(r"\beyJ[A-Za-z0-9_-]{6,600}\.[A-Za-z0-9_-]{1,2000}(?:\.[A-Za-z0-9_-]{0,1000})?"), HIDDEN),
    (re.compile(r"\b(?:dsp|sk|rk|pk|ghp|gho|glpat|xox[abprs])[_-][A-Za-z0-9_-]{6,}"), HIDDEN),
    (re.compile(r"\bwhsec_[A-Za-z0-9+/_=-]{6,}"), HIDDEN),
    (re.compile(r"\bAKIA[0-9A-Z]{12,}"), HIDDEN),
    (re.compile(r"[\w.+-]{1,64}@[\w-]{1,63}\.[\w.-]{1,190}"), "[email]"),
)


class Redactor:
    """What takes secrets out of texts; knows the registered values of one process."""

    __slots__ = ("_lock", "_pattern", "_values")

    def __init__(self) -> None:
        self._values: set[str] = set()
        self._pattern: re.Pattern[str] | None = None
        self._lock = Lock()

    def register(self, value: str) -> None:
        """Hide this value wherever it appears, plain or percent-encoded; of a URL also its password alone.

        Values under four characters are left alone: hiding them would shred every text and protect nothing.
        """
        values = {value}
        try:
            password = urlsplit(value).password
        except ValueError:
            password = None
        if password:
            values |= {password, unquote(password)}
        for item in tuple(values):
            safe = item.encode("utf-8", "replace").decode()
            values |= {quote(safe, safe=""), quote_plus(safe), item.encode("unicode_escape").decode()}
        with self._lock:
            self._values |= {item for item in values if len(item) >= MIN_SECRET_CHARACTERS}
            if self._values:
                longest_first = sorted(self._values, key=len, reverse=True)
                self._pattern = re.compile("|".join(map(re.escape, longest_first)))

    def __call__(self, text: str, max_characters: int = MAX_TEXT_CHARACTERS) -> str:
        """Return `text` without secrets, cut to `max_characters`.

        It is redacted over its cut length and some more, so that a secret at the cut does not show its first half.
        """
        head = text[: 2 * max_characters + 1024]
        if self._pattern is not None:
            head = self._pattern.sub(HIDDEN, head)
        for pattern, replacement in _PATTERNS:
            head = pattern.sub(replacement, head)
        if len(head) <= max_characters and len(text) <= 2 * max_characters + 1024:
            return head
        return head[:max_characters] + "…"
