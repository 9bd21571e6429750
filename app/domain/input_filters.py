"""What filters say about a document before it reaches a prompt: verdicts, and findings by kind and number. Pure.

A filter takes a text and gives a `Filtered`: the text as it may go on, what was done, and how much of what was found.
Findings are kinds and numbers, spans are places: nothing here repeats the text.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum


class Verdict(StrEnum):
    """What a filter says, from the mildest to the strongest."""

    PASSED = "passed"
    CLEANED = "cleaned"
    FLAGGED = "flagged"
    REFUSED = "refused"


_STRENGTH = {verdict: place for place, verdict in enumerate(Verdict)}
BUILT_IN = ("size", "content_type", "control", "hidden", "injection", "pii", "presidio")
"""The filters that have a name; `size` and `content_type` look at a document before anything reads it."""
DEFAULTS = ("size", "content_type", "control", "hidden", "injection")


@dataclass(frozen=True, slots=True)
class Span:
    """Where something was found in the text as the filter got it, in characters."""

    kind: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Filtered:
    """What a filter made of a text. `findings` counts by kind; `score` is there where a filter weighs them."""

    text: str
    verdict: Verdict = Verdict.PASSED
    findings: Mapping[str, int] = field(default_factory=dict)
    spans: tuple[Span, ...] = ()
    score: float | None = None


InputFilter = Callable[[str], "Filtered | str | Awaitable[Filtered | str]"]
"""A filter of a type's own: text in, `Filtered` (or only the cleaned text) out; plain ones run in a thread."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What one filter had to say about one document."""

    filter: str
    verdict: Verdict
    findings: Mapping[str, int]
    score: float | None = None
    spans: tuple[Span, ...] = ()

    def as_fact(self) -> dict[str, object]:
        """Spell it for a task's history: counts and kinds, no place and no text."""
        fact: dict[str, object] = {"verdict": self.verdict.value, "found": dict(sorted(self.findings.items()))}
        return fact if self.score is None else fact | {"score": self.score}


def worst(findings: Sequence[Finding]) -> Verdict:
    """Give the strongest verdict; `passed` where there is none."""
    return max((one.verdict for one in findings), key=_STRENGTH.__getitem__, default=Verdict.PASSED)


def filter_name(one: str | InputFilter) -> str:
    """Name a filter: its name, or that of its function."""
    return one if isinstance(one, str) else str(getattr(one, "__name__", type(one).__name__))[:64]


def check_filters(type_name: str, filters: Sequence[str | InputFilter]) -> None:
    """Check what a type declares. Raises ValueError that says what would be right."""
    for one in filters:
        if (isinstance(one, str) and one not in BUILT_IN) or not (isinstance(one, str) or callable(one)):
            raise ValueError(f"{type_name}: input_filters should be functions, or names of: {', '.join(BUILT_IN)}")
