"""The web application: one FastAPI over one Runtime."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import cast

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.responses import Response

from app.api.door import Door, instance_of
from app.api.front import Front
from app.api.json_body import pointer
from app.api.mcp_route import MCP_PATH, McpRoute
from app.api.openapi import describe
from app.api.problems import answer, refusal_of
from app.api.routers import ROUTERS
from app.api.routers.tasks import submit_task
from app.runtime import Runtime
from app.services.audit import RefusalTrail
from app.services.errors import FieldError, Invalid, NotFound, ServiceError
from app.services.intake import Intake
from app.services.keys import KeyRing
from app.services.rates import Rates
from app.services.submission import Submitter
from app.services.tenants import TenantBook
from app.services.waiters import Waiters
from app.version import product_version

DEADLINE_SECONDS = 10.0
"""How long a request may take, waiting for a task not counted, before it is answered with a 503."""


def create_app(runtime: Runtime, submitter: Submitter | None = None) -> FastAPI:
    """Make the application. `submitter` is the process's own, where other parts of the process submit as well."""
    front = make_front(runtime, submitter or Submitter(runtime))

    mcp: McpRoute | None = None

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        if mcp is not None:
            await mcp.close()
        front.waiters.close()
        await front.refusals.flush()

    app = FastAPI(
        title="Despacho",
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        telemetry={"tracing": False, "metrics": False, "logs": False},
    )
    app.state.front = front
    for router in ROUTERS:
        app.include_router(router)
    if runtime.settings.api.mcp and (mcp := _mcp_route(app, front)) is not None:
        app.router.routes.append(mcp.route)
        app.state.mcp = mcp
    app.add_exception_handler(RequestValidationError, _parameters_refused)
    app.add_exception_handler(HTTPException, _http_refused)
    app.openapi = lambda: describe(app, ROUTERS, product_version())  # type: ignore[method-assign]
    settings = runtime.settings.api
    app.add_middleware(
        Door,
        metrics=runtime.metrics,
        limit_of=lambda path: settings.max_input_bytes if path == "/v1/inputs" else settings.max_body_bytes,
        direct={("POST", "/v1/tasks"): _route_of(submit_task)},
        hidden=lambda caller, refused: front.refusals.note(caller, refused.target, refused.tenant_id),
        deadline_seconds=DEADLINE_SECONDS,
        longest_wait_seconds=settings.max_wait_seconds,
        waits=frozenset({MCP_PATH}),
    )
    return app


def _mcp_route(app: FastAPI, front: Front) -> McpRoute | None:
    """Make the route of the MCP server; None where the extra is not installed."""
    from app.mcp_server.door import McpDoor

    try:
        return McpRoute(front, McpDoor(app, max_body_bytes=front.runtime.settings.api.max_body_bytes))
    except ModuleNotFoundError:
        return None


def _route_of(endpoint: Callable[..., object]) -> APIRoute:
    return next(
        route
        for router in ROUTERS
        for route in router.routes
        if isinstance(route, APIRoute) and route.endpoint is endpoint
    )


def make_front(runtime: Runtime, submitter: Submitter) -> Front:
    """Make the services that live as long as the application."""
    rates = Rates()
    waiters = Waiters(runtime.database)
    runtime.ended.append(waiters.notify)
    return Front(
        runtime=runtime,
        intake=Intake(runtime, submitter, rates),
        keys=KeyRing(runtime.database),
        tenants=TenantBook(runtime.database),
        refusals=RefusalTrail(runtime.database),
        waiters=waiters,
        effects_are_served=any(
            getattr(route, "path", "") == "/v1/tasks/{task_id}/effects" for router in ROUTERS for route in router.routes
        ),
    )


async def _parameters_refused(request: Request, error: Exception) -> Response:
    """Answer parameters that do not validate, naming those of the operation and repeating no value."""
    found: list[FieldError] = []
    for item in cast(RequestValidationError, error).errors():
        place, *location = item["loc"]
        if place == "path":
            return _refused(request, NotFound())
        kind = str(item["type"])
        name = str(location[0]) if location and kind != "extra_forbidden" else ""
        detail = "is not known here" if kind == "extra_forbidden" else str(item["msg"])
        found.append(FieldError(f"?{name}" if place == "query" else pointer(location, frozenset()), detail))
    refusal = Invalid(found, code="invalid_parameter", detail="A parameter does not validate; `errors` says which.")
    return _refused(request, refusal)


async def _http_refused(request: Request, error: Exception) -> Response:
    is_method = cast(HTTPException, error).status_code == HTTPStatus.METHOD_NOT_ALLOWED
    allow = {"Allow": _methods_of(request)} if is_method else {}
    return _refused(request, refusal_of(error), allow)


def _methods_of(request: Request) -> str:
    """Name the methods that there are for the path of a request: several routes share one path."""
    path = getattr(request.scope.get("route"), "path", None)
    routes = [route for router in ROUTERS for route in router.routes if getattr(route, "path", "") == path]
    methods = {method for route in routes for method in getattr(route, "methods", ())}
    return ", ".join(sorted(methods | ({"HEAD"} if "GET" in methods else set())))


def _refused(request: Request, refusal: ServiceError, headers: dict[str, str] | None = None) -> Response:
    front: Front = request.app.state.front
    front.runtime.metrics.refused(refusal.code)
    return answer(refusal, instance_of(request.scope), headers)
