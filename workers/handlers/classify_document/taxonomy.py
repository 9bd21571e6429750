"""The taxonomy: which categories exist and which keywords speak for them; loading and validating its TOML file.

Every error names the file, the line, what is wrong there and what would be right. The format is told in README.md.
"""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from workers.handlers.classify_document.folding import spellings

UNKNOWN = "unknown"
MAX_PHRASE_WORDS = 24
MAX_WEIGHT = 20.0
MAX_FILE_BYTES = 1024 * 1024
_NAME = re.compile(r"[a-z][a-z0-9_]{0,63}")
_HEADER = re.compile(r"\s*\[\s*category\s*\.\s*\"?([A-Za-z0-9_-]+)\"?\s*\]")
_TOP_KEYS = frozenset({"taxonomy", "category"})
_SETTING_KEYS = frozenset({"version", "threshold", "title_factor"})
_CATEGORY_KEYS = frozenset({"description", "keywords"})
_KEYWORD_KEYS = frozenset({"weight", "language", "any"})


class TaxonomyError(Exception):
    """A taxonomy file cannot be used; the text says where, what and how to mend it."""


@dataclass(frozen=True, slots=True)
class Keyword:
    """Phrases that mean the same, and how much finding one of them says for (or, below zero, against) a category."""

    category: str
    label: str
    weight: float
    language: str


@dataclass(frozen=True, slots=True)
class Phrase:
    """One spelling, as folded words, with the keywords that it belongs to."""

    words: tuple[str, ...]
    keywords: tuple[Keyword, ...]


@dataclass(frozen=True, slots=True)
class Taxonomy:
    """A validated taxonomy, indexed for scanning: phrases by their first word, longest first."""

    version: str
    threshold: float
    title_factor: float
    categories: tuple[str, ...]
    descriptions: Mapping[str, str]
    phrases_by_first_word: Mapping[str, tuple[Phrase, ...]]
    longest_phrase_words: int


def load_taxonomy(path: Path) -> Taxonomy:
    """Read and validate one file. Raises TaxonomyError."""
    try:
        size = path.stat().st_size
        if size > MAX_FILE_BYTES:
            raise TaxonomyError(f"{path.name}: {size} bytes; a taxonomy file may have {MAX_FILE_BYTES}")
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise TaxonomyError(f"{path.name}: byte {error.start} is not UTF-8; save the file as UTF-8") from None
    except OSError as error:
        raise TaxonomyError(f"{path.name}: cannot be read ({error.strerror}); check that it exists") from None
    return parse_taxonomy(text, path.name)


def parse_taxonomy(text: str, file_name: str) -> Taxonomy:
    """Validate the text of a taxonomy file. Raises TaxonomyError; `file_name` is only for its message."""
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise TaxonomyError(f"{file_name}: not TOML: {error}") from None
    return _Reader(file_name, text).taxonomy(table)


