"""From a text to scored categories with their evidence. Pure and linear in the text's length.

A `Scan` reads the text in portions, so that whoever runs it can let others run in between. At every word the longest
phrase that starts there counts, and nothing inside it counts again: "GNU Lesser General Public License" says nothing
for the GPL. Ties go to the category that stands first in the taxonomy.
"""

import re
from dataclasses import dataclass, field
from itertools import islice

from workers.handlers.classify_document.folding import LANGUAGE_SAMPLE_WORDS, Word, guess_language, words_of
from workers.handlers.classify_document.taxonomy import UNKNOWN, Keyword, Phrase, Taxonomy

MAX_EXAMINED_CHARACTERS = 2_000_000
PORTION_CHARACTERS = 32_768
MAX_EVIDENCE = 12
MAX_SNIPPET_CHARACTERS = 80
MAX_TITLE_CHARACTERS = 200
_TITLE = re.compile(r"\s*([^\r\n]*)")


@dataclass(frozen=True, slots=True)
class KeywordEvidence:
    """One keyword that was found: how often, where first, and what it added to its category's score."""

    keyword: str
    snippet: str
    offset: int
    count: int
    in_title: bool
    weight: float
    points: float


@dataclass(frozen=True, slots=True)
class CategoryScore:
    """A category's points and the evidence for and against it, strongest first."""

    category: str
    score: float
    evidence: tuple[KeywordEvidence, ...]


@dataclass(frozen=True, slots=True)
class Scores:
    """Every category with evidence, best first; `winner` is None below the threshold."""

    ranked: tuple[CategoryScore, ...]
    winner: CategoryScore | None
    confidence: float
    language: str
    words: int
    examined_characters: int

    @property
    def category(self) -> str:
        """Return the winner's name, or `unknown`."""
        return self.winner.category if self.winner else UNKNOWN

    @property
    def runner_up(self) -> CategoryScore | None:
        """Return the best category that did not win, if it has points."""
        rest = [one for one in self.ranked if one is not self.winner and one.score > 0]
        return rest[0] if rest else None


@dataclass(slots=True)
class _Hits:
    start: int
    end: int
    count: int = 0
    in_title: bool = False


