"""What a provider's error means: one of the kinds of `RETRYABLE`, with a message of our own.

A provider's text may repeat the prompt or the key, so none of it is kept; its status and its codes are looked at.
"""

import re
from collections.abc import Mapping
from typing import Any

from app.domain.llm import LlmFailure

_MOST_LOOKED_AT = 4000
_CONTEXT = re.compile(
    r"context[ _-]?(?:length|window|size)|maximum (?:context|prompt|input) |prompt is too long"
    r"|too many (?:input )?tokens|input (?:is too long|length exceeds)"
    r"|exceeds? the (?:available |maximum )?(?:context|number of tokens)",
    re.IGNORECASE,
)
_QUOTA = re.compile(
    r"insufficient[_ ](?:quota|credits?|balance|funds)|credit balance|exceeded your current quota|billing"
    r"|payment required|out of credits|spend(?:ing)? limit",
    re.IGNORECASE,
)
_FILTER = re.compile(
    r"content[_ ](?:filter|policy|management)|responsible ?ai ?policy|moderation|safety (?:system|filter)",
    re.IGNORECASE,
)
_NO_MODEL = re.compile(
    r"model[_ ]not[_ ]found|model .{0,200}(?:does not exist|not found|is not supported)", re.I | re.S
)
_BY_TYPE: Mapping[str, str] = {
    "overloaded_error": "overloaded",
    "rate_limit_error": "rate_limit",
    "rate_limit_exceeded": "rate_limit",
    "tokens": "rate_limit",
    "requests": "rate_limit",
    "api_error": "unavailable",
    "server_error": "unavailable",
    "timeout_error": "timeout",
    "authentication_error": "permission",
    "invalid_api_key": "permission",
    "permission_error": "permission",
    "billing_error": "quota_exhausted",
    "not_found_error": "unknown_model",
    "request_too_large": "context_length",
    "exceed_context_size_error": "context_length",
    "invalid_request_error": "invalid_request",
}
_BY_STATUS: Mapping[int, str] = {
    401: "permission",
    402: "quota_exhausted",
    403: "permission",
    404: "unknown_model",
    408: "timeout",
    409: "unavailable",
    425: "unavailable",
    429: "rate_limit",
    498: "unavailable",
    504: "timeout",
    524: "timeout",
    529: "overloaded",
}
_WORDS: Mapping[str, str] = {
    "rate_limit": "the provider limits the rate",
    "overloaded": "the provider is overloaded",
    "unavailable": "the provider is not available",
    "timeout": "the provider took too long",
    "quota_exhausted": "the account's quota or credit is used up",
    "permission": "the provider refuses the key, or the key may not do this",
    "unknown_model": "the provider has no such model or no such address",
    "invalid_request": "the provider refuses the request",
    "context_length": "the request is longer than the model's context",
    "content_filter": "the provider's content filter stopped the call",
    "bad_response": "the provider's answer is none that its kind gives",
}


def failure_of(
    provider: str, status: int | None, error: object, *, retry_after_seconds: float | None = None
) -> LlmFailure:
    """Name the failure that a provider tells: by its HTTP status (None inside a 200) and the error in its body."""
    kind = kind_of(status, error)
    answered = f"answered {status}" if status is not None else "sent an error in its answer"
    return LlmFailure(kind, f"{provider} {answered}: {_WORDS[kind]}", retry_after_seconds=retry_after_seconds)


def kind_of(status: int | None, error: object) -> str:
    """Give the kind of an error. What the codes say outranks the status, which some providers choose freely."""
    codes, text = _told(error)
    number = status if status is not None else _status_within(error)
    if number not in (401, 403) and _QUOTA.search(text):
        return "quota_exhausted"
    if number in (None, 400, 413, 422, 500) and _CONTEXT.search(text):
        return "context_length"
    if number in (None, 400, 403, 422) and _FILTER.search(text):
        return "content_filter"
    if number in (None, 400, 404) and _NO_MODEL.search(text):
        return "unknown_model"
    # A status that says nothing by itself is told apart by the codes, the others are not.
    if number is None or number in (400, 500, 503):
        named = next((_BY_TYPE[code] for code in codes if code in _BY_TYPE), None)
        if named is not None and not (number is not None and number >= 500 and named == "invalid_request"):
            return named
    if number is None:
        return "unavailable"
    if number in _BY_STATUS:
        return _BY_STATUS[number]
    if number == 413:
        return "context_length"
    if 400 <= number < 500:
        return "invalid_request"
    return "unavailable" if number >= 500 else "bad_response"


def _told(error: object) -> tuple[list[str], str]:
    """Read an error's codes, and its text with them; of a bare text only the text."""
    if isinstance(error, str):
        return [], error[:_MOST_LOOKED_AT]
    if not isinstance(error, Mapping):
        return [], ""
    inner = error.get("error")
    if isinstance(inner, Mapping | str):
        codes, text = _told(inner)
        return (codes, text) if codes or text else _told({k: v for k, v in error.items() if k != "error"})
    codes = [str(error[name])[:100] for name in ("code", "type", "status") if isinstance(error.get(name), str)]
    texts = [str(error[name])[:_MOST_LOOKED_AT] for name in ("message", "detail") if isinstance(error.get(name), str)]
    return codes, " ".join([*codes, *texts])


def _status_within(error: object) -> int | None:
    """Find the status that some routers put into the error of a 200."""
    found: Any = error
    if isinstance(found, Mapping) and isinstance(found.get("error"), Mapping):
        found = found["error"]
    if not isinstance(found, Mapping):
        return None
    for name in ("code", "status", "status_code"):
        value = found.get(name)
        if isinstance(value, str) and value.isascii() and value.isdigit():
            value = int(value[:4])
        if isinstance(value, int) and not isinstance(value, bool) and 400 <= value <= 599:
            return value
    return None
