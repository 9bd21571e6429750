"""Inputs: documents that tasks refer to."""

from os import PathLike
from typing import Generic

import msgspec

from app.client.bound import Bound, S, call
from app.client.request import Flow, Load, Request, part

_ANY_KIND = "application/octet-stream"


class StoredInput(msgspec.Struct, frozen=True, kw_only=True):
    """A stored document; `input_ref` is what tasks refer to."""

    input_ref: str
    sha256: str | None = None
    size_bytes: int | None = None
    content_type: str | None = None


class Inputs(Bound[S], Generic[S]):
    """`client.inputs`."""

    @call
    def store(
        self, document: "bytes | str | PathLike[str]", content_type: str = _ANY_KIND, *, tenant_id: str | None = None
    ) -> Flow[StoredInput]:
        """Store a document: its bytes, or the path of its file. The same content is stored once per tenant.

        Raises OSError where the file cannot be read.
        """
        content = document if isinstance(document, bytes) else (yield Load(document))
        stored: StoredInput = yield Request(
            "POST",
            "/v1/inputs",
            StoredInput,
            () if tenant_id is None else (("tenant_id", tenant_id),),
            content,
            {"Content-Type": content_type},
        )
        return stored

    @call
    def read(self, input_ref: str) -> Request[bytes]:
        """Return the bytes of a document."""
        return Request("GET", f"/v1/inputs/{part(input_ref)}", bytes, headers={"Accept": "*/*"})
