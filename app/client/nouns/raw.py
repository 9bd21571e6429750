"""The API by path, for what this release of the client has no noun for."""

from collections.abc import Mapping
from typing import Generic

from app.client.bound import Bound, S, call, streaming
from app.client.request import Json, Parameter, Request, Stream, delete, get, pages, post


class Raw(Bound[S], Generic[S]):
    """`client.raw`: paths such as `/v1/tasks`, answers as plain JSON."""

    @call
    def get(self, path: str, parameters: Mapping[str, Parameter] | None = None) -> Request[Json]:
        """GET."""
        return get(path, object, parameters)

    @call
    def post(
        self,
        path: str,
        body: Mapping[str, Json] | None = None,
        *,
        parameters: Mapping[str, Parameter] | None = None,
        idempotency_key: str | None = None,
    ) -> Request[Json]:
        """POST JSON; sent again only with an `idempotency_key`, or where nothing was sent."""
        return post(path, object, body, parameters=parameters, idempotency_key=idempotency_key)

    @call
    def delete(self, path: str) -> Request[None]:
        """DELETE."""
        return delete(path)

    @streaming
    def pages(
        self, path: str, parameters: Mapping[str, Parameter] | None = None, *, at_most: int | None = None
    ) -> Stream[Json]:
        """Iterate over a list, page by page."""
        return pages(path, object, parameters, at_most=at_most)
