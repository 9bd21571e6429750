"""Query parameters: unknown and doubled ones are refused, pages are bounded, tokens are opaque."""

import base64
import binascii
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Annotated, get_args, get_origin
from weakref import WeakKeyDictionary

from fastapi import Request
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints

from app.services.errors import FieldError, Invalid

DEFAULT_PAGE_SIZE = 50
MAX_PAGE_SIZE = 200

PlainText = Annotated[str, StringConstraints(min_length=1, max_length=500, pattern=r"^[^\x00]*$")]
"""A text that can be kept and compared."""


class PageQuery(BaseModel):
    """The parameters that every list has."""

    model_config = ConfigDict(extra="forbid")

    page_size: Annotated[
        int, Field(ge=1, description=f"items per page; above {MAX_PAGE_SIZE} means {MAX_PAGE_SIZE}"),
        AfterValidator(lambda size: min(size, MAX_PAGE_SIZE)),
    ] = DEFAULT_PAGE_SIZE  # fmt: skip
    page_token: Annotated[str | None, Field(max_length=400, description="`next_page_token` of the page before")] = None

    def after(self) -> str | None:
        """Return the id after which the page begins. Raises Invalid for a token that is none of ours."""
        if self.page_token is None:
            return None
        try:
            padded = self.page_token + "=" * (-len(self.page_token) % 4)
            text = base64.b64decode(padded, altchars=b"-_", validate=True).decode("ascii")
        except (binascii.Error, ValueError):
            text = ""
        version, _, last = text.partition(":")
        if version != "1" or not last or not last.isprintable():
            raise Invalid(
                [("?page_token", "not a token of this list: use `next_page_token` of the page before")],
                code="invalid_parameter",
                detail="The page token is not valid.",
            )
        return last


class TenantPageQuery(PageQuery):
    """A list that platform keys may filter by tenant."""

    tenant_id: Annotated[PlainText | None, Field(description="platform keys only: things of one tenant")] = None


class TenantsPageQuery(PageQuery):
    """A list that platform keys may filter by tenants; repeated means "or"."""

    tenant_id: Annotated[list[PlainText] | None, Field(description="platform keys only: things of these tenants")] = (
        None
    )


def next_token(last_id: str | None) -> str | None:
    """Make the token of the page after `last_id`."""
    if last_id is None:
        return None
    return base64.urlsafe_b64encode(f"1:{last_id}".encode()).decode().rstrip("=")


@dataclass(frozen=True, slots=True)
class _Known:
    """The query parameters of an operation, and those of them that may be repeated."""

    names: frozenset[str]
    lists: frozenset[str]


_known_by_endpoint: WeakKeyDictionary[Callable[..., object], _Known] = WeakKeyDictionary()


def _known(route: APIRoute) -> _Known:
    known = _known_by_endpoint.get(route.endpoint)
    if known is None:
        fields = dict(_fields(route.dependant))
        known = _Known(frozenset(fields), frozenset(name for name, kind in fields.items() if _is_list(kind)))
        _known_by_endpoint[route.endpoint] = known
    return known


def _fields(dependant: Dependant) -> Iterator[tuple[str, object]]:
    """Name each parameter with its type."""
    for one in dependant.query_params:
        annotation = one.field_info.annotation
        if isinstance(annotation, type) and issubclass(annotation, BaseModel):
            yield from ((name, field.annotation) for name, field in annotation.model_fields.items())
        else:
            yield one.alias, annotation
    for needed in dependant.dependencies:
        yield from _fields(needed)


def _is_list(kind: object) -> bool:
    return get_origin(kind) is list or any(get_origin(one) is list for one in get_args(kind))


def refuse_unknown_parameters(request: Request) -> None:
    """Refuse unknown parameters, and one that is repeated although it is no list: a filter must not go unheard.

    Raises Invalid.
    """
    known = _known(request.scope["route"])
    refuse_parameters(request, known.names, known.lists)


def refuse_parameters(request: Request, names: frozenset[str], lists: frozenset[str] = frozenset()) -> None:
    """Refuse parameters that are not in `names`, and those given twice that are not in `lists`. Raises Invalid."""
    given = request.query_params.multi_items()
    if any(name not in names for name, _ in given):
        known = ", ".join(sorted(names)) or "none"
        raise Invalid(
            code="invalid_parameter", detail=f"There is a parameter that the operation does not know. Known: {known}."
        )
    counts = Counter(name for name, _ in given)
    if twice := sorted(name for name, count in counts.items() if count > 1 and name not in lists):
        raise Invalid(
            [FieldError(f"?{name}", "should be given once") for name in twice],
            code="invalid_parameter",
            detail="A parameter is given more than once.",
        )
