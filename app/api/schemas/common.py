"""Types that several nouns share: times, names, texts."""

import re
from datetime import UTC, datetime
from decimal import Decimal
from typing import Annotated, Any

import msgspec
from pydantic import BaseModel, BeforeValidator, ConfigDict, StringConstraints, WithJsonSchema
from pydantic_core import PydanticCustomError

_RFC3339 = re.compile(
    r"\d{4}-\d{2}-\d{2}[Tt]\d{2}:\d{2}:\d{2}(?:\.\d{1,9})?(?:[Zz]|[+-](?:[01]\d|2[0-3]):[0-5]\d)", re.ASCII
)


def parse_instant(value: object) -> datetime:
    """Read an RFC 3339 time with an offset; returns it in UTC. Raises PydanticCustomError."""
    if isinstance(value, str) and _RFC3339.fullmatch(value):
        try:
            parsed = datetime.fromisoformat(value.upper()).astimezone(UTC)
        except (ValueError, OverflowError):
            parsed = None
        # The first and last years are left out: with an offset they are no times in UTC.
        if parsed is not None and 1900 <= parsed.year <= 9998:
            return parsed
    raise PydanticCustomError(
        "instant", "should be an RFC 3339 time with an offset, from 1900 to 9998, such as 2026-07-01T12:00:00Z"
    )


Instant = Annotated[
    datetime,
    BeforeValidator(parse_instant),
    WithJsonSchema({"type": "string", "format": "date-time", "examples": ["2026-07-01T12:00:00Z"]}),
]

Label = Annotated[str, StringConstraints(min_length=1, max_length=200, pattern=r"^[^\x00-\x1f\x7f]+$")]
Reason = Annotated[str, StringConstraints(min_length=1, max_length=1000, pattern=r"^[^\x00]+$")]
Slug = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9_-]{0,62}$")]


class Body(BaseModel):
    """A request body: unknown fields are refused, and nothing is turned into what it is not."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


Money = Annotated[str, msgspec.Meta(extra_json_schema={"format": "decimal"})]
"""An exact amount of USD in plain digits, made by `money`."""


def money(amount: Decimal) -> str:
    """Spell an amount without an exponent and without zeros that say nothing: `0.0000003`, `12.5`, `0`."""
    text = f"{amount:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def raw(text: str | None) -> msgspec.Raw | None:
    """Have exact JSON text come out as it is."""
    return None if text is None else msgspec.Raw(text.encode())


Json = Any
"""Any JSON value, in the description; in an answer a `msgspec.Raw` with its exact text."""
