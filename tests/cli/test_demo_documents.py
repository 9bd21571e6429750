from importlib.metadata import Distribution, distributions
from pathlib import Path

import pytest

from app.cli.demo_documents import (
    MAX_DOCUMENT_BYTES,
    MAX_FILE_BYTES,
    Document,
    DocumentsError,
    decode,
    documents_from,
    installed_documents,
)
from workers.handlers.classify_document.scoring import score_text
from workers.handlers.classify_document.shelf import find_taxonomy

DESCRIPTION = "A library that says hello to whoever calls it, politely and in many languages."


def a_package(site: Path, name: str, *, fields: str = "", description: str = "", **files: str) -> None:
    folder = site / f"{name}-1.0.dist-info"
    for path, text in {
        "METADATA": f"Metadata-Version: 2.4\nName: {name}\nVersion: 1.0\n{fields}\n{description}"
    }.items():
        folder.mkdir(parents=True)
        (folder / path).write_text(text, encoding="utf-8")
    record = ["METADATA"]
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text, encoding="utf-8")
        record.append(path)
    (folder / "RECORD").write_text("".join(f"{folder.name}/{path},,\n" for path in record), encoding="utf-8")


def found_in(site: Path) -> list[Distribution]:
    return list(distributions(path=[str(site)]))


def skipped_nothing(message: str) -> None:
    raise AssertionError(message)


def test_a_package_gives_its_licence_and_its_description(tmp_path: Path) -> None:
    a_package(
        tmp_path,
        "hello",
        fields="License-Expression: MIT\n",
        description=DESCRIPTION,
        **{"licenses/LICENSE": "MIT License …"},
    )

    assert installed_documents(found_in(tmp_path)) == [
        Document("hello: licence", "MIT License …", "mit"),
        Document("hello: description", DESCRIPTION, None),
    ]


def test_only_the_package_s_own_licences_are_taken(tmp_path: Path) -> None:
    a_package(
        tmp_path,
        "hello",
        **{
            "LICENSE": "own",
            "licenses/vendor/zlib/LICENSE": "somebody else's",
            "licenses/AUTHORS": "people",
            "licenses/license_check.py": "code",
            "NOTICE": "notice",
        },
    )

    assert [document.text for document in installed_documents(found_in(tmp_path))] == ["own"]


def test_one_of_several_licences_is_not_held_against_the_declaration(tmp_path: Path) -> None:
    a_package(
        tmp_path,
        "both",
        fields="License-Expression: MIT OR Apache-2.0\n",
        **{"licenses/LICENSE-APACHE": "a", "licenses/LICENSE-MIT": "m"},
    )
    a_package(
        tmp_path,
        "extra",
        fields="License-Expression: MIT\n",
        **{"licenses/LICENSE": "m", "licenses/LICENSE.other": "o"},
    )

    documents = installed_documents(found_in(tmp_path))

    assert [(document.name, document.expected) for document in documents] == [
        ("both: licence (LICENSE-APACHE)", None),
        ("both: licence (LICENSE-MIT)", None),
        ("extra: licence (LICENSE)", "mit"),
        ("extra: licence (LICENSE.other)", None),
    ]


def test_of_an_lgpl_package_the_lesser_licence_is_compared(tmp_path: Path) -> None:
    a_package(
        tmp_path,
        "lesser",
        fields="License-Expression: LGPL-3.0-or-later\n",
        **{"licenses/COPYING": "gpl", "licenses/COPYING.LESSER": "lgpl"},
    )

    expected = {document.text: document.expected for document in installed_documents(found_in(tmp_path))}

    assert expected == {"gpl": None, "lgpl": "lgpl"}


def test_packages_come_in_the_order_of_their_names_and_once(tmp_path: Path) -> None:
    for name in ("Zeta", "alpha", "Beta_x"):
        a_package(tmp_path / "one", name, description=DESCRIPTION)
    a_package(tmp_path / "two", "beta.x", description=DESCRIPTION)

    documents = installed_documents([*found_in(tmp_path / "one"), *found_in(tmp_path / "two")])

    assert [document.name for document in documents] == [
        "alpha: description",
        "beta-x: description",
        "zeta: description",
    ]


