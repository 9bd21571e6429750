"""POST /v1/callbacks/{token}: whoever got a task delivered says how it ended. The token is the credential."""

import msgspec
from fastapi import APIRouter, Request
from starlette.responses import Response

from app.api.front import front_of
from app.api.json_body import Reader
from app.api.operation import encoded, operation
from app.api.schemas.callbacks import CallbackAnswer, CallbackBody
from app.domain.callbacks import CallbackOutcome
from app.services.callbacks import call_back

router = APIRouter(tags=["callbacks"])
_reader = Reader(CallbackBody)


class _Kept(msgspec.Struct):
    """The result's exact text."""

    result: msgspec.Raw = msgspec.Raw()


_kept = msgspec.json.Decoder(_Kept)


@router.post(
    "/v1/callbacks/{token}",
    summary="Complete a delivered task",
    **operation(
        CallbackAnswer,
        status=202,
        description="Recorded; the task goes on at once.",
        body=CallbackBody,
        problems=(
            "not_found", "callback_used", "callback_closed", "task_moving", "database_unavailable", "internal_error",
        ),
        public=True,
    ),
)  # fmt: skip
async def complete_by_callback(request: Request, token: str) -> Response:
    """Say how a task of the type `http_request` ended, by the address that its delivery carried.

    No key is needed. The first call counts: another one is answered 409, one that comes after the task's end 410.
    """
    raw = await request.body()
    body: CallbackBody = _reader.read(raw)
    task_id = await call_back(front_of(request).runtime, token, _outcome(body, raw))
    return encoded(202, CallbackAnswer(task_id))


def _outcome(body: CallbackBody, raw: bytes) -> CallbackOutcome:
    if body.error is not None:
        return CallbackOutcome(None, body.error.type, body.error.message, body.error.retryable)
    return CallbackOutcome(bytes(_kept.decode(raw).result).decode())
