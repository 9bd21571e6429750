"""Requests as values, and the small language in which longer conversations are written. No I/O here.

A method of a noun returns a `Request`, or a `Flow`: a generator that yields steps (a request, a pause, a file to read,
items for whoever iterates) and is sent what each gave. `shells.py` carries both out, blocking or awaiting.
"""

import dataclasses
import json
from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum
from os import PathLike
from typing import Any, Generic, TypeVar
from urllib.parse import quote
from uuid import UUID

import msgspec

from app.client.errors import Unsendable

T = TypeVar("T")
Json = Any
"""Any JSON value: what a task's input, result, metadata or checkpoint may be."""

Moment = datetime | str
"""An aware datetime, or RFC 3339 text."""
Several = str | Iterable[str] | None
"""One value of a filter, or several that mean "or"."""
Parameter = Moment | Iterable[str] | int | float | None

PAGE_SIZE = 200


@dataclass(frozen=True, slots=True)
class Request(Generic[T]):
    """One call of the API: what to send, what comes back, and whether sending it twice does no more than once."""

    method: str
    path: str
    answer: Any
    """The type of the answer; None for no content, bytes or str for what is no JSON."""
    parameters: tuple[tuple[str, str], ...] = ()
    body: bytes | None = field(default=None, repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    repeatable: bool = True
    wait_seconds: float = 0.0
    """How long the service was asked to hold the answer back."""
    member: str | None = None
    """The answer is this member of what comes."""
    answers: frozenset[int] = frozenset()
    """Statuses beside 2xx that carry an answer and no problem."""


@dataclass(frozen=True, slots=True)
class Pause:
    """A step: let so much time pass."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Load:
    """A step: read a file."""

    path: "str | PathLike[str]"


@dataclass(frozen=True, slots=True)
class Items(Generic[T]):
    """A step: give these to whoever iterates."""

    items: Sequence[T]


Step = Request[Any] | Pause | Load | Items[Any]
Flow = Generator[Step, Any, T]
"""A conversation that ends with a T."""
Stream = Generator[Request[Any] | Pause | Load | Items[T], Any, None]
"""A conversation that gives items of T while it lasts."""


class Page(msgspec.Struct, Generic[T], frozen=True):
    """A page of a list."""

    items: list[T]
    next_page_token: str | None = None


def get(
    path: str, answer: type[T], parameters: Mapping[str, Parameter] | None = None, *, member: str | None = None
) -> Request[T]:
    """Make a GET."""
    return Request("GET", path, answer, _spoken(parameters), member=member)


def get_items(path: str, item: type[T], parameters: Mapping[str, Parameter] | None = None) -> Request[Sequence[T]]:
    """Make a GET of a list that comes in one piece."""
    return Request("GET", path, Page[item], _spoken(parameters), member="items")  # type: ignore[valid-type]


def post(
    path: str,
    answer: type[T],
    body: Mapping[str, Json] | None = None,
    *,
    parameters: Mapping[str, Parameter] | None = None,
    idempotency_key: str | None = None,
    repeatable: bool = False,
    wait_seconds: float = 0.0,
    method: str = "POST",
) -> Request[T]:
    """Make a POST of JSON; it may be repeated when it has a key, or when told. Raises TypeError, Unsendable."""
    headers = {"Content-Type": "application/json"} if body is not None else {}
    if idempotency_key is not None:
        headers["Idempotency-Key"] = _checked_key(idempotency_key)
    return Request(
        method,
        path,
        answer,
        _spoken(parameters),
        None if body is None else encoded(body),
        headers,
        repeatable or idempotency_key is not None,
        wait_seconds,
    )


def delete(path: str) -> Request[None]:
    """Make a DELETE."""
    return Request("DELETE", path, None)


def pages(
    path: str, item: type[T], parameters: Mapping[str, Parameter] | None = None, *, at_most: int | None = None
) -> Stream[T]:
    """Read a list page by page until it ends or `at_most` items have come."""
    token: str | None = None
    left = at_most
    spoken = _spoken(parameters)
    while left is None or left > 0:
        size = PAGE_SIZE if left is None else min(left, PAGE_SIZE)
        own = (("page_size", str(size)), *((("page_token", token),) if token else ()))
        page = yield Request("GET", path, Page[item], spoken + own)  # type: ignore[valid-type]
        items = member_of(page, "items")[:size]
        yield Items(items)
        left = None if left is None else left - len(items)
        token = member_of(page, "next_page_token")
        if token is None:
            return


def member_of(answer: Any, name: str) -> Any:
    """Return a member of an answer, be it typed or plain JSON."""
    return answer.get(name) if isinstance(answer, Mapping) else getattr(answer, name)


def part(text: str) -> str:
    """Return `text` as one part of a path, whatever is in it. Raises Unsendable for what would be another path."""
    if not isinstance(text, str) or text in ("", ".", ".."):
        raise Unsendable("an id should be a text such as task_01JZ8W4W9GZK4K2GZ7Q2ABCD12")
    return quote(text, safe="")


def given(**fields: Json) -> dict[str, Json]:
    """Return the fields without those that are left out (None)."""
    return {name: value for name, value in fields.items() if value is not None}


def selection(everything: bool, found: Mapping[str, Any]) -> dict[str, Json]:
    """Return which things a bulk action is about, as its body says it: a filter, or all."""
    fields = {
        name: value if isinstance(value, str | datetime) else list(value)
        for name, value in found.items()
        if value is not None
    }
    return {**({"all": True} if everything else {}), **({"filter": fields} if fields else {})}


def parameters_of(found: Mapping[str, Any]) -> dict[str, Parameter]:
    """Return a filter as query parameters."""
    return dict(found)


def encoded(value: Json) -> bytes:
    """Write JSON. Raises TypeError or Unsendable, which name what cannot be sent and never show it."""
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_plain).encode()
    except UnicodeEncodeError:
        raise Unsendable("not JSON: a text holds half of a surrogate pair") from None
    except RecursionError:
        raise Unsendable("not JSON: it is nested too deeply, or holds itself") from None
    except Unsendable:
        raise
    except ValueError as error:
        if "Circular" in str(error):
            raise Unsendable("not JSON: it holds itself") from None
        if "JSON compliant" in str(error):
            raise Unsendable("not JSON: NaN and infinite numbers cannot be sent") from None
        raise


def instant(value: datetime) -> str:
    """Write a time as RFC 3339 in UTC. Raises Unsendable for a naive one."""
    if value.tzinfo is None:
        raise Unsendable("a time should be aware: datetime.now(UTC), or one with another tzinfo")
    return value.astimezone(UTC).isoformat().replace("+00:00", "Z")


def _plain(value: object) -> Json:
    """Turn what programs hold into what JSON holds. Raises TypeError."""
    match value:
        case datetime():
            return instant(value)
        case date():
            return value.isoformat()
        case Decimal() | UUID():
            return str(value)
        case Enum():
            return value.value
        case Mapping():
            return dict(value)
        case set() | frozenset() | bytes() | bytearray() | memoryview():
            raise TypeError(f"a {type(value).__name__} cannot be sent as JSON")
        case msgspec.Struct():
            return msgspec.to_builtins(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {one.name: getattr(value, one.name) for one in dataclasses.fields(value)}
    dump = getattr(value, "model_dump", None)
    if callable(dump):
        return dump(mode="json")
    raise TypeError(f"a {type(value).__name__} cannot be sent as JSON")


def _spoken(parameters: Mapping[str, Parameter] | None) -> tuple[tuple[str, str], ...]:
    """Write query parameters: repeated for "or", without those that are left out."""
    spoken: list[tuple[str, str]] = []
    for name, value in (parameters or {}).items():
        match value:
            case None:
                continue
            case bool():
                spoken.append((name, "true" if value else "false"))
            case datetime():
                spoken.append((name, instant(value)))
            case str() | int() | float():
                spoken.append((name, str(value)))
            case _:
                spoken += [(name, str(one)) for one in value]
    return tuple(spoken)


def _checked_key(key: str) -> str:
    if not 1 <= len(key) <= 255 or not all("!" <= char <= "~" for char in key):
        raise Unsendable("an idempotency key should be 1 to 255 visible ASCII characters without spaces")
    return key
