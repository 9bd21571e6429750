"""POST /v1/inputs and GET /v1/inputs/{input_ref}."""

from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request
from starlette.responses import Response

from app.api.auth import needs
from app.api.front import front_of
from app.api.operation import encoded, operation
from app.api.path_ids import check_id
from app.api.query import PlainText
from app.api.schemas.operations import InputAnswer
from app.domain.scopes import Scope
from app.services import inputs
from app.services.callers import Caller

router = APIRouter(tags=["inputs"])

_ANY = {"*/*": {"schema": {"type": "string", "format": "binary"}}}
_STORE = operation(
    InputAnswer,
    status=201,
    description="Stored.",
    also={200: ("The same document was there already.", InputAnswer)},
    problems=("bad_request", "input_too_large", "payload_too_large", "invalid_payload"),
    headers=("Location",),
)
_STORE["openapi_extra"]["requestBody"] = {"required": True, "content": _ANY}
_READ = operation(None, description="The document, byte for byte.", problems=("not_found",))
_READ["responses"][200]["content"] = _ANY

# Whatever was stored must not run in a browser under this service's name.
_HARMLESS = {
    "X-Content-Type-Options": "nosniff",
    "Content-Disposition": "attachment",
    "Content-Security-Policy": "default-src 'none'; sandbox",
    "Cache-Control": "private, no-store",
}


@router.post("/v1/inputs", summary="Store a document", **_STORE)
async def store_input(
    request: Request,
    caller: Annotated[Caller, Depends(needs(Scope.TASKS_WRITE))],
    tenant_id: Annotated[
        PlainText | None, Query(description="platform keys only: whose document it is; without it, `default`")
    ] = None,
) -> Response:
    """Store a document of any content type; the same content is stored once per tenant."""
    front = front_of(request)
    tenant = await front.tenants.acting_for(caller, tenant_id)
    kept = await inputs.keep(
        front.runtime,
        caller,
        request.stream(),
        request.headers.get("content-type"),
        tenant_id=tenant.facts.tenant_id,
    )
    stored = kept.stored
    answer = InputAnswer(stored.input_ref, stored.sha256, stored.size_bytes, stored.content_type)
    return encoded(201 if kept.created else 200, answer, {"Location": f"/v1/inputs/{stored.input_ref}"})


@router.get("/v1/inputs/{input_ref}", summary="Read a stored document", **_READ)
async def read_input(
    request: Request, input_ref: str, caller: Annotated[Caller, Depends(needs(Scope.PAYLOADS_READ))]
) -> Response:
    """Give a document back as it came, with its content type."""
    front = front_of(request)
    stored, content = await inputs.fetch(front.runtime, caller, check_id(input_ref, "input"))
    return Response(content, headers={**_HARMLESS, "Content-Type": stored.content_type})
