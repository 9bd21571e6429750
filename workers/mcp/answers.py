"""What a tool answered: clean, bounded, typed."""

import json
from dataclasses import dataclass
from typing import Any

from app.domain.tool_output import Cleaned, TooDeep, cleaned, marked, together
from workers.mcp.errors import ToolRefused


@dataclass(frozen=True, slots=True)
class ToolInfo:
    """A tool as its server describes it; the texts are the server's own, so they are data, too."""

    name: str
    description: str
    input_schema: dict[str, Any]
    read_only: bool | None = None
    destructive: bool | None = None


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What a tool answered. `texts` are its text parts; `structured` is its JSON, or None.

    `is_error`: the tool itself says that it failed. `findings` name what was cleaned away, and `injection_marks` where
    a text reads like an instruction; `dropped` names the kinds of parts that are no text (images, sound, files).
    """

    server: str
    tool: str
    texts: tuple[str, ...]
    structured: Any
    is_error: bool
    findings: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """Give all text parts, with a line between them."""
        return "\n".join(self.texts)

    def as_data(self) -> str:
        """Write the answer for a prompt: marked as data between marks that the answer cannot contain."""
        value = self.text if self.texts or self.structured is None else self.structured
        return marked(f"{self.server}/{self.tool}", value)


def answer_of(server: str, tool: str, result: Any, max_bytes: int) -> ToolResult:
    """Make the answer of the SDK's result. Raises ToolRefused where it is too large or too deep."""
    texts: list[Cleaned] = []
    dropped: set[str] = set()
    try:
        for part in result.content:
            if part.type == "text":
                texts.append(cleaned(part.text))
            elif part.type == "resource" and isinstance(getattr(part.resource, "text", None), str):
                texts.append(cleaned(part.resource.text))
            else:
                dropped.add(str(part.type))
        structured = cleaned(result.structured_content)
        kept = sum(len(one.value.encode()) for one in texts) + len(json.dumps(structured.value).encode())
    except (TooDeep, ValueError, RecursionError) as error:
        raise ToolRefused("mcp_invalid_answer", f"the answer of {server}/{tool} cannot be kept: {error}") from None
    if kept > max_bytes:
        raise ToolRefused(
            "mcp_answer_too_large", f"the answer of {server}/{tool} has {kept} bytes; at most {max_bytes} may be kept"
        )
    return ToolResult(
        server,
        tool,
        tuple(one.value for one in texts),
        structured.value,
        bool(result.is_error),
        together([*texts, structured]),
        tuple(sorted(dropped)),
    )


def info_of(tool: Any) -> ToolInfo:
    """Make the description of a tool."""
    hints = tool.annotations
    return ToolInfo(
        name=tool.name,
        description=str(cleaned(tool.description or "").value)[:4000],
        input_schema=cleaned(tool.input_schema).value,
        read_only=None if hints is None else hints.read_only_hint,
        destructive=None if hints is None else hints.destructive_hint,
    )
