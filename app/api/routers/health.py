"""GET /healthz, /readyz and /metrics."""

import hmac
from typing import Literal

from fastapi import APIRouter, Request
from starlette.responses import Response

from app.api.front import front_of
from app.api.operation import encoded, operation
from app.api.problems import unauthorized
from app.api.schemas.platform import Alive, Checks, PolicyCheck, Readiness
from app.services.fleet import look
from app.telemetry.metrics import CONTENT_TYPE

router = APIRouter(tags=["health"])


@router.get("/healthz", summary="Is the process alive?", **operation(Alive, public=True, description="It answers."))
async def alive() -> Response:
    """Answer, and look at nothing."""
    return encoded(200, Alive("ok"))


@router.get(
    "/readyz",
    summary="Is the service ready?",
    **operation(
        Readiness,
        public=True,
        description="Ready, or degraded: work is accepted safely and something else is missing.",
        also={503: ("Unavailable: the database does not answer.", Readiness)},
    ),
)
async def ready(request: Request) -> Response:
    """Look at the database, the broker, the dispatcher and the consumers of every class."""
    runtime = front_of(request).runtime
    health = await look(runtime)
    runtime.metrics.database_up(health.database)
    runtime.metrics.broker_up(health.broker)
    rules = PolicyCheck(runtime.policy.current.version, runtime.policy.refused)
    checks = Checks(_word(health.database), _word(health.broker), _word(health.dispatcher), health.consumers, rules)
    if not health.database:
        return encoded(503, Readiness("unavailable", checks), {"Retry-After": "2"})
    is_complete = health.is_complete and rules.refused is None
    return encoded(200, Readiness("ready" if is_complete else "degraded", checks))


def _word(is_there: bool) -> Literal["ok", "unavailable"]:
    return "ok" if is_there else "unavailable"


@router.get(
    "/metrics",
    summary="Prometheus metrics",
    **(
        operation(None, public=True, description="The text format of Prometheus.", problems=("unauthorized",))
        | {"response_class": Response}
    ),
)
async def metrics(request: Request) -> Response:
    """Render this process's metrics; a token guards them where the operator set one."""
    runtime = front_of(request).runtime
    token = runtime.settings.metrics_token
    if token is not None:
        expected = f"Bearer {token.get_secret_value()}".encode()
        given = request.headers.get("authorization", "").encode("latin-1")
        if not hmac.compare_digest(expected, given):
            raise unauthorized("The metrics ask for their token: `Authorization: Bearer <token>`.")
    return Response(runtime.metrics.render(), media_type=CONTENT_TYPE)
