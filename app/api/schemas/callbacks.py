"""What a callback says, and what it is answered."""

from typing import Annotated

import msgspec
from pydantic import Field, StringConstraints, model_validator
from pydantic_core import PydanticCustomError

from app.api.schemas.common import Body, Json
from app.domain.callbacks import ERROR_TYPE


class CallbackError(Body):
    """Why the receiver could not do what was asked."""

    type: Annotated[
        str,
        StringConstraints(pattern=f"^{ERROR_TYPE.pattern}$"),
        Field(description="a short name to group by", examples=["card_declined"]),
    ]
    message: Annotated[str, StringConstraints(max_length=2000)] = ""
    retryable: Annotated[bool, Field(description="whether the task shall be delivered again")] = False


class CallbackBody(Body):
    """How the work ended: either a `result` (any JSON, null included) or an `error`."""

    result: Annotated[Json, Field(description="the task's result")] = None
    error: CallbackError | None = None

    @model_validator(mode="after")
    def _one_of_both(self) -> "CallbackBody":
        given = self.model_fields_set & {"result", "error"}
        if len(given) != 1 or (given == {"error"} and self.error is None):
            raise PydanticCustomError("one_of_both", "should hold either `result` or `error`")
        return self


class CallbackAnswer(msgspec.Struct, frozen=True):
    """The call was recorded; the task goes on."""

    task_id: str
