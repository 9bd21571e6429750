"""The text of a document: plain text here, HTML and PDF in a process of its own with limits.

What parses formats from outside runs where it can be stopped: a process without the environment's secrets, with bounded
memory, processor time and output, killed at its deadline.
"""

import asyncio
import contextlib
import json
import os
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from app.domain.errors import DeadLetter
from app.filter_settings import FilterSettings

_CHILD = Path(__file__).with_name("extraction_child.py")
_CHARSET = re.compile(r"charset\s*=\s*\"?([A-Za-z0-9._-]{1,32})", re.IGNORECASE)
_META_CHARSET = re.compile(rb"<meta[^>]{0,200}charset\s*=\s*[\"']?([A-Za-z0-9._-]{1,32})", re.IGNORECASE)
_CODECS = {"utf-8", "utf8", "us-ascii", "ascii", "iso-8859-1", "latin-1", "latin1", "iso-8859-15", "windows-1252",
           "cp1252", "utf-16", "utf-16le", "utf-16be", "windows-1251", "koi8-r", "shift_jis", "euc-jp", "gb18030",
           "gbk", "big5", "euc-kr", "iso-8859-2", "windows-1250"}  # fmt: skip
_HTML_START = re.compile(
    rb"\s*(?:<!--.{0,500}?-->\s*)?<(?:!doctype\s+html|html|head|body)\b", re.IGNORECASE | re.DOTALL
)
_BINARY = {
    b"PK\x03\x04": "a ZIP archive or an Office file",
    b"\x7fELF": "a program",
    b"\x89PNG": "a PNG image",
    b"\x1f\x8b": "a gzip archive",
    b"\xff\xd8\xff": "a JPEG image",
    b"GIF8": "a GIF image",
    b"{\\rtf": "an RTF file",
    b"\xd0\xcf\x11\xe0": "an old Office file",
}
_MOST_NUL = 0.02
_FAILURES = {
    "corrupted": ("corrupted_input", "the {kind} is damaged: no text could be read from it"),
    "encrypted": ("encrypted_input", "the {kind} is encrypted: store it without a password"),
    "no_text": ("no_text", "the {kind} has no text that can be seen; scanned pages need OCR first"),
    "pages": ("document_too_large", "the {kind} has more than {pages} pages (DESPACHO_FILTERS__MAX_PAGES)"),
    "characters": (
        "document_too_large",
        "the {kind} has over {characters} characters (DESPACHO_FILTERS__MAX_CHARACTERS)",
    ),
    "memory": ("document_too_large", "the {kind} takes more memory than DESPACHO_FILTERS__EXTRACTION_MEMORY_BYTES"),
    "seconds": ("document_too_large", "the {kind} takes longer than DESPACHO_FILTERS__EXTRACTION_SECONDS"),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Extracted:
    """The text of a document; `found` counts parts that were not to be seen."""

    text: str
    content_type: str
    pages: int | None = None
    found: Mapping[str, int] = field(default_factory=dict)


def media_type(content_type: str) -> str:
    """Give a content type without its parameters, in lower case."""
    return content_type.partition(";")[0].strip().lower() or "application/octet-stream"


class Extractor:
    """Takes the text out of documents; only so many at the same time."""

    def __init__(self, settings: FilterSettings) -> None:
        self._settings = settings
        self._turns = asyncio.Semaphore(settings.extractions)

    async def extract(self, content: bytes, content_type: str) -> Extracted:
        """Take the text out. What it looks like counts, then what it is called.

        Raises DeadLetter: `corrupted_input`, `encrypted_input`, `no_text`, `document_too_large`, `unsupported_input`.
        """
        kind = media_type(content_type)
        if not content.strip():
            raise DeadLetter("no_text", "the document is empty")
        if b"%PDF-" in content[:1024] and (kind == "application/pdf" or content.lstrip()[:5] == b"%PDF-"):
            return await self._in_child("PDF", content, "application/pdf")
        if kind == "application/pdf":
            raise DeadLetter("corrupted_input", "the document is called a PDF and does not begin as one")
        for start, what in _BINARY.items():
            if content.startswith(start):
                raise DeadLetter("unsupported_input", f"the document is {what}; text, HTML and PDF can be read")
        if kind in ("text/html", "application/xhtml+xml") or _HTML_START.match(content[:2048]):
            text = _decoded(content, content_type, html=True)
            return await self._in_child("HTML", text.encode("utf-8", "surrogatepass"), "text/html")
        return Extracted(_decoded(content, content_type), kind or "text/plain")

    async def _in_child(self, kind: str, content: bytes, content_type: str) -> Extracted:
        async with self._turns:
            said = await self._run(kind, content)
        failure = said.get("failure")
        if failure is not None:
            error_type, message = _FAILURES.get(failure, _FAILURES["corrupted"])
            limits = {"pages": self._settings.max_pages, "characters": self._settings.max_characters}
            raise DeadLetter(error_type, message.format(kind=f"{kind} document", **limits))
        return Extracted(said["text"], content_type, said.get("pages"), said.get("found", {}))

    async def _run(self, kind: str, content: bytes) -> dict[str, Any]:
        limits = {
            "kind": kind,
            "pages": self._settings.max_pages,
            "characters": self._settings.max_characters,
            "memory_bytes": self._settings.extraction_memory_bytes,
            "seconds": self._settings.extraction_seconds,
        }
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-I", str(_CHILD), json.dumps(limits),
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL,
            env={name: os.environ[name] for name in ("PATH", "LANG", "SYSTEMROOT") if name in os.environ},
            start_new_session=True,
        )  # fmt: skip
        try:
            async with asyncio.timeout(self._settings.extraction_seconds):
                output, _ = await process.communicate(content)
        except TimeoutError:
            return {"failure": "seconds"}
        finally:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
                await process.wait()
        try:
            said = json.loads(output)
        except ValueError:
            # It was killed: by its limit of processor time, or by the system for want of memory.
            return {"failure": "seconds" if process.returncode == -24 else "memory"}
        return said if isinstance(said, dict) else {"failure": "corrupted"}


def _decoded(content: bytes, content_type: str, *, html: bool = False) -> str:
    """Decode by byte order mark, then by what the content type says, else as UTF-8."""
    for mark, codec in ((b"\xef\xbb\xbf", "utf-8-sig"), (b"\xff\xfe", "utf-16"), (b"\xfe\xff", "utf-16")):
        if content.startswith(mark):
            return _strictly(content, codec)
    named = _CHARSET.search(content_type)
    codec = named[1].lower() if named else "utf-8"
    if not named and html and (meta := _META_CHARSET.search(content[:2048])):
        codec = meta[1].decode("ascii").lower()
    if codec not in _CODECS:
        raise DeadLetter("unsupported_input", "the charset of the document's content type is not known here; use UTF-8")
    text = _strictly(content, codec)
    if text.count("\0") > _MOST_NUL * len(text):
        raise DeadLetter(
            "corrupted_input", "the document is binary, or text in another encoding than its content type says"
        )
    return text


def _strictly(content: bytes, codec: str) -> str:
    try:
        return content.decode(codec)
    except UnicodeDecodeError:
        raise DeadLetter("corrupted_input", f"the document is not {codec} text, as which it was stored") from None
