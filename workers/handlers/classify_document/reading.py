"""What is accepted as text. Pure.

A document that is no text at all is refused with what it seems to be; a few stray characters in a text are not held
against it.
"""

_BINARY_STARTS = {
    "%PDF-": "a PDF file",
    "PK\x03\x04": "a ZIP archive or an Office file",
    "\x7fELF": "a program",
    "\x89PNG": "a PNG image",
    "\ufffdPNG": "a PNG image",
    "\x1f\x8b": "a gzip archive",
    "\xff\xd8\xff": "a JPEG image",
    "GIF8": "a GIF image",
    "{\\rtf": "an RTF file",
}
# Share of characters that no text has: above it the document is damaged, binary, or in another encoding.
_MOST_DAMAGE = 0.02
_SAMPLE_CHARACTERS = 262_144
_CONTROL = dict.fromkeys((*range(0x09), *range(0x0E, 0x1B), *range(0x1C, 0x20), 0x7F, 0xFFFD))
_CONTROL |= dict.fromkeys(range(0xD800, 0xE000))


class UnreadableTextError(Exception):
    """The document is not text that can be classified; the message says what it seems to be and what would do."""


def check_readable(text: str) -> None:
    """Accept a text, or raise UnreadableTextError: empty, a known binary format, or damaged beyond a few characters."""
    head = text[:64].lstrip("\ufeff \t\r\n")
    if not head and not text.strip("\ufeff \t\r\n\f\v"):
        raise UnreadableTextError("the document is empty; it needs some text")
    for start, what in _BINARY_STARTS.items():
        if head.startswith(start):
            raise UnreadableTextError(f"the document is {what}, not text; extract its text first")
    sample = text[:_SAMPLE_CHARACTERS]
    damaged = len(sample) - len(sample.translate(_CONTROL))
    if damaged <= _MOST_DAMAGE * len(sample):
        return
    nul = sample.count("\0")
    seems = "binary, or UTF-16 read as UTF-8" if nul * 2 > damaged else "binary, or in another encoding than declared"
    raise UnreadableTextError(
        f"{damaged} of the first {len(sample)} characters are no text: the document is {seems}; store it as UTF-8 text"
    )
