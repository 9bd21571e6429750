"""One delivery of `http_request`: an effect, whose answer is kept before the effect counts as had.

So a later run finds both and sends nothing. What the endpoint answers and does not accept by `expect` is free to be
delivered again; what it did not answer is repeated with the same key, or is a doubt, as the task says.
"""

import json
import time
from typing import TYPE_CHECKING, Any

import httpx

from app.domain.effects import MAXIMUM_HONOURS_SECONDS
from app.domain.errors import Yielded
from despacho import DeadLetter, NotAccepted, NotSent, TaskContext
from workers.callbacks import Address
from workers.handlers.http_answer import EndpointAnswered, result_of
from workers.handlers.kept import kept

if TYPE_CHECKING:
    from workers.handlers.http_request import HttpRequest

EFFECT_TYPE = "http_request"
_BESIDE_SECONDS = 5.0
"""What a delivery may take beside the call itself: reading the body, signing, keeping the answer."""
# Answers of servers and of gateways that failed while somebody may have been at work.
_SAYS_NOTHING = frozenset({500, *range(502, 600)}) - {503, 505, 511}


async def delivered(ctx: TaskContext, request: "HttpRequest", name: str) -> dict[str, Any]:
    """Deliver once under this name: {"status", "result"}. Raises what refuses, retries or gives up.

    `status` is None where a person said that the delivery has happened: its answer is not known.
    """
    known = await kept(ctx, name)
    repeats = known is not None or request.delivery == "at_least_once"

    async def deliver() -> str:
        await ctx.step(name, exchange)
        return ctx.task_id

    async def exchange() -> dict[str, Any]:
        try:
            body = await _body_of(ctx, request)
            address = await ctx.callbacks.issue() if request.completion == "callback" else None
            headers = await _headers_of(ctx, request, body, address)
        except (Exception, Yielded) as error:
            raise NotSent("the delivery could not be made up") from error
        return await _exchanged(ctx, request, body, headers, address)

    await ctx.effect(
        EFFECT_TYPE,
        f"{EFFECT_TYPE}:{ctx.task_id}:{name}",
        deliver,
        honours_key_for_seconds=MAXIMUM_HONOURS_SECONDS if repeats else 0,
        call_timeout_seconds=request.timeout_seconds + _BESIDE_SECONDS,
    )
    answer: dict[str, Any] | None = known or await kept(ctx, name)
    if answer is None:
        return {"status": 202 if request.completion == "callback" else None, "result": None}
    if failure := answer.get("failure"):
        raise DeadLetter(*failure)
    return answer


async def _exchanged(
    ctx: TaskContext, request: "HttpRequest", body: bytes | None, headers: dict[str, str], address: Address | None
) -> dict[str, Any]:
    """Act outside: the one call that somebody else sees. Gives what is kept of a good answer."""
    try:
        response = await ctx.http.request(
            request.method,
            request.url,
            headers=headers,
            content=body,
            timeout_seconds=request.timeout_seconds,
            follow_redirects=request.follow_redirects,
        )
        if address is not None and response.status_code == 202:
            await ctx.callbacks.expected(address, request.callback_timeout_seconds)
            return {"status": 202, "result": None}
        return _answer(request, response)
    except DeadLetter as error:
        if request.delivery == "at_least_once":
            # No answer as it is expected is no acceptance: a reprocessing delivers again, with the same key.
            raise NotAccepted("the endpoint's answer is none that is expected") from error
        raise


def _answer(request: "HttpRequest", response: httpx.Response) -> dict[str, Any]:
    status = response.status_code
    if not request.expect.accepts(status):
        failure = EndpointAnswered.of(response)
        if request.delivery == "at_most_once" and status in _SAYS_NOTHING:
            raise failure
        raise NotAccepted("the endpoint did not accept the delivery") from failure
    try:
        return {"status": status, "result": result_of(response, request.expect)}
    except DeadLetter as error:
        if request.delivery == "at_least_once":
            raise
        # The work is done, also where its answer cannot be the result.
        return {"status": status, "failure": [error.error_type, error.message]}


async def _body_of(ctx: TaskContext, request: "HttpRequest") -> bytes | None:
    if request.body_ref is not None:
        return await ctx.input_bytes(request.body_ref)
    if "body" in request.model_fields_set:
        return json.dumps(request.body, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
    return None


async def _headers_of(
    ctx: TaskContext, request: "HttpRequest", body: bytes | None, address: Address | None
) -> dict[str, str]:
    """Make the headers: the task's own, then ours, which a task cannot replace; `ctx.http` adds the Idempotency-Key."""
    timestamp = int(time.time())
    ours = {
        "Despacho-Attempt": str(ctx.attempt),
        "webhook-id": ctx.task_id,
        "webhook-timestamp": str(timestamp),
    }
    if body is not None:
        ours["Content-Type"] = (
            (request.content_type or "application/octet-stream") if request.body_ref else ("application/json")
        )
    if address is not None:
        ours["Despacho-Callback-Url"] = address.url
        ours["Despacho-Callback-Timeout-Seconds"] = f"{request.callback_timeout_seconds:g}"
    if request.secret is not None:
        ours |= await ctx.signature(request.secret, message_id=ctx.task_id, timestamp=timestamp, body=body or b"")
    return {"Accept": "application/json", **request.headers, **ours}
