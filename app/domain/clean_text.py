"""Text of unknown origin made fit to store and show: valid UTF-8, no NUL, bounded, without the plainest secrets."""

import re

MAXIMUM_MESSAGE = 2_000
MAXIMUM_NAME = 100
_UNPRINTABLE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff\ufffe\uffff]")
_NOT_NAME = re.compile(r"[^A-Za-z0-9_.]+")
_HIDDEN = "[hidden]"
_QUERY = re.compile(r"(\bhttps?://[^\s?#'\"<>]{1,2048})[?#][^\s'\"<>]*", re.IGNORECASE)
_USERINFO = re.compile(r"(?<=://)[^\s/@]{1,512}@")
_AUTHORIZATION = re.compile(r"(?i)\b(bearer|basic)\s+[A-Za-z0-9._~+/=-]{6,}")
_NAMED_SECRET = re.compile(
    r"(?i)\b([a-z0-9_-]{0,32}(?:password|passwd|secret|token|api[_-]?key|authorization)[\"']?\s*[=:]\s*[\"']?)"
    r"(?!\[hidden\]|bearer\b|basic\b)[^\s\"'&,;)}\]]{1,512}"
)


def clean_message(text: str, fallback: str) -> str:
    """Give at most 2,000 clean characters of `text`; `fallback` where nothing is left."""
    text = text[: 2 * MAXIMUM_MESSAGE]
    text = _UNPRINTABLE.sub("\N{REPLACEMENT CHARACTER}", text)
    text = _QUERY.sub(rf"\1?{_HIDDEN}", text)
    text = _USERINFO.sub(f"{_HIDDEN}@", text)
    text = _AUTHORIZATION.sub(rf"\1 {_HIDDEN}", text)
    text = _NAMED_SECRET.sub(rf"\1{_HIDDEN}", text).strip()
    if len(text) > MAXIMUM_MESSAGE:
        text = text[: MAXIMUM_MESSAGE - 1] + "…"
    return text or fallback


def clean_name(text: str, fallback: str) -> str:
    """Give at most 100 characters of `text` that are letters, digits, `_` or `.`; `fallback` where nothing is left."""
    return _NOT_NAME.sub("_", text[: 4 * MAXIMUM_NAME]).strip("_.")[:MAXIMUM_NAME] or fallback
