"""The settings of what is looked at before a document reaches a prompt, and of how its text is taken out of it."""

from pydantic import BaseModel, ConfigDict, Field, field_validator

from app.domain.input_filters import BUILT_IN, DEFAULTS


class FilterSettings(BaseModel):
    """Which input filters run where a task type names none, and where they say stop."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    default: list[str] = Field(
        list(DEFAULTS),
        description=f"input filters of types that name none, in this order; known: {', '.join(BUILT_IN)}",
    )
    max_document_bytes: int = Field(
        20 * 1024 * 1024, ge=1024, description="`size`: a larger document is refused before anything reads it"
    )
    max_characters: int = Field(2_000_000, ge=100, description="`size`: a document with more text is refused")
    content_types: list[str] = Field(
        ["text/*", "application/json", "application/xml", "application/pdf", "application/octet-stream"],
        description="`content_type`: another one is refused; type/* stands for all of them",
    )
    injection_flag_score: float = Field(
        4.0, gt=0, allow_inf_nan=False, description="`injection`: flagged from this score on"
    )
    injection_refuse_score: float | None = Field(
        None, gt=0, allow_inf_nan=False, description="`injection`: refused from this score on; not set: never"
    )
    presidio_language: str = Field("en", pattern=r"^[a-z]{2}$", description="`presidio`: the language of its models")
    presidio_min_score: float = Field(0.5, ge=0, le=1, description="`presidio`: what it is less sure of stays")
    max_pages: int = Field(500, ge=1, le=100_000, description="of a PDF; more of them are a failure")
    extraction_seconds: float = Field(
        60.0, gt=0, le=3600, allow_inf_nan=False, description="to take the text out of a PDF or HTML document"
    )
    extraction_memory_bytes: int = Field(
        1024**3, ge=128 * 1024**2, description="memory of the process that takes the text out"
    )
    extractions: int = Field(2, ge=1, le=64, description="taken out at the same time, per process")

    @field_validator("default")
    @classmethod
    def _known_filters(cls, value: list[str]) -> list[str]:
        if not set(value) <= set(BUILT_IN):
            raise ValueError(f"should be names of: {', '.join(BUILT_IN)}")
        return value