@dataclass(slots=True)
class Scan:
    """One pass over one text. Call `advance` until it returns False, then `scores`."""

    taxonomy: Taxonomy
    text: str
    _position: int = 0
    _words: int = 0
    _title_end: int = 0
    _pending: list[Word] = field(default_factory=list)
    _sample: list[str] = field(default_factory=list)
    _hits: dict[Keyword, _Hits] = field(default_factory=dict)

    def __post_init__(self) -> None:
        title = _TITLE.match(self.text[: MAX_TITLE_CHARACTERS * 5])
        self._title_end = min(title.end(), title.start(1) + MAX_TITLE_CHARACTERS) if title else 0

    @property
    def examined_characters(self) -> int:
        """Return how much of the text counts: all of it up to MAX_EXAMINED_CHARACTERS."""
        return min(len(self.text), MAX_EXAMINED_CHARACTERS)

    @property
    def share_done(self) -> float:
        """Return the share of the examined text that has been read, 0 to 1."""
        return self._position / self.examined_characters if self.examined_characters else 1.0

    def advance(self) -> bool:
        """Read one portion; return whether more is left."""
        end = self._portion_end()
        fresh = list(words_of(self.text, self._position, end))
        self._words += len(fresh)
        if len(self._sample) < LANGUAGE_SAMPLE_WORDS:
            self._sample += (word.folded for word in islice(fresh, LANGUAGE_SAMPLE_WORDS - len(self._sample)))
        self._position = end
        more = end < self.examined_characters
        self._match(self._pending + fresh, final=not more)
        return more

    def scores(self) -> Scores:
        """Return what was found; meaningful once `advance` has returned False."""
        found: dict[str, list[KeywordEvidence]] = {}
        for keyword, hits in self._hits.items():
            found.setdefault(keyword.category, []).append(self._evidence(keyword, hits))
        order = {name: place for place, name in enumerate(self.taxonomy.categories)}
        ranked = sorted(
            (_category_score(name, items) for name, items in found.items()), key=lambda c: order[c.category]
        )
        ranked.sort(key=lambda category: -category.score)
        winner = ranked[0] if ranked and ranked[0].score >= self.taxonomy.threshold else None
        second = ranked[1].score if len(ranked) > 1 else 0.0
        return Scores(
            ranked=tuple(ranked),
            winner=winner,
            confidence=_confidence(winner.score, second, self.taxonomy.threshold) if winner else 0.0,
            language=guess_language(self._sample),
            words=self._words,
            examined_characters=self.examined_characters,
        )

    def _portion_end(self) -> int:
        """Return where this portion ends: at white space if there is any near, so that no word is cut in two."""
        end = min(self._position + PORTION_CHARACTERS, self.examined_characters)
        if end == self.examined_characters:
            return end
        for cut in range(end, end - 256, -1):
            if self.text[cut - 1].isspace():
                return cut
        return end

    def _match(self, words: list[Word], *, final: bool) -> None:
        by_first_word = self.taxonomy.phrases_by_first_word
        folded = [word.folded for word in words]
        # A phrase may go on in the next portion: its possible first words wait for it.
        stop = len(words) if final else max(0, len(words) - self.taxonomy.longest_phrase_words + 1)
        at = 0
        while at < stop:
            candidates = by_first_word.get(folded[at])
            phrase = _longest_at(candidates, folded, at) if candidates else None
            if phrase is None:
                at += 1
            else:
                self._count(phrase, words[at].start, words[at + len(phrase.words) - 1].end)
                at += len(phrase.words)
        self._pending = words[at:]

    def _count(self, phrase: Phrase, start: int, end: int) -> None:
        for keyword in phrase.keywords:
            hits = self._hits.setdefault(keyword, _Hits(start, end))
            hits.count += 1
            hits.in_title = hits.in_title or start < self._title_end

    def _evidence(self, keyword: Keyword, hits: _Hits) -> KeywordEvidence:
        factor = self.taxonomy.title_factor if hits.in_title else 1.0
        return KeywordEvidence(
            keyword=keyword.label,
            snippet=_snippet(self.text[hits.start : hits.end]),
            offset=hits.start,
            count=hits.count,
            in_title=hits.in_title,
            weight=keyword.weight,
            points=round(keyword.weight * factor * _repeats(hits.count), 3),
        )


def score_text(taxonomy: Taxonomy, text: str) -> Scores:
    """Return the scores of `text` in one go."""
    scan = Scan(taxonomy, text)
    while scan.advance():
        pass
    return scan.scores()


def _longest_at(candidates: tuple[Phrase, ...], folded: list[str], at: int) -> Phrase | None:
    for phrase in candidates:
        if len(phrase.words) == 1 or tuple(folded[at : at + len(phrase.words)]) == phrase.words:
            return phrase
    return None


def _repeats(count: int) -> float:
    """Return how much `count` findings are worth: 1, 1.5, 1.75 … and never 2, so that no repetition wins by itself."""
    return 2.0 - 0.5 ** min(count - 1, 50)


def _category_score(category: str, items: list[KeywordEvidence]) -> CategoryScore:
    strongest_first = sorted(items, key=lambda item: (-abs(item.points), item.offset, item.keyword))
    return CategoryScore(category, round(sum(item.points for item in items), 3), tuple(strongest_first))


def _confidence(best: float, second: float, threshold: float) -> float:
    """Return 0 to 1: how far the winner is ahead, times how far it is above the threshold; a rank, no probability."""
    ahead = best / (best + max(second, 0.0))
    strong: float = 1.0 - 0.5 ** (best / threshold)
    return round(ahead * strong, 3)


def _snippet(found: str) -> str:
    """Return the words as they stand in the text, on one line, short, and always valid UTF-8."""
    flat = " ".join(found.split())[:MAX_SNIPPET_CHARACTERS]
    return "".join(char if char.isprintable() else "\ufffd" for char in flat)
