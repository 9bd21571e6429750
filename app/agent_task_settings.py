"""The settings of `agent` tasks: which tools they may use, and the most that one task may ask for."""

from decimal import Decimal
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, field_validator
from pydantic_settings import NoDecode

Names = Annotated[list[str], NoDecode]


class AgentSettings(BaseModel):
    """What tasks of the type `agent` may use and ask for."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    tools: Names = Field(
        default_factory=list,
        description="comma-separated tools that tasks may name, beside read_document and finish: @tool functions of the"
        " task modules by name (* means all of them), tools of MCP servers as server.tool",
    )
    effect_tools: Names = Field(
        default_factory=list,
        description="of these, tools of MCP servers that change something outside: they go through the ledger",
    )
    destructive_tools: Names = Field(
        default_factory=list, description="of these, tools that need a person's approval each time, whoever made them"
    )
    max_turns: int = Field(50, ge=1, le=100, description="most model calls that one task may ask for")
    max_tokens: int = Field(1_000_000, ge=1, description="most tokens, read and written, that one task may ask for")
    max_cost_usd: Decimal = Field(
        Decimal(5), gt=0, allow_inf_nan=False, description="most money that one task may ask for"
    )
    max_seconds: float = Field(
        3600.0, gt=0, allow_inf_nan=False, description="most time in models and tools that one task may ask for"
    )
    max_calls_per_turn: int = Field(8, ge=1, le=32, description="tools that one answer of the model may call")
    max_identical_calls: int = Field(3, ge=1, le=50, description="the same call once more ends the task as no_progress")
    max_tool_output_bytes: int = Field(
        32 * 1024, ge=256, le=512 * 1024, description="what a model is told of one tool's answer; the rest is cut off"
    )

    @field_validator("tools", "effect_tools", "destructive_tools", mode="before")
    @classmethod
    def _split_names(cls, value: object) -> object:
        return [one.strip() for one in value.split(",") if one.strip()] if isinstance(value, str) else value
