"""The task type `http_request`: delivers a task to an HTTP endpoint, so that handlers can be written in any language.

The endpoint answers with the result, or with 202 and calls back later; meanwhile the task holds no worker. How a
delivery is made, once, is in `http_delivery.py`.
"""

import json
from functools import lru_cache
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator
from pydantic_core import PydanticCustomError

from app.domain.addresses import AddressForbidden, Allowed, check_url, parse_allowed
from app.domain.callbacks import CallbackOutcome, Called, Overdue, Pending, Standing, Undelivered
from app.domain.secret_names import SECRET_NAME
from app.settings import load_settings
from despacho import DeadLetter, Retry, TaskContext, task_type
from workers.handlers.http_answer import Expectation
from workers.handlers.http_delivery import EFFECT_TYPE, delivered
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
    delivery: Literal["at_least_once", "at_most_once"] = Field(
        "at_least_once",
        description="whether a delivery of which nobody knows whether the endpoint took it is repeated, with the same"
        " Idempotency-Key and webhook-id, or ends as `effect_in_doubt` for a person to look at",
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
    effects=[EFFECT_TYPE],
)
async def http_request(ctx: TaskContext, request: HttpRequest) -> Any:
    """Deliver one task. Dead-letters what retrying cannot mend: `forbidden_address`, `http_4xx`, `invalid_response`."""
    if request.completion == "response":
        return (await delivered(ctx, request, "delivery 1"))["result"]
    found = await ctx.callbacks.standing()
    if isinstance(found, Undelivered):
        # A delivery that came to nothing is followed by another one, with another key: where only the endpoint's own
        # word may lead to a second one, those that it did not give back do not count.
        spent = found.over if request.delivery == "at_least_once" else found.returned
        answer = await delivered(ctx, request, f"delivery {1 + spent}")
        if answer["status"] != 202:
            return answer["result"]
        found = await ctx.callbacks.standing(delivered=True)
    return _awaited(ctx, request, found)


def _awaited(ctx: TaskContext, request: HttpRequest, found: Standing) -> Any:
    """Give what was called back, or the worker back until it is. Raises what a failed delivery means."""
    match found:
        case Called(outcome=outcome):
            return _called_back(outcome)
        case Pending(seconds=seconds):
            return ctx.callbacks.wait(seconds)
        case Overdue() if request.delivery == "at_least_once":
            raise Retry(message="the endpoint did not call back in time", error_type="callback_timeout")
        case Overdue():
            raise DeadLetter("callback_timeout", "the endpoint took the delivery and did not call back in time")
        case Undelivered():
            raise DeadLetter(
                "delivered_before",
                "the endpoint took the delivery in an earlier life of the task, and it is delivered at most once: "
                "submit another task to have it delivered again",
            )


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