class _Reader:
    """Turns the parsed table into a Taxonomy; keeps the text to tell line numbers, which tomllib does not give."""

    def __init__(self, file_name: str, text: str) -> None:
        self._file_name = file_name
        self._lines = text.splitlines()

    def taxonomy(self, table: dict[str, object]) -> Taxonomy:
        self._only(table, _TOP_KEYS, 1, "the file")
        settings = table.get("taxonomy", {})
        line = self._line_starting("[taxonomy]")
        if not isinstance(settings, dict):
            raise self._error(line, "`taxonomy` is not a table", "write [taxonomy] above its keys")
        self._only(settings, _SETTING_KEYS, line, "[taxonomy]")
        categories = table.get("category")
        if not isinstance(categories, dict) or not categories:
            raise self._error(1, "no category", "add at least one [category.<name>] with keywords")
        keywords: list[tuple[Keyword, list[tuple[str, ...]]]] = []
        for name, category in categories.items():
            keywords += self._category(name, category)
        index = _index(keywords)
        return Taxonomy(
            version=self._version(settings, line),
            threshold=self._number(settings.get("threshold", 4.0), line, "threshold", 0.1, 1000.0),
            title_factor=self._number(settings.get("title_factor", 2.0), line, "title_factor", 1.0, 10.0),
            categories=tuple(categories),
            descriptions={name: str(category["description"]) for name, category in categories.items()},
            phrases_by_first_word=index,
            longest_phrase_words=max(len(phrase.words) for phrases in index.values() for phrase in phrases),
        )

    def _version(self, settings: dict[str, object], line: int) -> str:
        version = settings.get("version")
        if not isinstance(version, str) or not version or len(version) > 64:
            raise self._error(
                line, "`version` is missing or no text", 'write version = "2026-11-30.1", 1 to 64 characters'
            )
        return version

    def _category(self, name: str, category: object) -> list[tuple[Keyword, list[tuple[str, ...]]]]:
        line = self._header_line(name)
        if not _NAME.fullmatch(name) or name == UNKNOWN:
            raise self._error(
                line, f"category name {name!r}", f"use a-z, 0-9 and _, a letter first, at most 64, and not {UNKNOWN!r}"
            )
        if not isinstance(category, dict):
            raise self._error(line, f"`category.{name}` is not a table", f"write [category.{name}] above its keys")
        self._only(category, _CATEGORY_KEYS, line, f"[category.{name}]")
        description = category.get("description")
        if not isinstance(description, str) or not description.strip():
            raise self._error(line, f"category {name} has no description", 'add description = "…": one sentence')
        rows = category.get("keywords")
        if not isinstance(rows, list) or not rows:
            raise self._error(
                line, f"category {name} has no keywords", 'add keywords = [ { weight = 3, any = ["…"] } ]'
            )
        return [self._keyword(name, row, self._row_line(name, number)) for number, row in enumerate(rows)]

    def _keyword(self, category: str, row: object, line: int) -> tuple[Keyword, list[tuple[str, ...]]]:
        if not isinstance(row, dict):
            raise self._error(line, "a keyword is not a table", '{ weight = 3, any = ["invoice", "invoices"] }')
        self._only(row, _KEYWORD_KEYS, line, "a keyword")
        weight = self._number(row.get("weight"), line, "weight", -MAX_WEIGHT, MAX_WEIGHT)
        if weight == 0:
            raise self._error(line, "weight 0 says nothing", "use a weight above 0 (for) or below 0 (against)")
        language = row.get("language", "any")
        if not isinstance(language, str) or not re.fullmatch(r"[a-z]{2,3}", language):
            raise self._error(line, "`language` is no language code", 'write language = "pt", or leave it out')
        phrases = row.get("any")
        if not isinstance(phrases, list) or not phrases:
            raise self._error(line, "`any` is missing or empty", 'write any = ["invoice", "invoices"]')
        spelled = [words for phrase in phrases for words in self._phrase(phrase, line)]
        return Keyword(category, str(phrases[0]), weight, language), spelled

    def _phrase(self, phrase: object, line: int) -> tuple[tuple[str, ...], ...]:
        if not isinstance(phrase, str):
            raise self._error(line, f"the phrase {phrase!r} is no text", "put it in quotes")
        ways = spellings(phrase)
        if not ways[0]:
            raise self._error(line, f"the phrase {phrase!r} has no word", "use letters or digits")
        if len(ways[0]) > MAX_PHRASE_WORDS:
            raise self._error(line, f"the phrase {phrase[:40]!r}… is too long", f"use at most {MAX_PHRASE_WORDS} words")
        return ways

    def _number(self, value: object, line: int, key: str, low: float, high: float) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
            raise self._error(
                line, f"`{key}` is missing or no number in range", f"write a number from {low:g} to {high:g}"
            )
        return float(value)

    def _only(self, table: Mapping[str, object], known: frozenset[str], line: int, where: str) -> None:
        for key in table:
            if key not in known:
                raise self._error(line, f"{where} has the unknown key `{key}`", f"known are {', '.join(sorted(known))}")

    def _error(self, line: int, wrong: str, right: str) -> TaxonomyError:
        return TaxonomyError(f"{self._file_name}, line {line}: {wrong}; {right}")

    def _line_starting(self, start: str) -> int:
        return next((n for n, line in enumerate(self._lines, 1) if line.strip().startswith(start)), 1)

    def _header_line(self, name: str) -> int:
        for number, line in enumerate(self._lines, 1):
            header = _HEADER.match(line)
            if header is not None and header.group(1) == name:
                return number
        return 1

    def _row_line(self, category: str, row: int) -> int:
        """Return the line of the category's n-th keyword: exact with one keyword a line, as the format asks."""
        header = self._header_line(category)
        seen = -1
        for number, line in enumerate(self._lines[header:], header + 1):
            if line.lstrip().startswith("["):
                break
            seen += line.split("#")[0].count("{")
            if seen >= row:
                return number
        return header


def _index(keywords: list[tuple[Keyword, list[tuple[str, ...]]]]) -> dict[str, tuple[Phrase, ...]]:
    owners: dict[tuple[str, ...], dict[Keyword, None]] = {}
    for keyword, spelled in keywords:
        for words in spelled:
            owners.setdefault(words, {})[keyword] = None
    by_first: dict[str, list[Phrase]] = {}
    for words, owning in owners.items():
        by_first.setdefault(words[0], []).append(Phrase(words, tuple(owning)))
    return {first: tuple(sorted(found, key=lambda phrase: -len(phrase.words))) for first, found in by_first.items()}
