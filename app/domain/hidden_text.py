"""Characters that no reader sees, taken out of a text: controls, zero-width, bidi, tags, stray selectors. Pure.

Cleaning never lengthens, is the same when it is done twice, and takes any text. What writing needs stays: joiners
between letters of scripts that join and between emoji, selectors after what they select, the flags made of tags.
"""

import re
from collections import Counter
from collections.abc import Callable

from app.domain.input_filters import Filtered, Span, Verdict

_ESCAPE = r"\x1b(?:\[[0-?]{0,64}[ -/]{0,8}[@-~]|\][^\x07\x1b\x00-\x06]{0,256}(?:\x07|\x1b\\))"
_CONTROL = re.compile(
    rf"(?P<escape>{_ESCAPE})|(?P<line>\x0b|\x0c|\x85|\u2028|\u2029)|(?P<nul>\x00)"
    r"|(?P<surrogate>[\ud800-\udfff])|(?P<control>[\x01-\x08\x0e-\x1f\x7f-\x84\x86-\x9f])"
    r"|(?P<noncharacter>[\ufdd0-\ufdef\ufffe\uffff"
    + "".join(f"{chr(plane * 0x10000 + 0xFFFE)}{chr(plane * 0x10000 + 0xFFFF)}" for plane in range(1, 17))
    + "])"
)
_REPLACED = {"line": "\n", "surrogate": "\N{REPLACEMENT CHARACTER}"}

# Letters that join (Arabic, Syriac, N'Ko, Mongolian, the scripts of India and South-East Asia), with their marks.
_JOINING = (
    "\u0600-\u061b\u061d-\u08ff\u0900-\u0dff\u0e80-\u109f"
    "\u1780-\u17ff\u1820-\u18af\ufb50-\ufdcf\ufdf0-\ufdff\ufe70-\ufefc"
)
_PICTURE = "\u00a9\u00ae\u203c-\u2049\u2100-\u2bff\u3030\u303d\u3297\u3299\ufe0f\U0001f000-\U0001faff"
_IDEOGRAPH = "\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_FLAG = "\U0001f3f4[\U000e0030-\U000e0039\U000e0061-\U000e007a]{2,6}\U000e007f"
_HIDDEN = re.compile(
    rf"(?P<kept>{_FLAG}"
    rf"|(?<=[{_JOINING}])[\u200c\u200d](?=[{_JOINING}])"
    rf"|(?<=[#*0-9{_PICTURE.replace(chr(0xFE0F), '')}])[\ufe0e\ufe0f]"
    rf"|(?<=[{_IDEOGRAPH}])[\ufe00-\ufe02\U000e0100-\U000e01ef])"
    rf"|(?P<picture_joiner>(?<=[{_PICTURE}])\u200d(?=[{_PICTURE.replace(chr(0xFE0F), '')}]))"
    r"|(?P<zero_width>[\u00ad\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200d\u2060-\u2065\u206a-\u206f\u3164"
    r"\ufeff\uffa0\ufff0-\ufffb\U0001bca0-\U0001bca3\U0001d173-\U0001d17a]+)"
    r"|(?P<bidi>[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]+)"
    r"|(?P<tag>[\U000e0000-\U000e007f]+)"
    r"|(?P<selector>[\ufe00-\ufe0f\U000e0100-\U000e01ef\U000e0080-\U000e00ff\U000e01f0-\U000e0fff]+)"
)
_OVERRIDES = re.compile("[\u202d\u202e]")
_LONG_RUN = 8
_MOST_SPANS = 100


def clean_controls(text: str) -> Filtered:
    """Take out controls, NUL and terminal sequences; line separators become line feeds, lone surrogates U+FFFD."""
    found: Counter[str] = Counter()
    spans: list[Span] = []

    def put(match: re.Match[str]) -> str:
        kind = match.lastgroup or "control"
        found[kind] += 1
        if len(spans) < _MOST_SPANS and kind != "line":
            spans.append(Span(kind, *match.span()))
        return _REPLACED.get(kind, "")

    cleaned = _CONTROL.sub(put, text)
    lines = found.pop("line", 0)
    if not found:
        return Filtered(
            cleaned, Verdict.CLEANED if lines else Verdict.PASSED, {"line_separator": lines} if lines else {}
        )
    return Filtered(cleaned, Verdict.CLEANED, dict(found), tuple(spans))


def clean_hidden(text: str) -> Filtered:
    """Take out what is invisible; flagged where it cannot be an accident: tags, overrides, runs that can carry text."""
    if text.isascii():
        return Filtered(text)
    found: Counter[str] = Counter()
    spans: list[Span] = []
    suspicious = False

    def put(match: re.Match[str]) -> str:
        nonlocal suspicious
        kind = match.lastgroup or "zero_width"
        if kind in ("kept", "picture_joiner"):
            return match.group()
        size = match.end() - match.start()
        if match.start() == 0 and match.group() == "\ufeff":
            return ""  # a byte order mark
        found[kind] += size
        if len(spans) < _MOST_SPANS:
            spans.append(Span(kind, *match.span()))
        suspicious |= kind == "tag" or size >= _LONG_RUN or (kind == "bidi" and bool(_OVERRIDES.search(match.group())))
        return ""

    cleaned = _settled(put, text)
    if not found:
        return Filtered(cleaned)
    return Filtered(cleaned, Verdict.FLAGGED if suspicious else Verdict.CLEANED, dict(found), tuple(spans))


def _settled(put: Callable[[re.Match[str]], str], text: str) -> str:
    """Clean until nothing changes: a joiner that stood between two others may come to stand between letters."""
    while True:
        cleaned = _HIDDEN.sub(put, text)
        if cleaned == text:
            return text
        text = cleaned


def smuggled(text: str) -> str:
    """Spell what tag characters and long runs of selectors say in ASCII; empty where there are none."""
    if text.isascii():
        return ""
    said = []
    for character in text:
        code = ord(character)
        if 0xE0020 <= code <= 0xE007E:
            said.append(chr(code - 0xE0000))
        elif 0xFE00 <= code <= 0xFE0F:
            said.append(chr(code - 0xFE00))
        elif 0xE0100 <= code <= 0xE01EF:
            said.append(chr(code - 0xE0100 + 16))
    return "".join(one for one in said if one.isprintable() or one.isspace())
