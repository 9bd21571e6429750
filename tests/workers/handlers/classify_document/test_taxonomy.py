from pathlib import Path

import pytest

from workers.handlers.classify_document.shelf import find_taxonomy
from workers.handlers.classify_document.taxonomy import MAX_FILE_BYTES, TaxonomyError, load_taxonomy, parse_taxonomy

GOOD = """\
[taxonomy]
version = "1"

[category.invoice]
description = "A demand for payment."
keywords = [
  { weight = 3, language = "en", any = ["invoice", "invoices"] },
  { weight = 5, any = ["invoice number"] },
]
"""


def test_a_taxonomy_indexes_its_phrases_longest_first() -> None:
    taxonomy = parse_taxonomy(GOOD, "own.toml")

    assert taxonomy.categories == ("invoice",)
    assert [phrase.words for phrase in taxonomy.phrases_by_first_word["invoice"]] == [
        ("invoice", "number"),
        ("invoice",),
    ]
    assert taxonomy.longest_phrase_words == 2


@pytest.mark.parametrize(
    ("old", "new", "line", "says"),
    [
        ("weight = 5,", "weight = 50,", 8, "from -20 to 20"),
        ("weight = 5,", "weight = true,", 8, "from -20 to 20"),
        ("weight = 5,", "weight = nan,", 8, "from -20 to 20"),
        ("weight = 5,", "weight = 0,", 8, "above 0"),
        ("weight = 5, ", "", 8, "`weight` is missing"),
        ('any = ["invoice number"]', 'any = "invoice number"', 8, 'any = ["invoice", "invoices"]'),
        ('["invoice number"]', "[7]", 8, "quotes"),
        ('["invoice number"]', '["…"]', 8, "letters or digits"),
        ('["invoice number"]', f'["{"word " * 25}"]', 8, "at most 24 words"),
        ('language = "en"', 'language = "English"', 7, 'language = "pt"'),
        ('language = "en"', 'lang = "en"', 7, "known are any, language, weight"),
        ("[category.invoice]", "[category.unknown]", 4, "not 'unknown'"),
        ("[category.invoice]", '[category."In-voice"]', 4, "a letter first"),
        ('description = "A demand for payment."', "", 4, "description"),
        ('version = "1"', "", 1, 'version = "2026-11-30.1"'),
        ('version = "1"', 'version = "1"\nthreshold = 0', 1, "`threshold`"),
        ("[taxonomy]", "[taxonomies]", 1, "unknown key `taxonomies`"),
    ],
)
def test_an_error_names_the_line_what_is_wrong_and_what_is_right(old: str, new: str, line: int, says: str) -> None:
    with pytest.raises(TaxonomyError) as caught:
        parse_taxonomy(GOOD.replace(old, new), "own.toml")

    assert str(caught.value).startswith(f"own.toml, line {line}: ")
    assert says in str(caught.value)


def test_broken_toml_is_told_with_its_line() -> None:
    with pytest.raises(TaxonomyError, match=r"own.toml: not TOML: .*line 4"):
        parse_taxonomy(GOOD.replace("[category.invoice]", "[category.invoice"), "own.toml")


def test_a_file_without_categories_is_refused() -> None:
    with pytest.raises(TaxonomyError, match="at least one"):
        parse_taxonomy('[taxonomy]\nversion = "1"\n', "own.toml")


def test_a_file_that_cannot_be_read_says_why(tmp_path: Path) -> None:
    latin = tmp_path / "latin.toml"
    latin.write_bytes("version = 'é'".encode("latin-1"))
    large = tmp_path / "large.toml"
    large.write_bytes(b"#" * (MAX_FILE_BYTES + 1))

    for path, says in ((latin, "UTF-8"), (large, "bytes"), (tmp_path / "absent.toml", "exists")):
        with pytest.raises(TaxonomyError, match=says):
            load_taxonomy(path)


def test_the_shipped_taxonomy_is_valid_and_knows_the_documents_of_a_back_office() -> None:
    taxonomy = find_taxonomy("default", None)

    assert {"invoice", "contract", "complaint", "refund_request", "meeting_minutes", "mit", "gpl"} <= set(
        taxonomy.categories
    )


def test_an_own_taxonomy_is_found_by_name_and_read_again_when_it_changes(tmp_path: Path) -> None:
    own = tmp_path / "own.toml"
    own.write_text(GOOD, encoding="utf-8")

    first = find_taxonomy("own", tmp_path)
    own.write_text(GOOD.replace('"1"', '"version two"'), encoding="utf-8")
    second = find_taxonomy("own", tmp_path)

    assert (first.version, second.version) == ("1", "version two")


def test_a_user_may_replace_the_shipped_taxonomy(tmp_path: Path) -> None:
    (tmp_path / "default.toml").write_text(GOOD, encoding="utf-8")

    assert find_taxonomy("default", tmp_path).version == "1"
    assert find_taxonomy("default", tmp_path / "absent").version != "1"


def test_a_name_nobody_knows_lists_those_there_are(tmp_path: Path) -> None:
    (tmp_path / "own.toml").write_text(GOOD, encoding="utf-8")

    with pytest.raises(TaxonomyError, match="there is default, own"):
        find_taxonomy("other", tmp_path)


@pytest.mark.parametrize("name", ["../secret", "/etc/passwd", "a/b", "", "A", "x" * 65, "a\0b", ".."])
def test_a_name_is_never_a_path(name: str, tmp_path: Path) -> None:
    with pytest.raises(TaxonomyError, match="a letter first"):
        find_taxonomy(name, tmp_path)
