"""The documents of `despacho demo`: texts of the packages installed here, or files that the user names.

Reads files and package metadata, never the network. Sizes and numbers are bounded; the order is always the same.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import Distribution, distributions
from pathlib import Path, PurePosixPath

from app.cli.declared_licences import declared_category

MAX_DOCUMENT_BYTES = 256 * 1024
MAX_FILE_BYTES = 25 * 1024 * 1024
MAX_FILES = 10_000
_SHORTEST_DESCRIPTION = 40
_LICENCE_FILE = re.compile(r"(?:licen[sc]e|copying|unlicen[sc]e)(?:[.\-_].*)?", re.IGNORECASE)
_NOT_TEXT = frozenset({".py", ".pyc", ".so", ".html", ".json", ".toml", ".spdx"})
# A name with nothing more to say than "the licence"; LICENSE-APACHE names one of several, or somebody else's.
_PLAIN_NAME = re.compile(r"(?:licen[sc]e|copying|unlicen[sc]e)(?:\.(?:txt|md|rst))?", re.IGNORECASE)
_LESSER_NAME = re.compile(r"copying[.\-_]lesser(?:\.(?:txt|md|rst))?", re.IGNORECASE)


class DocumentsError(Exception):
    """No documents can be made of what was named; the text says which path, why, and what would do."""


@dataclass(frozen=True, slots=True)
class Document:
    """One text to classify; `expected` is the category that its owner declares, if one text can be held against it."""

    name: str
    text: str
    expected: str | None = None


def installed_documents(found: Iterable[Distribution] | None = None) -> list[Document]:
    """Return the licence and description texts of installed packages, in the order of their names.

    `found` defaults to the running environment. Texts of third parties that a package bundles are left out, and
    every text is cut at MAX_DOCUMENT_BYTES.
    """
    by_name: dict[str, Distribution] = {}
    for distribution in distributions() if found is None else found:
        name = _field(distribution, "Name")
        if name:
            by_name.setdefault(re.sub(r"[-_.]+", "-", name).lower(), distribution)
    return [document for name in sorted(by_name) for document in _documents_of(name, by_name[name])]


def documents_from(paths: Sequence[Path], *, on_skipped: Callable[[str], None]) -> list[Document]:
    """Return one document per file named and per file in the directories named, without their hidden files.

    A file that was named and cannot be used raises DocumentsError. One met in a directory is told to `on_skipped` and
    left out; nothing usable at all raises.
    """
    documents: list[Document] = []
    for path in paths:
        if not path.is_dir():
            documents.append(_document(path))
            continue
        for file in _files_in(path):
            try:
                documents.append(_document(file))
            except DocumentsError as error:
                on_skipped(str(error))
            if len(documents) > MAX_FILES:
                raise DocumentsError(f"{path}: more than {MAX_FILES} files; name fewer, or a smaller directory")
    if not documents:
        named = ", ".join(str(path) for path in paths)
        raise DocumentsError(
            f"{named or 'no path'}: no text file there; name text files, or directories that hold some"
        )
    return documents


def decode(content: bytes) -> str:
    """Return bytes as text: by byte order mark, as UTF-8, else as Latin-1. Raises ValueError for what is not text."""
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        return content.decode("utf-16")
    if b"\0" in content:
        raise ValueError("it holds NUL bytes")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        pass
    text = content.decode("latin-1")
    control = sum(1 for char in text[:65536] if char < " " and char not in "\t\n\r\f") + text[:65536].count("\x7f")
    if control * 100 > len(text[:65536]):
        raise ValueError("it holds control characters")
    return text


def _documents_of(name: str, distribution: Distribution) -> Iterator[Document]:
    files = _licence_files(distribution)
    compared = _compared_file([file.name for file, _ in files])
    declared = declared_category(
        expression=_field(distribution, "License-Expression"),
        classifiers=distribution.metadata.get_all("Classifier") or (),
        free_text=_field(distribution, "License"),
    )
    for file, text in files:
        label = f"{name}: licence" if len(files) == 1 else f"{name}: licence ({file.name})"
        yield Document(label, text, declared if file.name == compared else None)
    description = _description(distribution)
    if len(description) >= _SHORTEST_DESCRIPTION:
        yield Document(f"{name}: description", _cut(description))


def _licence_files(distribution: Distribution) -> list[tuple[PurePosixPath, str]]:
    """Return the package's own licence files: those at the top of its dist-info or of the `licenses` folder there."""
    texts: dict[PurePosixPath, str] = {}
    for file in distribution.files or ():
        path = PurePosixPath(file.as_posix())
        top = path.parent.name.endswith((".dist-info", ".egg-info")) or (
            path.parent.name == "licenses" and path.parent.parent.name.endswith(".dist-info")
        )
        if not top or not _LICENCE_FILE.fullmatch(path.name) or path.suffix.lower() in _NOT_TEXT:
            continue
        try:
            with Path(str(file.locate())).open("rb") as opened:
                text = decode(opened.read(MAX_DOCUMENT_BYTES))
        except (OSError, ValueError):
            continue
        if text.strip():
            texts[path] = text
    return sorted(texts.items(), key=lambda item: item[0].name)


def _compared_file(names: Sequence[str]) -> str | None:
    """Return the one file that what is declared speaks of; None when several might be meant.

    Packages under the LGPL ship the GPL's text as COPYING and their own as COPYING.LESSER.
    """
    lesser = [name for name in names if _LESSER_NAME.fullmatch(name)]
    plain = lesser or [name for name in names if _PLAIN_NAME.fullmatch(name)]
    return plain[0] if len(plain) == 1 else None


def _field(distribution: Distribution, name: str) -> str | None:
    values = distribution.metadata.get_all(name)
    return str(values[0]) if values else None


def _description(distribution: Distribution) -> str:
    text = str(distribution.metadata.json.get("description", "")).strip()
    return "" if text == "UNKNOWN" else text


def _cut(text: str) -> str:
    return text.encode("utf-8", "replace")[:MAX_DOCUMENT_BYTES].decode("utf-8", "ignore")


def _files_in(directory: Path) -> Iterator[Path]:
    try:
        entries = sorted(directory.iterdir())
    except OSError as error:
        raise DocumentsError(f"{directory}: cannot be read ({error.strerror}); check the rights on it") from None
    for entry in entries:
        if entry.name.startswith("."):
            continue
        if entry.is_dir():
            if not entry.is_symlink():
                yield from _files_in(entry)
        elif entry.is_file():
            yield entry


def _document(path: Path) -> Document:
    try:
        if path.exists() and not path.is_file():
            raise DocumentsError(f"{path}: not a file; name a text file or a directory")
        size = path.stat().st_size
        if size > MAX_FILE_BYTES:
            raise DocumentsError(f"{path}: {size} bytes; a document may have {MAX_FILE_BYTES}, split it")
        text = decode(path.read_bytes())
    except FileNotFoundError:
        raise DocumentsError(f"{path}: does not exist; check the path") from None
    except OSError as error:
        raise DocumentsError(f"{path}: cannot be read ({error.strerror}); check the rights on it") from None
    except ValueError as error:
        raise DocumentsError(f"{path}: not a text file: {error}; convert it to text (UTF-8) first") from None
    if not text.strip():
        raise DocumentsError(f"{path}: empty; a document needs some text")
    return Document(str(path), text)
