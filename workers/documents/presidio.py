"""The filter `presidio`: personal data that has no pattern (names, places …), found by Microsoft's Presidio.

It is an extra (`pip install 'despacho[pii]'`) with language models of its own, loaded when it is first needed.
"""

import importlib
from collections import Counter
from collections.abc import Callable
from threading import Lock
from typing import Any

from app.domain.errors import DeadLetter
from app.domain.input_filters import Filtered, Span, Verdict

_MOST_SPANS = 100


def load_analyzer() -> Any:
    """Make Presidio's analyzer. Raises DeadLetter (`filter_unavailable`) that names the extra."""
    try:
        return importlib.import_module("presidio_analyzer").AnalyzerEngine()
    except ImportError:
        raise DeadLetter(
            "filter_unavailable", "the input filter 'presidio' needs the extra pii: pip install 'despacho[pii]'"
        ) from None
    except (OSError, SystemExit, ValueError) as error:
        raise DeadLetter(
            "filter_unavailable",
            f"the input filter 'presidio' found no language model ({type(error).__name__}): "
            "install the one that presidio-analyzer names",
        ) from None


class PresidioRedactor:
    """Puts `[person]`, `[location]` … in the place of what the analyzer finds; loads it once."""

    def __init__(self, language: str, min_score: float, *, load: Callable[[], Any] = load_analyzer) -> None:
        self._language = language
        self._min_score = min_score
        self._load = load
        self._analyzer: Any = None
        self._loading = Lock()

    def redact(self, text: str) -> Filtered:
        """Redact a text. Raises DeadLetter (`filter_unavailable`)."""
        with self._loading:
            if self._analyzer is None:
                self._analyzer = self._load()
        results = self._analyzer.analyze(text=text, language=self._language)
        hits = sorted(
            (one for one in results if one.score >= self._min_score and 0 <= one.start < one.end <= len(text)),
            key=lambda one: (one.start, -one.end),
        )
        found: Counter[str] = Counter()
        spans: list[Span] = []
        parts, at = [], 0
        for one in hits:
            if one.start < at:
                continue  # inside of what is out already
            kind = str(one.entity_type).lower()[:40]
            found[kind] += 1
            if len(spans) < _MOST_SPANS:
                spans.append(Span(kind, one.start, one.end))
            # As `pii` does, never longer than what it replaces.
            parts += [
                text[at : one.start],
                f"[{kind}]" if len(kind) + 2 <= one.end - one.start else "[-]"[: one.end - one.start],
            ]
            at = one.end
        if not found:
            return Filtered(text)
        return Filtered("".join((*parts, text[at:])), Verdict.CLEANED, dict(found), tuple(spans))
