"""Who calls and what they may do: bearer keys, scopes, platform-only operations."""

import re
from collections.abc import Awaitable, Callable

from fastapi import Request

from app.api.front import Front, front_of
from app.api.problems import unauthorized
from app.api.query import refuse_unknown_parameters
from app.domain.scopes import Scope
from app.services.callers import Caller
from app.services.errors import Forbidden

_BEARER = re.compile(r"^bearer +([\x21-\x7e]{1,512}) *$", re.IGNORECASE)


async def authenticate(front: Front, authorization: str | None) -> Caller:
    """Find the caller behind an Authorization header. Raises unauthorized."""
    if authorization is None:
        raise unauthorized("Send a key: `Authorization: Bearer <key>`.")
    match = _BEARER.match(authorization)
    caller = await front.keys.caller(match.group(1)) if match else None
    if caller is None:
        raise unauthorized("The key is not valid: it is unknown, revoked or expired.")
    return caller


async def authorize(front: Front, authorization: str | None, scope: Scope, *, platform: bool = False) -> Caller:
    """Find the caller and hold it against what an operation demands. Raises unauthorized or Forbidden."""
    caller = await authenticate(front, authorization)
    if not caller.may(scope):
        raise Forbidden(f"The key lacks the scope {scope}.")
    if platform and not caller.is_platform:
        raise Forbidden("Only a platform key may do this.")
    return caller


def needs(scope: Scope, *, platform: bool = False) -> Callable[[Request], Awaitable[Caller]]:
    """Make the dependency that yields the caller of an operation, which must have `scope`.

    It also refuses query parameters that the operation does not know, and leaves the caller where the door finds it.
    """

    async def caller(request: Request) -> Caller:
        found = await authorize(front_of(request), request.headers.get("authorization"), scope, platform=platform)
        request.state.caller = found
        refuse_unknown_parameters(request)
        return found

    return caller
