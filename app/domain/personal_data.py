"""Personal data by pattern and checksum: e-mail addresses, telephone numbers, payment cards, IBANs. Pure.

What is found gives its place to `[mail]`, `[phone]`, `[card]` or `[iban]`, none of which is longer than what it
replaces. Names and addresses are found by nobody's pattern: there is the filter `presidio` for them.
"""

import re
from collections import Counter
from collections.abc import Callable

from app.domain.input_filters import Filtered, Span, Verdict

_MAIL = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._%+'-]{0,63})@(?:[A-Za-z0-9-]{1,63}\.){1,8}[A-Za-z]{2,24}(?![A-Za-z0-9])")
_SHORT_MAIL = re.compile(r"[^\s@<>\[\](),;:\"]{1,64}@[^\s@<>\[\](),;:\".]{1,63}(?:\.[^\s@<>\[\](),;:\".]{1,63}){1,8}")
_CARD = re.compile(r"(?<![\d.,])\d(?:[ -]?\d){12,18}(?![\d])")
_IBAN = re.compile(r"(?<![A-Za-z0-9])[A-Za-z]{2}\d{2}(?:[ -]?[A-Za-z0-9]){11,30}")
_PHONE = re.compile(
    r"(?<![\w+])\+[1-9]\d{0,2}(?:[ ().\-/]{0,2}\d){6,12}(?!\d)"  # international
    r"|(?<![\w.,(])00[1-9]\d{0,2}(?:[ ().\-/]{1,2}\d{1,4}){2,5}(?![\d])"
    r"|(?<![\w.,])(?:\(\d{2,5}\)|0\d{1,4})[ \-/.]{1,2}\d{2,5}(?:[ \-/.]\d{2,5}){0,4}(?![\d\w])"  # national
    r"|(?<![\w.,+-])\d{3}[ .-]\d{3}[ .-]\d{4}(?![\d\w-])"
)
_DATE = re.compile(r"\d{1,4}[./-]\d{1,2}[./-]\d{1,4}")
# Lengths of IBANs by country, as the registry has them.
_COUNTRIES = """
AD24 AE23 AL28 AT20 AZ28 BA20 BE16 BG22 BH22 BI27 BR29 BY28 CH21 CR22 CY28 CZ24 DE22 DJ27 DK18 DO28 EE20 EG29 ES24 FI18
FK18 FO18 FR27 GB22 GE22 GI23 GL18 GR27 GT28 HN28 HR21 HU28 IE22 IL23 IQ23 IS26 IT27 JO30 KW30 KZ20 LB28 LC32 LI21 LT20
LU20 LV21 LY25 MC27 MD24 ME22 MK19 MN20 MR27 MT31 MU30 NI28 NL18 NO15 OM23 PK24 PL28 PS29 PT25 QA29 RO24 RS22 RU33 SA24
SC31 SD18 SE24 SI19 SK24 SM27 SO23 ST25 SV28 TL23 TN24 TR26 UA29 VA22 VG24 XK20 YE30
"""
_IBAN_LENGTHS = {pair[:2]: int(pair[2:]) for pair in _COUNTRIES.split()}
_MOST_SPANS = 100
_MOST_PASSES = 8


def redact(text: str) -> Filtered:
    """Put names of kinds where personal data was."""
    found: Counter[str] = Counter()
    spans: list[Span] = []
    for _ in range(_MOST_PASSES):
        before = text
        for kind, pattern, length in _KINDS:
            text = _replaced(text, kind, pattern, length, found, spans)
        if text == before:
            break
    if not found:
        return Filtered(text)
    return Filtered(text, Verdict.CLEANED, dict(found), tuple(spans[:_MOST_SPANS]))


def _replaced(
    text: str, kind: str, pattern: re.Pattern[str], length: Callable[[str], int], found: Counter[str], spans: list[Span]
) -> str:
    placeholder = f"[{kind}]"
    parts, at = [], 0
    for match in pattern.finditer(text):
        size = length(match.group())
        if size < len(placeholder):
            continue
        found[kind] += 1
        spans.append(Span(kind, match.start(), match.start() + size))
        parts += [text[at : match.start()], placeholder]
        at = match.start() + size
    return "".join((*parts, text[at:])) if parts else text


def is_card(digits: str) -> bool:
    """Say whether digits pass Luhn's checksum; the same digit all over is no card."""
    if not 13 <= len(digits) <= 19 or len(set(digits)) == 1 or digits[0] not in "23456":
        return False
    doubled = (int(one) * (2 if place % 2 else 1) for place, one in enumerate(reversed(digits)))
    return sum(one - 9 if one > 9 else one for one in doubled) % 10 == 0


def is_iban(compact: str) -> bool:
    """Say whether a text without spaces is an IBAN: a country's length, and the remainder of 97."""
    compact = compact.upper()
    if _IBAN_LENGTHS.get(compact[:2]) != len(compact):
        return False
    return int("".join(str(int(one, 36)) for one in compact[4:] + compact[:4])) % 97 == 1


def _card_length(given: str) -> int:
    return len(given) if is_card(re.sub(r"\D", "", given)) else 0


def _iban_length(given: str) -> int:
    """Give how much of a match is the IBAN: words that follow it look like more of it."""
    most = _IBAN_LENGTHS.get(given[:2].upper(), 0)
    compact = ""
    for place, one in enumerate(given):
        compact += one if one.isalnum() else ""
        if len(compact) == most:
            ends = place + 1 == len(given) or not given[place + 1].isalnum()
            return place + 1 if ends and is_iban(compact) else 0
    return 0


def _phone_length(given: str) -> int:
    digits = sum(one.isdigit() for one in given)
    return 0 if not 7 <= digits <= 15 or _DATE.fullmatch(given) else len(given)


_KINDS: tuple[tuple[str, re.Pattern[str], Callable[[str], int]], ...] = (
    ("mail", _MAIL, len),
    ("mail", _SHORT_MAIL, len),
    ("iban", _IBAN, _iban_length),
    ("card", _CARD, _card_length),
    ("phone", _PHONE, _phone_length),
)
