"""Query parameters: unknown ones are refused, pages are bounded, tokens are opaque."""

import base64
import binascii
from collections.abc import Callable, Iterator
from typing import Annotated
from weakref import WeakKeyDictionary

from fastapi import Request
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints

from app.services.errors import Invalid

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


def next_token(last_id: str | None) -> str | None:
    """Make the token of the page after `last_id`."""
    if last_id is None:
        return None
    return base64.urlsafe_b64encode(f"1:{last_id}".encode()).decode().rstrip("=")


_known_by_endpoint: WeakKeyDictionary[Callable[..., object], frozenset[str]] = WeakKeyDictionary()


def _known(route: APIRoute) -> frozenset[str]:
    known = _known_by_endpoint.get(route.endpoint)
    if known is None:
        known = frozenset(_names(route.dependant))
        _known_by_endpoint[route.endpoint] = known
    return known


def _names(dependant: Dependant) -> Iterator[str]:
    for one in dependant.query_params:
        annotation = one.field_info.annotation
        if isinstance(annotation, type) and issubclass(annotation, BaseModel):
            yield from annotation.model_fields
        else:
            yield one.alias
    for needed in dependant.dependencies:
        yield from _names(needed)


def refuse_unknown_parameters(request: Request) -> None:
    """Refuse unknown parameters: a misspelt filter must not list everything. Raises Invalid."""
    known = _known(request.scope["route"])
    if any(name not in known for name in request.query_params):
        names = ", ".join(sorted(known)) or "none"
        raise Invalid(
            code="invalid_parameter", detail=f"There is a parameter that the operation does not know. Known: {names}."
        )
