"""What an endpoint's answer means for the task: its result, another try, or the end."""

import json
import math
from typing import Annotated, Any

import httpx
from pydantic import BaseModel, ConfigDict, Field

from despacho import DeadLetter

_RETRIED = frozenset({408, 425, 429})
_DEEPEST = 64


class Expectation(BaseModel):
    """Which answers are good ones."""

    model_config = ConfigDict(extra="forbid")

    status: list[Annotated[int, Field(ge=200, le=499)]] | None = Field(
        None,
        min_length=1,
        max_length=50,
        description="statuses from 200 to 499 that are no failure; default: every 2xx",
    )
    content: str = Field(
        "json",
        pattern="^(json|text|nothing)$",
        description="`json`: the body is the result; `text`: it is {status, content_type, text}; `nothing`: {status}",
    )

    def accepts(self, status: int) -> bool:
        """Say whether an answer with this status is no failure."""
        return 200 <= status <= 299 if self.status is None else status in self.status


class EndpointAnswered(Exception):
    """The endpoint's status asks for another try; `response` lets it be classified, with its Retry-After."""

    def __init__(self, message: str, response: httpx.Response) -> None:
        super().__init__(message)
        self.response = response

    @classmethod
    def of(cls, response: httpx.Response) -> Exception:
        """Make the failure that a status means: tried again for 408, 425, 429 and 5xx, else given up."""
        status = response.status_code
        if status in _RETRIED or status >= 500:
            return cls(f"the endpoint answered {status}", response)
        if 300 <= status <= 399:
            message = f"the endpoint answered {status}: redirects are followed only with `follow_redirects`"
            return DeadLetter(f"http_{status}", message)
        return DeadLetter(f"http_{status}", f"the endpoint answered {status}")


def result_of(response: httpx.Response, expect: Expectation) -> Any:
    """Give the result that a good answer holds. Raises DeadLetter (`invalid_response`) where it holds none."""
    if expect.content == "nothing":
        return {"status": response.status_code}
    if expect.content == "text":
        text = _text(response.content)
        return {"status": response.status_code, "content_type": response.headers.get("content-type"), "text": text}
    if not response.content.strip():
        return None
    kind = response.headers.get("content-type", "application/json").partition(";")[0].strip().lower()
    if kind != "application/json" and not (kind.startswith("application/") and kind.endswith("+json")):
        raise _invalid("its Content-Type should be application/json (or set `expect.content` to `text`)")
    return _json(_text(response.content))


def _text(content: bytes) -> str:
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise _invalid("its body should be UTF-8") from None
    if "\0" in text:
        raise _invalid("its body should hold no NUL")
    return text


def _json(text: str) -> Any:
    try:
        value = json.loads(text, parse_constant=_not_json)
    except (ValueError, RecursionError):
        raise _invalid("its body should be JSON, without NaN and Infinity") from None
    if not _keepable(value, _DEEPEST):
        raise _invalid("its body should hold no NUL, no half surrogate pair, no number beyond a double, and 64 levels")
    return value


def _not_json(constant: str) -> None:
    raise ValueError("NaN and Infinity are not JSON")


def _keepable(value: object, levels: int) -> bool:
    """Say whether a value can be stored and given out again as it came."""
    match value:
        case str():
            return "\0" not in value and not any("\ud800" <= one <= "\udfff" for one in value)
        case float():
            return math.isfinite(value)
        case list():
            return levels > 0 and all(_keepable(one, levels - 1) for one in value)
        case dict():
            return levels > 0 and all(
                _keepable(name, levels) and _keepable(one, levels - 1) for name, one in value.items()
            )
    return True


def _invalid(why: str) -> DeadLetter:
    return DeadLetter("invalid_response", f"the endpoint's answer cannot be the result: {why}")
