"""The handler's input and result, and how scores become a result. Pure."""

from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator, model_validator
from pydantic_core import PydanticCustomError

from workers.handlers.classify_document.scoring import MAX_EVIDENCE, CategoryScore, Scores
from workers.handlers.classify_document.shelf import DEFAULT_NAME
from workers.handlers.classify_document.taxonomy import UNKNOWN, Taxonomy
from workers.handlers.llm_choices import known_settings

_CATEGORY_NAME = r"^[a-z][a-z0-9_]{0,63}$"


class ClassifyDocument(BaseModel):
    """Which document to classify, and how: exactly one of `document` and `text`."""

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

    document: str | None = Field(None, min_length=1, max_length=64, description="the input_ref of a stored document")
    text: str | None = Field(None, max_length=1_048_576, description="the text itself, instead of a stored document")
    engine: Literal["rules", "llm"] = Field(
        "rules", description="rules: scored keywords of a taxonomy, offline; llm: a model chooses among its categories"
    )
    taxonomy: str = Field(DEFAULT_NAME, pattern=r"^[a-z][a-z0-9_-]{0,63}$", description="name of the taxonomy")
    expected: str | None = Field(
        None, pattern=_CATEGORY_NAME, description="the declared category, to be compared with what the text shows"
    )
    provider: str | None = Field(None, min_length=1, max_length=64, description="for llm; default: the operator's")
    model: str | None = Field(None, min_length=1, max_length=200, description="for llm; default: the provider's")

    @field_validator("engine")
    @classmethod
    def _is_there(cls, value: str, info: ValidationInfo) -> str:
        settings = known_settings(info)
        if value == "llm" and settings is not None and (said := settings.refuses_provider(None)) is not None:
            raise PydanticCustomError("llm_not_configured", "{said}: use rules", {"said": said})
        return value

    @field_validator("provider", "model")
    @classmethod
    def _is_open(cls, value: str | None, info: ValidationInfo) -> str | None:
        if value is None:
            return value
        if info.data.get("engine") == "rules":
            raise PydanticCustomError("llm_not_allowed", "belongs to the engine llm")
        settings = known_settings(info)
        said = None
        if settings is not None and settings.providers:
            named = value if info.field_name == "provider" else info.data.get("provider")
            said = settings.refuses_provider(named) if info.field_name == "provider" else None
            said = said or (settings.refuses_model(named, value) if info.field_name == "model" else None)
        if said is not None:
            raise PydanticCustomError("llm_not_allowed", "{said}", {"said": said})
        return value

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if (self.document is None) == (self.text is None):
            raise ValueError("give exactly one of `document` (an input_ref) and `text`")
        return self


class Evidence(BaseModel):
    """One keyword that spoke for the category or (points below 0) against it."""

    keyword: str | None = Field(description="the keyword as the taxonomy writes it; null for a model's quote")
    snippet: str = Field(description="its first occurrence as the text has it, at most 80 characters")
    offset: int = Field(description="where that is, in characters from the beginning")
    count: int
    in_title: bool
    weight: float
    points: float = Field(description="what it added to the score, repeats and title counted in")


class RunnerUp(BaseModel):
    """The next best category."""

    category: str
    score: float


class Classification(BaseModel):
    """What a document is, why, and whether that agrees with what was declared."""

    category: str = Field(description="the best category, or `unknown` when none reaches the taxonomy's threshold")
    score: float = Field(description="points of the category; 0 for `unknown`")
    confidence: float = Field(
        ge=0,
        le=1,
        description="rules: how far it is above the threshold and ahead; llm: the share of its quotes that the "
        "document has; a rank, no probability",
    )
    language: str = Field(description="en, pt, es, fr, de or unknown")
    evidence: list[Evidence] = Field(description="strongest first, at most 12")
    runner_up: RunnerUp | None = None
    expected: str | None = None
    consistent: bool | None = Field(None, description="null when nothing was declared or nothing was recognised")
    alert: str | None = Field(None, description="what a person should look at; null when all is well")
    engine: Literal["rules", "llm"] = "rules"
    taxonomy_version: str
    characters: int
    examined_characters: int = Field(description="less than `characters` when only the beginning was read")
    provider: str | None = Field(None, description="of the engine llm, as what follows")
    model: str | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    repairs: int | None = Field(None, description="answers that did not fit at first")
    filters: str | None = Field(None, description="what the input filters said: passed, cleaned or flagged")


def classification(scores: Scores, *, taxonomy: Taxonomy, expected: str | None, characters: int) -> Classification:
    """Return the result for `scores`, compared with the `expected` category if there is one."""
    winner = scores.winner
    second = scores.runner_up
    return Classification(
        category=scores.category,
        score=winner.score if winner else 0.0,
        confidence=scores.confidence,
        language=scores.language,
        evidence=_evidence(winner) if winner else [],
        runner_up=RunnerUp(category=second.category, score=second.score) if second else None,
        expected=expected,
        consistent=None if expected is None or winner is None else winner.category == expected,
        alert=_alert(scores, expected),
        taxonomy_version=taxonomy.version,
        characters=characters,
        examined_characters=scores.examined_characters,
    )


def _evidence(winner: CategoryScore) -> list[Evidence]:
    return [
        Evidence(
            keyword=item.keyword,
            snippet=item.snippet,
            offset=item.offset,
            count=item.count,
            in_title=item.in_title,
            weight=item.weight,
            points=item.points,
        )
        for item in winner.evidence[:MAX_EVIDENCE]
    ]


def _alert(scores: Scores, expected: str | None) -> str | None:
    if expected is None or scores.category == expected:
        return None
    if scores.category == UNKNOWN:
        return f"declared as {expected}, but the text shows no known category"
    found = next((one.score for one in scores.ranked if one.category == expected), 0.0)
    score = scores.winner.score if scores.winner else 0.0
    return f"declared as {expected} ({found:g} points), but the text reads as {scores.category} ({score:g} points)"
