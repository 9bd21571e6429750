"""The process that takes the text out of one PDF or HTML document. A program of its own: nothing of ours is imported.

Its argument is the limits as JSON, its input the document, its output JSON: `text`, `pages` and `found`, or `failure`.
"""

import io
import json
import logging
import re
import sys
import warnings
from html.parser import HTMLParser
from typing import Any

_SKIPPED = frozenset({"script", "style", "template", "noscript", "iframe", "object", "svg", "math", "canvas"})
_VOID = frozenset(
    "area base br col embed hr img input link meta param source track wbr".split()  # noqa: SIM905
)
_BLOCKS = frozenset(
    "p div br tr li ul ol dl dt dd table thead tbody section article header footer main aside nav h1 h2 h3 h4 h5 h6 "  # noqa: SIM905
    "blockquote pre hr form fieldset figure figcaption address option caption title".split()
)
_CELLS = frozenset({"td", "th"})
_INVISIBLE = re.compile(
    r"display\s*:\s*none|visibility\s*:\s*(?:hidden|collapse)|font-size\s*:\s*0(?![.\d])|opacity\s*:\s*0(?![.\d])",
    re.IGNORECASE,
)
_MOST_DEEP = 10_000


class TooMuch(Exception):
    """More text than the limit."""


class Visible(HTMLParser):
    """Gathers what a reader of a page would see."""

    def __init__(self, most: int) -> None:
        super().__init__(convert_charrefs=True)
        self.parts: list[str] = []
        self.hidden = 0
        self._open: list[tuple[str, bool]] = []
        self._invisible = 0
        self._room = most

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in _BLOCKS:
            self._put("\n")
        elif tag in _CELLS:
            self._put("\t")
        if tag in _VOID:
            return
        given = {name: value or "" for name, value in attrs}
        unseen = "hidden" in given or given.get("aria-hidden", "").lower() == "true"
        unseen = unseen or bool(_INVISIBLE.search(given.get("style", "")))
        if unseen and not self._invisible:
            self.hidden += 1
        out = unseen or tag in _SKIPPED
        if len(self._open) < _MOST_DEEP:
            self._open.append((tag, out))
            self._invisible += out

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in _BLOCKS:
            self._put("\n")

    def handle_endtag(self, tag: str) -> None:
        for place in range(len(self._open) - 1, max(-1, len(self._open) - 200), -1):
            if self._open[place][0] == tag:
                self._invisible -= sum(out for _, out in self._open[place:])
                del self._open[place:]
                break
        if tag in _BLOCKS:
            self._put("\n")

    def handle_data(self, data: str) -> None:
        if not self._invisible:
            self._put(data)

    def _put(self, text: str) -> None:
        self._room -= len(text)
        if self._room < 0:
            raise TooMuch
        self.parts.append(text)


def of_html(content: bytes, limits: dict[str, Any]) -> dict[str, Any]:
    """Take the visible text out of a page."""
    parser = Visible(limits["characters"])
    parser.feed(content.decode("utf-8", "surrogatepass"))
    parser.close()
    lines = (re.sub(r"[ \t\xa0]+", " ", line).strip() for line in "".join(parser.parts).split("\n"))
    text = re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip()
    if not text:
        return {"failure": "no_text"}
    return {"text": text, "found": {"hidden_markup": parser.hidden} if parser.hidden else {}}


def of_pdf(content: bytes, limits: dict[str, Any]) -> dict[str, Any]:
    """Take the text out of a PDF, page by page."""
    from pypdf import PdfReader
    from pypdf.errors import DependencyError, FileNotDecryptedError, LimitReachedError, WrongPasswordError

    try:
        reader = PdfReader(io.BytesIO(content), strict=False)
        if reader.is_encrypted and not reader.decrypt(""):
            return {"failure": "encrypted"}
        pages = len(reader.pages)
        if pages > limits["pages"]:
            return {"failure": "pages"}
        texts, room, broken = [], limits["characters"], 0
        for place in range(pages):
            try:
                text = reader.pages[place].extract_text() or ""
            except (LimitReachedError, MemoryError, DependencyError, FileNotDecryptedError):
                raise
            except Exception:
                broken += 1
                continue
            room -= len(text)
            if room < 0:
                raise TooMuch
            texts.append(text)
    except (DependencyError, FileNotDecryptedError, WrongPasswordError):
        return {"failure": "encrypted"}
    except LimitReachedError:
        return {"failure": "memory"}
    text = "\n\n".join(texts).strip()
    if not text:
        return {"failure": "corrupted" if broken or not pages else "no_text"}
    return {"text": text, "pages": pages, "found": {"broken_pages": broken} if broken else {}}


def main() -> None:
    """Read, take out, tell. Whatever a parser trips over is a damaged document."""
    limits = json.loads(sys.argv[1])
    try:
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (limits["memory_bytes"], limits["memory_bytes"]))
        seconds = int(limits["seconds"]) + 1
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    except (ImportError, ValueError, OSError):
        pass  # the deadline of the parent is left
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    try:
        content = sys.stdin.buffer.read()
        said = (of_pdf if limits["kind"] == "PDF" else of_html)(content, limits)
    except MemoryError:
        said = {"failure": "memory"}
    except TooMuch:
        said = {"failure": "characters"}
    except Exception:
        said = {"failure": "corrupted"}
    sys.stdout.write(json.dumps(said))


if __name__ == "__main__":
    main()
