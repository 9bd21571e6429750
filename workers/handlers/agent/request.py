"""What an agent is asked to do, and what it gives back."""

from decimal import Decimal
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, field_validator, model_validator
from pydantic_core import PydanticCustomError

from app.domain.journal import NotJson, json_text
from app.tools import BUILT_IN_TOOLS
from workers.handlers.agent.schemas import schema_fault
from workers.handlers.agent.shelf import shelf

_MOST_SCHEMA_BYTES = 64 * 1024
_DEFAULT_TURNS, _DEFAULT_TOKENS, _DEFAULT_SECONDS = 20, 200_000, 900.0

StopReason = Literal[
    "finished", "text_answer", "turn_limit", "token_limit", "cost_limit", "time_limit", "no_progress", "refused"
]
Reference = Annotated[str, StringConstraints(min_length=1, max_length=200)]


class AgentTask(BaseModel):
    """A goal, what may be used to reach it, and what it may take at most."""

    model_config = ConfigDict(extra="forbid")

    goal: str = Field(min_length=1, max_length=50_000, description="what is to be reached; the model follows it")
    documents: list[Reference] = Field(
        default_factory=list, max_length=100, description="stored texts that the agent may read, as doc1, doc2 …"
    )
    tools: list[str] = Field(
        default_factory=list,
        max_length=64,
        description="of the tools that the operator allows; `finish` is always there",
    )
    provider: str | None = Field(None, max_length=64)
    model: str | None = Field(None, max_length=200)
    system: str | None = Field(None, max_length=50_000, description="more instructions for the model")
    prompt: str | None = Field(
        None,
        max_length=100,
        description="a prompt file instead of agent@1; its variables: goal, instructions, documents",
    )
    result_schema: dict[str, Any] | None = Field(
        None, description="JSON schema of the result; without it the answer is a text"
    )
    max_turns: int | None = Field(None, ge=1, description="model calls; default: 20")
    max_tokens: int | None = Field(None, ge=1, description="tokens read and written; default: 200,000")
    max_cost_usd: Decimal | None = Field(None, gt=0, allow_inf_nan=False, max_digits=20)
    max_seconds: float | None = Field(
        None, gt=0, allow_inf_nan=False, description="time in models and tools, waiting for people not counted"
    )
    max_output_tokens: int | None = Field(None, ge=1, le=1_000_000, description="of one answer of the model")
    on_limit: Literal["result", "fail"] = Field(
        "result", description="how a task ends that meets a limit: with a result that says so, or as a dead letter"
    )

    @field_validator("tools")
    @classmethod
    def _are_allowed(cls, tools: list[str]) -> list[str]:
        names = shelf().names
        if not set(tools) <= set(names):
            why = f"should be tools that are allowed here (DESPACHO_AGENT__TOOLS): {', '.join(names)}"
            raise PydanticCustomError("unknown_tool", "{why}", {"why": why})
        return list(dict.fromkeys(tools))

    @field_validator("result_schema")
    @classmethod
    def _is_a_schema(cls, schema: dict[str, Any] | None) -> dict[str, Any] | None:
        if schema is None:
            return None
        try:
            too_long = len(json_text(schema)) > _MOST_SCHEMA_BYTES
        except NotJson:
            too_long = True
        if too_long:
            raise PydanticCustomError("invalid_schema", "should be JSON of at most 64 KiB")
        if fault := schema_fault(schema):
            raise PydanticCustomError("invalid_schema", "{why}", {"why": fault})
        return schema

    @model_validator(mode="after")
    def _within_what_may_be_asked(self) -> "AgentTask":
        settings = shelf().settings
        for name in ("max_turns", "max_tokens", "max_cost_usd", "max_seconds"):
            given, most = getattr(self, name), getattr(settings, name)
            if given is not None and given > most:
                raise PydanticCustomError(
                    "above_the_limit",
                    "{name} should be at most {most} (DESPACHO_AGENT__{upper})",
                    {"name": name, "most": str(most), "upper": name.upper()},
                )
        return self

    @property
    def wanted(self) -> list[str]:
        """Name the tools, those that are built in where they have a use included."""
        own = [name for name in self.tools if name not in BUILT_IN_TOOLS]
        return [*(["read_document"] if self.documents else []), *own, "finish"]

    @property
    def turns(self) -> int:
        """Give the most model calls."""
        return self.max_turns or min(_DEFAULT_TURNS, shelf().settings.max_turns)

    @property
    def tokens(self) -> int:
        """Give the most tokens."""
        return self.max_tokens or min(_DEFAULT_TOKENS, shelf().settings.max_tokens)

    @property
    def cost_usd(self) -> Decimal:
        """Give the most money."""
        return self.max_cost_usd or shelf().settings.max_cost_usd

    @property
    def seconds(self) -> float:
        """Give the most seconds in models and tools."""
        return self.max_seconds or min(_DEFAULT_SECONDS, shelf().settings.max_seconds)


class ToolUse(BaseModel):
    """How one tool was used. `findings` name what was cleaned away from its answers, or looks like an instruction."""

    name: str
    calls: int
    errors: int
    findings: list[str] = []


class Usage(BaseModel):
    """What all model calls of the task took; `unpriced_calls` are not in `cost_usd`."""

    calls: int
    input_tokens: int
    output_tokens: int
    cost_usd: Decimal
    unpriced_calls: int


class AgentResult(BaseModel):
    """What came of it: `answer` (text) or `result` (by the schema), both null where a limit was met."""

    answer: str | None
    result: Any
    stop_reason: StopReason
    turns: int
    tools: list[ToolUse]
    usage: Usage
