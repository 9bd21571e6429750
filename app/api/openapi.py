"""The API description: FastAPI's document with our schemas, so that it says exactly what goes over the wire."""

from collections.abc import Iterable
from typing import Any

import msgspec
from fastapi import APIRouter, FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from app.api.operation import Described
from app.api.problems import Problem

_REF = "#/components/schemas/{name}"
_DESCRIPTION = """Submit tasks, follow them, and operate the service.

Every error is `application/problem+json` (RFC 9457); its `type` is a page that this service serves. Lists are newest
first unless they say otherwise. Times are RFC 3339 in UTC. Of a key repeated in one JSON object the last value counts.
"""


def describe(app: FastAPI, routers: Iterable[APIRouter], version: str) -> dict[str, Any]:
    """Make the document; it is made once and kept by the application."""
    if app.openapi_schema is None:
        document = get_openapi(
            title="Despacho", version=version, description=_DESCRIPTION, routes=app.routes, openapi_version="3.1.0"
        )
        models = {Problem}.union(*(_models_of(router) for router in routers))
        components = document.setdefault("components", {})
        components["schemas"] = _schemas(models)
        components["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer", "description": "an API key"}}
        app.openapi_schema = document
    return app.openapi_schema


def _models_of(router: APIRouter) -> set[type]:
    extras = (getattr(route, "openapi_extra", None) for route in router.routes)
    return {model for extra in extras if isinstance(extra, Described) for model in extra.models}


def _schemas(models: set[type]) -> dict[str, Any]:
    pydantic_models = [model for model in models if issubclass(model, BaseModel)]
    structs = [model for model in models if issubclass(model, msgspec.Struct)]
    _, ours = msgspec.json.schema_components(structs, ref_template=_REF)
    _, theirs = models_json_schema(
        [(model, "validation") for model in pydantic_models], ref_template=_REF.replace("name", "model")
    )
    return dict(sorted({**ours, **theirs.get("$defs", {})}.items()))
