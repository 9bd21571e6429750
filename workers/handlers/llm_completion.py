"""The task type `llm_completion`: one question to a model, as a prompt file, a text or messages, with a document.

Only what the operator opens can be chosen (`DESPACHO_LLM__SUBMITTERS__…`): providers, models, prompts, own words.
"""

from decimal import Decimal
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationInfo, field_validator, model_validator
from pydantic_core import PydanticCustomError

from despacho import DeadLetter, Document, Message, TaskContext, task_type
from workers.handlers.extract_fields.form import AnswerSchema
from workers.handlers.llm_choices import ModelName, ProviderName, check_choices, known_settings, sum_tokens
from workers.llm.json_shape import JsonShape
from workers.llm.prompts import with_data

_MOST_VARIABLES = 50
Scalar = Annotated[str, StringConstraints(max_length=200_000)] | int | float | bool


class ChatMessage(BaseModel):
    """One message of a conversation."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    role: Literal["system", "user", "assistant"]
    content: str = Field(max_length=200_000)


class LlmCompletion(BaseModel):
    """What to ask: exactly one of `prompt`, `text` and `messages`."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        json_schema_extra={
            "oneOf": [
                {"required": [name], "properties": {name: {"type": kind}}}
                for name, kind in (("prompt", "string"), ("text", "string"), ("messages", "array"))
            ]
        },
    )

    prompt: str | None = Field(
        None, pattern=r"^[a-z][a-z0-9_.-]{0,63}@[1-9][0-9]{0,8}$", description="a prompt file: <name>@<version>"
    )
    text: str | None = Field(None, min_length=1, max_length=1_000_000, description="the question in own words")
    messages: list[ChatMessage] | None = Field(
        None, min_length=1, max_length=200, description="a conversation in own words; the last message is the user's"
    )
    variables: dict[str, Scalar] = Field(
        default_factory=dict, max_length=_MOST_VARIABLES, description="values of the prompt's variables; marked as data"
    )
    document: str | None = Field(
        None, min_length=1, max_length=64,
        description="the input_ref of a document (text, HTML, PDF): the prompt's variable `document`, or marked data "
        "after the text or messages",
    )  # fmt: skip
    answer_schema: AnswerSchema | None = Field(
        None, alias="schema", description="JSON schema that the answer should fit; the result is `json` then"
    )
    provider: ProviderName = None
    model: ModelName = None
    max_output_tokens: int | None = Field(None, ge=1, le=1_000_000)
    temperature: float | None = Field(None, ge=0, le=2, allow_inf_nan=False)

    @field_validator("prompt")
    @classmethod
    def _is_open(cls, value: str | None, info: ValidationInfo) -> str | None:
        settings = known_settings(info)
        if value is not None and settings is not None and (said := settings.refuses_prompt(value)) is not None:
            raise PydanticCustomError("llm_not_allowed", "{said}", {"said": said})
        return value

    @field_validator("text", "messages")
    @classmethod
    def _may_be_said(cls, value: Any, info: ValidationInfo) -> Any:
        settings = known_settings(info)
        if value is not None and settings is not None and not settings.submitters.own_words:
            raise PydanticCustomError("llm_not_allowed", "own words are not open to tasks here: name a prompt")
        return value

    @model_validator(mode="after")
    def _one_question(self) -> Self:
        if sum(one is not None for one in (self.prompt, self.text, self.messages)) != 1:
            raise PydanticCustomError("one_question", "give exactly one of prompt, text and messages")
        if self.variables and self.prompt is None:
            raise PydanticCustomError("one_question", "variables belong to a prompt")
        if self.messages is not None and self.messages[-1].role != "user":
            raise PydanticCustomError("one_question", "the last message should be the user's")
        if self.document is not None and "document" in self.variables:
            raise PydanticCustomError("one_question", "give the document, or a variable of that name, not both")
        return self


class Usage(BaseModel):
    """What the answer took; a repaired one both turns."""

    input_tokens: int
    output_tokens: int
    cached_tokens: int
    cost_usd: str | None = Field(description="exact; null where no price is known")


class Completion(BaseModel):
    """The answer: `text`, or `json` where a schema was given."""

    model_config = ConfigDict(populate_by_name=True, serialize_by_alias=True)

    text: str | None = None
    json_value: Any = Field(None, serialization_alias="json", description="fits the schema")
    provider: str
    model: str = Field(description="as the provider told it")
    prompt: str | None = Field(description="the prompt's name and version")
    stop_reason: str
    usage: Usage
    repairs: int = Field(description="answers that did not fit at first: 0 or 1")
    filters: str | None = Field(description="what the input filters said of the document; null without one")


@task_type(
    "llm_completion",
    description="One question to a model: a prompt file, a text or messages, with a document and a schema if wanted.",
    max_attempts=5,
    timeout_seconds=1800,
    cost_class="medium",
)
async def llm_completion(ctx: TaskContext, asked: LlmCompletion) -> Completion:
    """Ask once; what was answered is not paid for again by a retry."""
    settings = check_choices(ctx, asked.provider, asked.model, asked.prompt)
    if asked.prompt is None and not settings.submitters.own_words:
        raise DeadLetter("llm_not_allowed", "own words are not open to tasks here: name a prompt")
    document = None if asked.document is None else await ctx.document(asked.document)
    variables = {name: await _filtered(ctx, name, value) for name, value in asked.variables.items()}
    if document is not None:
        variables["document"] = document
    turn = await ctx.llm.exchange(
        asked.prompt or _messages(ctx, asked, document),
        returns=None if asked.answer_schema is None else JsonShape(asked.answer_schema),
        provider=asked.provider,
        model=asked.model,
        max_output_tokens=asked.max_output_tokens,
        temperature=asked.temperature,
        variables=variables,
    )
    answers = [*turn.before, turn.answer]
    read, written = sum_tokens(answers)
    costs = [one.cost_usd for one in answers]
    return Completion(
        text=turn.answer.text if asked.answer_schema is None else None,
        json_value=turn.value,
        provider=turn.answer.provider,
        model=turn.answer.model,
        prompt=asked.prompt,
        stop_reason=turn.answer.stop_reason.value,
        usage=Usage(
            input_tokens=read,
            output_tokens=written,
            cached_tokens=sum(one.tokens.cached for one in answers),
            cost_usd=None if None in costs else str(sum((one for one in costs if one is not None), Decimal(0))),
        ),
        repairs=len(turn.before),
        filters=None if document is None else document.verdict.value,
    )


async def _filtered(ctx: TaskContext, name: str, value: Scalar) -> Any:
    """Have the filters look at a text; one that the prompt takes as it is stays a text."""
    return (await ctx.filtered(value, f"variable {name}")).text if isinstance(value, str) else value


def _messages(ctx: TaskContext, asked: LlmCompletion, document: Document | None) -> list[Message]:
    said = asked.messages or [ChatMessage(role="user", content=asked.text or "")]
    messages = [Message(one.role, one.content) for one in said]
    return messages if document is None else list(with_data(messages, "document", document.text, salt=ctx.task_id))
