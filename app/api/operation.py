"""Describing operations to FastAPI, so that `/openapi.json` names every status, problem and example.

    @router.get("/v1/things/{thing_id}", **operation(Thing, problems=("not_found",)))
    async def get_thing(thing_id: str, caller: Annotated[Caller, Depends(needs(Scope.X))], …) -> Response:
        return encoded(200, thing)

Models travel with the route, so a new router is described by being listed.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from fastapi import Request
from pydantic import BaseModel
from starlette.responses import Response

from app.api.json_body import Reader
from app.api.problem_types import PROBLEM_TYPES
from app.api.problems import CONTENT_TYPE

_KEYED = ("unauthorized", "forbidden", "invalid_parameter", "database_unavailable", "internal_error")
_BODY = ("malformed_json", "payload_too_large", "invalid_payload")
_encode = msgspec.json.Encoder(decimal_format="string").encode


def encoded(status: int, answer: object, headers: Mapping[str, str] | None = None) -> Response:
    """Encode an answer."""
    return Response(_encode(answer), status, dict(headers) if headers else None, media_type="application/json")


def encode(answer: object) -> bytes:
    """Encode an answer's body."""
    return _encode(answer)


def ref(model: type) -> dict[str, str]:
    """Refer to a model's schema."""
    return {"$ref": f"#/components/schemas/{model.__name__}"}


class Described(dict[str, Any]):
    """What FastAPI adds to the description of a route, with the models that it refers to."""

    def __init__(self, models: Iterable[type]) -> None:
        super().__init__()
        self.models = tuple(models)


def operation(
    answer: type | None,
    *,
    status: int = 200,
    also: Mapping[int, tuple[str, type | None]] | None = None,
    body: type[BaseModel] | None = None,
    problems: Iterable[str] = (),
    public: bool = False,
    description: str = "Done.",
    headers: Iterable[str] = (),
    parameters: Iterable[Mapping[str, Any]] = (),
    models: Iterable[type] = (),
) -> dict[str, Any]:
    """Give the keyword arguments for a router's decorator.

    `also` holds further good answers as status → (description, model); `problems` the codes beyond those that every
    operation with a key, or with a body, can answer with; `headers` names response headers of the good answers.
    """
    codes = set(problems) | (set() if public else set(_KEYED)) | (set(_BODY) if body else set())
    goods = {status: (description, answer), **(also or {})}
    responses: dict[int | str, dict[str, Any]] = {
        code: _good(text, model, headers) for code, (text, model) in goods.items()
    }
    for code_status in sorted({PROBLEM_TYPES[code].status for code in codes}):
        responses[code_status] = _problems([code for code in codes if PROBLEM_TYPES[code].status == code_status])
    used = [model for _, model in goods.values() if model is not None] + ([body] if body else []) + list(models)
    extra = Described(used)
    if body is not None:
        extra["requestBody"] = {"required": True, "content": {"application/json": {"schema": ref(body)}}}
    if parameters:
        extra["parameters"] = list(parameters)
    if not public:
        extra["security"] = [{"key": []}]
    return {"status_code": status, "responses": responses, "openapi_extra": extra, "response_class": Response}


def _good(text: str, model: type | None, headers: Iterable[str]) -> dict[str, Any]:
    out: dict[str, Any] = {"description": text}
    if model is not None:
        out["content"] = {"application/json": {"schema": ref(model)}}
    named = {name: {"schema": {"type": "string"}} for name in headers}
    return out | ({"headers": named} if named else {})


def _problems(codes: list[str]) -> dict[str, Any]:
    kinds = [PROBLEM_TYPES[code] for code in sorted(codes)]
    examples = {
        kind.code: {
            "summary": kind.title,
            "value": {
                "type": f"/problems/{kind.code}",
                "title": kind.title,
                "status": kind.status,
                "detail": kind.remedy,
                "instance": "/v1/tasks",
                "code": kind.code,
                "retryable": kind.retryable,
            },
        }
        for kind in kinds
    }
    out: dict[str, Any] = {
        "description": " Or: ".join(f"`{kind.code}`: {kind.title}." for kind in kinds),
        "content": {CONTENT_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}, "examples": examples}},
    }
    headers: dict[str, Any] = {}
    if kinds[0].status == 401:
        headers["WWW-Authenticate"] = {"schema": {"type": "string"}}
    if kinds[0].status in (429, 503) or "idempotency_in_flight" in codes:
        headers["Retry-After"] = {"schema": {"type": "integer"}, "description": "seconds"}
    return out | ({"headers": headers} if headers else {})


def body_of(model: type[BaseModel]) -> Any:
    """Make the dependency that reads and validates a body of `model`."""
    reader = Reader(model)

    async def read(request: Request) -> Any:
        return reader.read(await request.body())

    return read
