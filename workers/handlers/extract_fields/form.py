"""The handler's input and result. Pure."""

from typing import Annotated, Any, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from app.domain.answer_schemas import SchemaProblem, check_schema
from workers.handlers.llm_choices import ModelName, ProviderName


def checked_schema(schema: dict[str, Any]) -> dict[str, Any]:
    """Check a schema that was submitted; the error names the place inside of it."""
    try:
        check_schema(schema)
    except SchemaProblem as problem:
        raise PydanticCustomError(
            "schema_problem", "{message}", {"pointer": problem.pointer, "message": problem.message}
        ) from None
    return schema


AnswerSchema = Annotated[dict[str, Any], AfterValidator(checked_schema)]


class ExtractFields(BaseModel):
    """Which document to read, and which fields to take out of it: exactly one of `document` and `text`."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        json_schema_extra={
            "oneOf": [
                {"required": ["document"], "properties": {"document": {"type": "string"}}},
                {"required": ["text"], "properties": {"text": {"type": "string"}}},
            ]
        },
    )

    document: str | None = Field(
        None, min_length=1, max_length=64, description="the input_ref of a stored document: text, HTML or PDF"
    )
    text: str | None = Field(None, min_length=1, max_length=1_048_576, description="the text itself, instead")
    fields_schema: AnswerSchema = Field(
        alias="schema",
        description="JSON schema of the fields: an object with properties; see the README for the subset",
    )
    instructions: str | None = Field(None, max_length=4000, description="what to look out for; for the model")
    language: str | None = Field(
        None, pattern=r"^[A-Za-z]{2,3}(-[A-Za-z0-9]{2,8})*$", description="of texts in the result"
    )
    provider: ProviderName = None
    model: ModelName = None

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if (self.document is None) == (self.text is None):
            raise PydanticCustomError("one_source", "give exactly one of document (an input_ref) and text")
        return self


class Quote(BaseModel):
    """What the model quotes for a field."""

    quote: str | None = Field(description="null where it quoted nothing")
    verified: bool = Field(description="whether the document really has it (spacing and case aside)")


class Extraction(BaseModel):
    """The fields, and how much they can be relied on."""

    fields: dict[str, Any] = Field(description="fits the schema, but for what is missing")
    missing: list[str] = Field(description="fields that the document does not tell, as JSON Pointers")
    missing_required: list[str] = Field(description="those of them that the schema requires")
    evidence: dict[str, Quote] = Field(description="by field: a quote, checked to occur in the document")
    unverified: list[str] = Field(description="fields with a value and without a quote that the document has")
    pages: int | None = Field(description="of a PDF")
    characters: int
    parts: int = Field(description="in how many parts it was read, at most `parts_in_all`")
    parts_in_all: int
    provider: str
    model: str
    input_tokens: int
    output_tokens: int
    repairs: int = Field(description="answers that did not fit at first")
    filters: str = Field(description="what the input filters said: passed, cleaned or flagged")
