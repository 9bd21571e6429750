"""Problem answers (RFC 9457): how any error of ours becomes one. No submitted value is ever repeated in them."""

import logging
import math
from collections.abc import Mapping
from http import HTTPStatus

import msgspec
from pydantic import ValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from app.api.headers import rate_headers
from app.api.problem_types import PROBLEM_TYPES, ProblemType
from app.services.errors import FieldError, InFlight, Invalid, QuotaExceeded, ServiceError, Shed, Unavailable
from app.services.rates import RateExceeded
from app.store.database import DatabaseUnavailable, LockTimeout, is_data_error, is_transient

log = logging.getLogger(__name__)

CONTENT_TYPE = "application/problem+json"
CHALLENGE = 'Bearer realm="despacho"'


class FieldProblem(msgspec.Struct, frozen=True):
    """One reason why a request does not validate: in the body (`pointer`), or a parameter or header by name."""

    detail: str
    pointer: str | msgspec.UnsetType = msgspec.UNSET
    parameter: str | msgspec.UnsetType = msgspec.UNSET
    header: str | msgspec.UnsetType = msgspec.UNSET


class Problem(msgspec.Struct, frozen=True):
    """A problem as it goes out."""

    type: str
    title: str
    status: int
    detail: str
    instance: str
    code: str
    retryable: bool
    task_id: str | msgspec.UnsetType = msgspec.UNSET
    errors: list[FieldProblem] | msgspec.UnsetType = msgspec.UNSET


def problem_of(error: ServiceError, instance: str) -> Problem:
    """Turn a refusal into a problem; `instance` is the template of the route, since its ids were submitted."""
    kind = PROBLEM_TYPES[error.code]
    errors: list[FieldProblem] | msgspec.UnsetType = msgspec.UNSET
    if isinstance(error, Invalid) and error.errors:
        errors = [_field(one) for one in error.errors]
    return Problem(
        f"/problems/{kind.code}",
        kind.title,
        kind.status,
        error.detail,
        instance,
        kind.code,
        kind.retryable,
        error.task_id or msgspec.UNSET,
        errors,
    )


def _field(one: FieldError) -> FieldProblem:
    match one.pointer[:1]:
        case "?":
            return FieldProblem(one.detail, parameter=one.pointer[1:])
        case ":":
            return FieldProblem(one.detail, header=one.pointer[1:])
        case _:
            return FieldProblem(one.detail, pointer=one.pointer)


def answer(error: ServiceError, instance: str, headers: Mapping[str, str] | None = None) -> Response:
    """Encode a refusal as a response, with the headers that its kind demands."""
    problem = problem_of(error, instance)
    out = dict(headers or {})
    if problem.status == HTTPStatus.UNAUTHORIZED:
        out.setdefault("WWW-Authenticate", CHALLENGE)
    if isinstance(error, (InFlight, QuotaExceeded, Shed, Unavailable)):
        out["Retry-After"] = str(max(1, math.ceil(error.retry_after_seconds)))
    if isinstance(error, RateExceeded):
        out.update(rate_headers(error.standing))
    return Response(msgspec.json.encode(problem), problem.status, out, media_type=CONTENT_TYPE)


def refusal_of(error: BaseException) -> ServiceError:
    """Translate whatever was raised into a refusal; what is nobody's expected outcome becomes `internal_error`."""
    match error:
        case ServiceError():
            return error
        case HTTPException():
            return _http(error.status_code)
        case DatabaseUnavailable() | TimeoutError():
            return database_unavailable()
        case LockTimeout():
            return Unavailable(
                "database_unavailable", "The database is busy with another change.", retry_after_seconds=1
            )
        case ValidationError():
            log.error("api.unexpected_validation_error", exc_info=error)
    if is_data_error(error):
        return Invalid(detail="A value cannot be stored.")
    if is_transient(error):
        return database_unavailable()
    log.error("api.unexpected_error", exc_info=error)
    return ServiceError("internal_error", "The service failed in a way that it did not foresee.")


def database_unavailable() -> Unavailable:
    """Say that the database does not answer."""
    return Unavailable("database_unavailable", "The database does not answer just now.", retry_after_seconds=2)


def unauthorized(detail: str) -> ServiceError:
    """Say that there is no valid key."""
    return ServiceError("unauthorized", detail)


def payload_too_large(limit_bytes: int) -> ServiceError:
    """Say that the body is larger than `limit_bytes`."""
    return ServiceError("payload_too_large", f"The body is larger than {limit_bytes} bytes.")


_BY_STATUS: dict[int, ProblemType] = {
    status: PROBLEM_TYPES[code]
    for status, code in (
        (400, "bad_request"),
        (401, "unauthorized"),
        (403, "forbidden"),
        (404, "not_found"),
        (405, "method_not_allowed"),
        (413, "payload_too_large"),
        (422, "invalid_payload"),
    )
}


def _http(status: int) -> ServiceError:
    kind = _BY_STATUS.get(status, PROBLEM_TYPES["bad_request" if status < 500 else "internal_error"])
    return ServiceError(kind.code, f"{kind.title}.")
