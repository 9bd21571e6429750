"""One call of a tool, as a step: what it answered is kept, so that no later run makes it again.

A tool that changes something goes through the ledger, and before that through a person where it is destructive. Its
key names the task, the turn, the tool and the arguments. What it answered is kept inside the effect's call, before the
effect counts as had.
"""

import hashlib
import json
import re
import time
from collections.abc import Mapping
from typing import Any

from app.domain.errors import DeadLetter, ToolError
from app.domain.journal import NotJson, fingerprint, json_text
from app.domain.tool_output import cleaned, marked
from despacho import TaskContext
from workers.handlers.agent.remote import RemoteTool
from workers.handlers.agent.shelf import Shelf
from workers.handlers.agent.toolbox import AgentTool, timed
from workers.handlers.kept import kept

_NOT_IN_EFFECT_TYPES = re.compile(r"[^a-z0-9_.-]")
_CUT = "\n[… cut off: {left} more bytes]"
# What the ledger, the policy or a person says about one call, and the model may know: it can try something else.
_TOLD = {
    "effect_forbidden": "the policy does not allow this here",
    "invalid_approval": "this cannot be put before a person for approval; its arguments may be too long",
}


class Calling:
    """Makes the calls of one task."""

    def __init__(self, ctx: TaskContext, shelf: Shelf, tools: Mapping[str, AgentTool]) -> None:
        self._shelf = shelf
        self._most = shelf.settings.max_tool_output_bytes
        effects = [effect_type_of(name) for name in tools if shelf.is_effect(name)]
        destructive = [effect_type_of(name) for name in tools if shelf.is_destructive(name)]
        mcp: dict[str, tuple[str, ...]] = {}
        for tool in tools.values():
            if isinstance(tool, RemoteTool):
                mcp[tool.server] = (*mcp.get(tool.server, ()), tool.tool)
        self.ctx = ctx.narrowed(effects=effects, destructive=destructive, mcp=mcp)

    async def call(self, tool: AgentTool, arguments: Mapping[str, Any], turn: int, index: int) -> dict[str, Any]:
        """Call a tool, or give what an earlier run got: {"text", "error", "seconds", "findings"}."""

        async def do() -> dict[str, Any]:
            began = time.monotonic()
            try:
                told = await self._done(tool, arguments, turn, index)
            except ToolError as error:
                told = self._told(tool, error.message or "the tool refused", error=True)
            return {**told, "seconds": round(time.monotonic() - began, 3)}

        return dict(await self.ctx.step(f"tool {turn}.{index} {tool.name}", do))

    async def _done(self, tool: AgentTool, arguments: Mapping[str, Any], turn: int, index: int) -> dict[str, Any]:
        if not self._shelf.is_effect(tool.name):
            return self._told(tool, await timed(tool, self.ctx, arguments))
        try:
            return await self._acted(tool, arguments, turn, index)
        except DeadLetter as error:
            if error.error_type not in _TOLD:
                raise
            raise ToolError(_TOLD[error.error_type]) from None

    async def _acted(self, tool: AgentTool, arguments: Mapping[str, Any], turn: int, index: int) -> dict[str, Any]:
        await tool.prepare(self.ctx, arguments)
        effect_type = effect_type_of(tool.name)
        key = effect_key(self.ctx.task_id, turn, index, tool.name, arguments)
        if self._shelf.is_destructive(tool.name):
            detail = {"key": key, "tool": tool.name, "turn": turn, "arguments": arguments}
            await self.ctx.approval(effect_type, detail)
        answer = f"answer {turn}.{index} {tool.name}"

        async def acting(_: str, given: Mapping[str, Any], *, idempotency_key: str) -> str | None:
            value = await tool.run(self.ctx, given, idempotency_key)

            async def told() -> dict[str, Any]:
                return self._told(tool, value)

            await self.ctx.step(answer, told)
            return external_id_of(value)

        external_id = await self.ctx.effect(
            effect_type,
            key,
            acting,
            tool.name,
            arguments,
            call_timeout_seconds=tool.timeout_seconds,
            **tool.effect_terms,
        )
        # Where somebody else said that it happened (the outside system, a person), its id is all that is known.
        return await kept(self.ctx, answer) or self._told(tool, {"done": True, "id": external_id})

    def _told(self, tool: AgentTool, value: Any, *, error: bool = False) -> dict[str, Any]:
        """Write what the model is told: clean, bounded, marked as data. Raises ToolError for what no JSON can be."""
        try:
            clean = cleaned(value if isinstance(value, str) else _plain(value))
        except ValueError as unfit:
            raise ToolError(f"the tool's answer cannot be shown: {unfit}") from None
        text = clean.value if isinstance(clean.value, str) else json_text(clean.value)
        size = len(text.encode())
        if size > self._most:
            text = text.encode()[: self._most].decode("utf-8", "ignore") + _CUT.format(left=size - self._most)
        return {"text": text, "error": error, "findings": list(clean.findings)}


def _plain(value: Any) -> Any:
    """Make a JSON value of what a tool returned: a model's or dataclass's fields, a tuple's list."""
    try:
        return json.loads(json_text(value))
    except NotJson as error:
        # Half pairs, NaN and infinities are cleaned away; what is no JSON at all is refused there.
        if isinstance(value, dict | list | float):
            return value
        raise ValueError(str(error)) from None


def shown(source: str, outcome: Mapping[str, Any]) -> str:
    """Write an outcome for the conversation."""
    data = marked(source, outcome["text"])
    return f"The tool says that it did not do it:\n{data}" if outcome["error"] else data


def effect_type_of(name: str) -> str:
    """Give the type of a tool's effects: its name, as the policy and GET /v1/effects spell it."""
    spelled = _NOT_IN_EFFECT_TYPES.sub("_", name.lower())[:64]
    return spelled if spelled[:1].isalpha() else f"t{spelled}"[:64]


def effect_key(task_id: str, turn: int, index: int, name: str, arguments: Mapping[str, Any]) -> str:
    """Give the key of one effect: no other turn, tool or arguments have it."""
    digest = hashlib.sha256(fingerprint([name, arguments])).hexdigest()[:24]
    return f"agent:{task_id}:{turn}.{index}:{effect_type_of(name)}:{digest}"


def external_id_of(value: Any) -> str | None:
    """Find the id that an effect's answer has: a text, a number, or the member `id`."""
    found = value.get("id") if isinstance(value, Mapping) else getattr(value, "id", value)
    if isinstance(found, int) and not isinstance(found, bool):
        return str(found)
    return found[:200] if isinstance(found, str) else None
