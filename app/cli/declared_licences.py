"""Which licence a Python package says it has, as the category that `classify_document` would find. Pure.

The sources in order: `License-Expression` (PEP 639, SPDX), the classifiers, the free text of `License`. None means that
one licence text cannot be held against it: several licences, a family that the taxonomy lacks, or nothing declared.
"""

import re
from collections.abc import Sequence

# SPDX identifiers by the start of the lower-case name; the longest start wins.
_BY_SPDX_START: dict[str, str] = {
    "0bsd": "zero_bsd",
    "agpl-": "agpl",
    "apache-2.0": "apache_2",
    "artistic-": "artistic",
    "bsd-1-clause": "bsd",
    "bsd-2-clause": "bsd",
    "bsd-3-clause": "bsd",
    "bsd-4-clause": "bsd",
    "bsl-1.0": "boost",
    "cc-by-": "cc_by",
    "cc0-1.0": "cc0",
    "epl-": "epl",
    "eupl-": "eupl",
    "gpl-": "gpl",
    "hpnd": "hpnd",
    "isc": "isc",
    "lgpl-": "lgpl",
    "mit": "mit",
    "mit-0": "mit_0",
    "mpl-": "mpl",
    "psf-2.0": "psf",
    "python-2.0": "psf",
    "unlicense": "unlicense",
    "wtfpl": "wtfpl",
    "zlib": "zlib",
    "zpl-": "zpl",
}
_SPDX_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+-]*")
_SEVERAL = re.compile(r"\b(?:and|or)\b|,(?! *v(?:ersion)? ?\d)|[;/&|]", re.IGNORECASE)

# Signs in classifiers and in free text, the more special one first: "LGPL" holds "GPL", "MIT-0" holds "MIT".
_BY_SIGN: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(rf"\b(?:{pattern})\b", re.IGNORECASE), category)
    for pattern, category in (
        (r"mit[ -]?0|mit no attribution license(?: \(mit-0\))?", "mit_0"),
        (r"0bsd|zero[- ]clause bsd", "zero_bsd"),
        (r"a(?:ffero[ -])?gpl(?:v?\d)?\+?|affero general public licen[sc]e", "agpl"),
        (r"lgpl(?:v?\d)?(?:\.\d)?\+?|(?:lesser|library) general public licen[sc]e", "lgpl"),
        (r"gpl(?:v?\d)?\+?|general public licen[sc]e", "gpl"),
        (
            r"apache(?: software)?(?: license)?,?(?: version)?[ -]*v?2(?:\.0)?|apache software license|asl ?2(?:\.0)?",
            "apache_2",
        ),
        (r"mpl(?:[ -]?v?\d(?:\.\d)?)?|mozilla public license", "mpl"),
        (r"psf(?:l|-2\.0)?|python software foundation license|python license", "psf"),
        (r"iscl?|isc license", "isc"),
        (r"zpl|zope public license", "zpl"),
        (r"eupl|european union public licen[cs]e", "eupl"),
        (r"(?:the )?unlicense", "unlicense"),
        (r"cc0", "cc0"),
        (r"boost software license", "boost"),
        (r"zlib", "zlib"),
        (r"hpnd|historical permission notice and disclaimer", "hpnd"),
        (r"eclipse public license", "epl"),
        (r"artistic license", "artistic"),
        (r"wtfpl", "wtfpl"),
        (r"(?:new |modified |simplified |[234][- ]clause )?bsd(?:[ -][234][ -]clause)?", "bsd"),
        (r"mit|expat", "mit"),
    )
)
COMPARABLE = frozenset({*_BY_SPDX_START.values(), *(category for _, category in _BY_SIGN)})
"""Every category that a declaration can name."""

_SAYS_NOTHING = frozenset({"", "unknown", "none", "other", "proprietary", "dual license", "dual", "see license"})
_MAX_FREE_TEXT = 120


def declared_category(
    *, expression: str | None = None, classifiers: Sequence[str] = (), free_text: str | None = None
) -> str | None:
    """Return the taxonomy's category for what a package declares, or None when it cannot be compared."""
    if expression and expression.strip():
        return _from_expression(expression)
    named = [one for one in classifiers if one.startswith("License ::") and not one.endswith("OSI Approved")]
    if named:
        found = {_from_sign(one.rpartition("::")[2]) for one in named}
        return found.pop() if len(found) == 1 else None
    return _from_free_text(free_text or "")


def _from_expression(expression: str) -> str | None:
    licence = re.split(r"\s+with\s+", expression.strip().strip("()"), maxsplit=1, flags=re.IGNORECASE)[0].strip()
    return _from_spdx(licence)


def _from_spdx(identifier: str) -> str | None:
    if not _SPDX_ID.fullmatch(identifier):
        return None
    name = identifier.lower()
    starts = [start for start in _BY_SPDX_START if name == start or (start.endswith("-") and name.startswith(start))]
    return _BY_SPDX_START[max(starts, key=len)] if starts else None


def _from_free_text(text: str) -> str | None:
    line = text.strip()
    if line.lower() in _SAYS_NOTHING or "\n" in line or len(line) > _MAX_FREE_TEXT:
        return None
    return _from_spdx(line) or (None if _SEVERAL.search(line) else _from_sign(line))


def _from_sign(text: str) -> str | None:
    return next((category for sign, category in _BY_SIGN if sign.search(text)), None)
