"""The task type `http_request`: delivers a task to an HTTP endpoint, so that handlers can be written in any language.

The delivery is signed by Standard Webhooks and carries an Idempotency-Key that is the same on every attempt. The
endpoint answers with the result, or with 202 and calls back later; meanwhile the task holds no worker.
"""

import json
import time
from functools import lru_cache
from hashlib import sha256
from typing import Any, Literal

import httpx
from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator
from pydantic_core import PydanticCustomError

from app.domain.addresses import AddressForbidden, Allowed, check_url, parse_allowed
from app.domain.callbacks import CallbackOutcome, Called, Overdue, Pending
from app.domain.secret_names import SECRET_NAME
from app.settings import load_settings
from despacho import DeadLetter, Retry, TaskContext, task_type
from workers.callbacks import Address
from workers.handlers.http_answer import EndpointAnswered, Expectation, result_of
from workers.handlers.http_headers import check_headers

LONGEST_SECONDS = 290.0
_WITHOUT_BODY = ("GET", "HEAD")


class HttpRequest(BaseModel):
    """What to send where, and what to wait for."""

    model_config = ConfigDict(extra="forbid")

    url: str = Field(description="http or https; private addresses only where the operator opened them")
    method: Literal["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"] = "POST"
    headers: dict[str, str] = Field(default_factory=dict, max_length=50)
    body: Any = Field(None, description="sent as JSON")
    body_ref: str | None = Field(None, description="a stored input, sent as it is instead of `body`")
    content_type: str | None = Field(None, description="of `body_ref`; default: application/octet-stream")
    secret: str | None = Field(
        None, pattern=f"^{SECRET_NAME.pattern}$", description="the signing secret; the operator opens it for the tenant"
    )
    expect: Expectation = Expectation()
    timeout_seconds: float = Field(30.0, gt=0, le=LONGEST_SECONDS, allow_inf_nan=False)
    completion: Literal["response", "callback"] = Field(
        "response", description="`callback`: an answer of 202 means that the result comes later"
    )
    callback_timeout_seconds: float = Field(
        3600.0,
        gt=0,
        le=30 * 86400,
        allow_inf_nan=False,
        description="how long the call may take to come, after the 202",
    )
    follow_redirects: bool = False

    @field_validator("url")
    @classmethod
    def _may_be_called(cls, url: str) -> str:
        try:
            check_url(url, opened())
        except AddressForbidden as error:
            raise PydanticCustomError("forbidden_address", "{why}", {"why": error.message}) from None
        return url

    @field_validator("headers")
    @classmethod
    def _may_be_sent(cls, headers: dict[str, str]) -> dict[str, str]:
        if why := check_headers(headers):
            raise PydanticCustomError("invalid_headers", "{why}", {"why": why})
        return headers

    @field_validator("content_type")
    @classmethod
    def _is_one_line(cls, value: str | None) -> str | None:
        if value is not None and check_headers({"X-Content-Type": value}):
            raise PydanticCustomError("invalid_headers", "should be one line of printable ASCII")
        return value

    @model_validator(mode="after")
    def _has_one_body(self) -> "HttpRequest":
        has_json = "body" in self.model_fields_set
        if has_json and self.body_ref is not None:
            raise PydanticCustomError("two_bodies", "should hold `body` or `body_ref`, not both")
        if self.method in _WITHOUT_BODY and (has_json or self.body_ref is not None):
            raise PydanticCustomError("unexpected_body", "a GET or HEAD request should have no body")
        if self.content_type is not None and self.body_ref is None:
            raise PydanticCustomError("unexpected_content_type", "`content_type` should go with `body_ref`")
        return self


@task_type(
    "http_request",
    description="Delivers the task to an HTTP endpoint: its answer, or a later callback, is the result.",
    max_attempts=8,
    timeout_seconds=300,
    cost_class="short",
    backoff_base_seconds=2,
)
async def http_request(ctx: TaskContext, request: HttpRequest) -> Any:
    """Deliver one task. Dead-letters what retrying cannot mend: `forbidden_address`, `http_4xx`, `invalid_response`."""
    if request.completion == "callback":
        match await ctx.callbacks.standing():
            case Called(outcome=outcome):
                return _called_back(outcome)
            case Pending(seconds=seconds):
                ctx.callbacks.wait(seconds)
            case Overdue():
                raise Retry(message="the endpoint did not call back in time", error_type="callback_timeout")
    body = await _body_of(ctx, request)
    address = await ctx.callbacks.issue() if request.completion == "callback" else None
    headers = await _headers_of(ctx, request, body, address)
    response = await _deliver(ctx, request, body, headers)
    if response.status_code == 202 and address is not None:
        await ctx.callbacks.promised(address, request.callback_timeout_seconds)
    return result_of(response, request.expect)


async def _deliver(
    ctx: TaskContext, request: HttpRequest, body: bytes | None, headers: dict[str, str]
) -> httpx.Response:
    """Act outside: the one call of this handler that somebody else sees. Raises what refuses, retries or gives up."""
    response = await ctx.http.request(
        request.method,
        request.url,
        headers=headers,
        content=body,
        timeout_seconds=request.timeout_seconds,
        follow_redirects=request.follow_redirects,
    )
    promised = request.completion == "callback" and response.status_code == 202
    if not promised and not request.expect.accepts(response.status_code):
        raise EndpointAnswered.of(response)
    return response


async def _body_of(ctx: TaskContext, request: HttpRequest) -> bytes | None:
    if request.body_ref is not None:
        return await ctx.input_bytes(request.body_ref)
    if "body" in request.model_fields_set:
        return json.dumps(request.body, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
    return None


async def _headers_of(
    ctx: TaskContext, request: HttpRequest, body: bytes | None, address: Address | None
) -> dict[str, str]:
    """Make the headers: the task's own, then ours, which a task cannot replace."""
    timestamp = int(time.time())
    ours = {
        "Idempotency-Key": idempotency_key_of(ctx.task_id),
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


def idempotency_key_of(task_id: str) -> str:
    """Give the key that is the same on every attempt; a hash, as no internal name should leave."""
    return sha256(f"http_request:{task_id}".encode()).hexdigest()


def _called_back(outcome: CallbackOutcome) -> Any:
    if outcome.error_type is None:
        return json.loads(outcome.result or "null")
    if outcome.retryable:
        raise Retry(message=outcome.error_message, error_type=outcome.error_type)
    raise DeadLetter(outcome.error_type, outcome.error_message)


@lru_cache(maxsize=1)
def opened() -> Allowed:
    """Give what the operator opened of private networks, read from the settings once per process."""
    return parse_allowed(load_settings().outbound.allowed_networks)