def test_texts_are_cut_and_missing_or_binary_licences_left_out(tmp_path: Path) -> None:
    a_package(tmp_path, "large", description="é" * MAX_DOCUMENT_BYTES, LICENSE="x" * (MAX_DOCUMENT_BYTES + 1))
    a_package(tmp_path, "odd", LICENSE="\0\0\0", COPYING="gone")
    (tmp_path / "odd-1.0.dist-info" / "COPYING").unlink()
    a_package(tmp_path, "silent", description="UNKNOWN")

    documents = installed_documents(found_in(tmp_path))

    assert [document.name for document in documents] == ["large: licence", "large: description"]
    assert all(len(document.text.encode()) <= MAX_DOCUMENT_BYTES for document in documents)


def test_the_licences_of_this_environment_are_read_as_what_they_are_declared() -> None:
    taxonomy = find_taxonomy("default", None)
    documents = installed_documents()

    compared = [document for document in documents if document.expected is not None]
    differing = [
        (document.name, document.expected, found)
        for document in compared
        if (found := score_text(taxonomy, document.text).category) != document.expected
    ]
    descriptions = [document for document in documents if document.name.endswith(": description")]
    recognised = sum(
        score_text(taxonomy, document.text).category == "software_description" for document in descriptions
    )

    assert len(compared) >= 20
    assert len(differing) <= 0.05 * len(compared), differing
    assert recognised >= 0.9 * len(descriptions)
    assert documents == installed_documents()


def test_named_files_and_directories_become_documents(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / ".git").mkdir()
    for path, text in {"b.txt": "b", "sub/a.txt": "a", ".git/config": "hidden", ".hidden": "hidden"}.items():
        (tmp_path / path).write_text(text, encoding="utf-8")

    documents = documents_from([tmp_path, tmp_path / "b.txt"], on_skipped=skipped_nothing)

    assert [(Path(document.name).name, document.text) for document in documents] == [
        ("b.txt", "b"),
        ("a.txt", "a"),
        ("b.txt", "b"),
    ]


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("número".encode(), "número"),
        (b"\xef\xbb\xbfn\xc3\xba", "nú"),
        ("número".encode("latin-1"), "número"),
        ("número".encode("utf-16"), "número"),
    ],
)
def test_text_is_decoded_by_mark_as_utf_8_or_as_latin_1(content: bytes, text: str) -> None:
    assert decode(content) == text


def test_a_named_file_that_cannot_be_used_is_an_error_that_says_what_would_do(tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"\x00\x01")
    (tmp_path / "image").write_bytes(bytes(range(1, 255)) * 10)
    (tmp_path / "empty").write_bytes(b" \n")
    (tmp_path / "odd16").write_bytes(b"\xff\xfea")
    with (tmp_path / "large").open("wb") as large:
        large.truncate(MAX_FILE_BYTES + 1)

    for name, says in {
        "absent": "does not exist",
        "binary": "NUL bytes; convert it to text",
        "image": "control characters; convert it to text",
        "empty": "needs some text",
        "odd16": "convert it to text",
        "large": f"may have {MAX_FILE_BYTES}",
    }.items():
        with pytest.raises(DocumentsError, match=says):
            documents_from([tmp_path / name], on_skipped=skipped_nothing)


def test_a_file_without_rights_or_a_device_is_an_error_too(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")

    with pytest.raises(DocumentsError, match="not a file"):
        documents_from([Path("/dev/null")], on_skipped=skipped_nothing)
    with pytest.raises(DocumentsError, match="cannot be read"):
        documents_from([tmp_path / "loop"], on_skipped=skipped_nothing)


def test_in_a_directory_what_is_no_text_is_told_and_left_out(tmp_path: Path) -> None:
    (tmp_path / "a.bin").write_bytes(b"\0")
    (tmp_path / "b.txt").write_text("b", encoding="utf-8")
    skipped: list[str] = []

    documents = documents_from([tmp_path], on_skipped=skipped.append)

    assert [document.text for document in documents] == ["b"]
    assert len(skipped) == 1
    assert "a.bin: not a text file" in skipped[0]


def test_nothing_usable_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DocumentsError, match="no text file there"):
        documents_from([tmp_path], on_skipped=skipped_nothing)
    with pytest.raises(DocumentsError, match="no path"):
        documents_from([], on_skipped=skipped_nothing)
