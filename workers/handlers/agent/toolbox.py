"""The tools of one agent: what the model is shown of each, and how a call of it is checked and made."""

import asyncio
import functools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from pydantic import ValidationError

from app.domain.errors import KnownFailure
from app.tools import DeclaredTool
from despacho import BlockingTaskContext, DeadLetter, Retry, TaskContext, ToolError
from workers.calls import invoke, is_async
from workers.handlers.agent.remote import RemoteTool
from workers.handlers.agent.request import AgentTask
from workers.handlers.agent.shelf import Shelf
from workers.llm.messages import Tool

READ_DOCUMENT, FINISH = "read_document", "finish"
_MOST_FAULTS = 10
_READ_TIMEOUT_SECONDS = 60.0


class AgentTool(Protocol):
    """One tool."""

    @property
    def name(self) -> str:
        """What tasks and operators call it."""
        ...

    async def shown(self, ctx: TaskContext) -> Tool:
        """Give what the model is shown, under a name that models can say."""
        ...

    @property
    def timeout_seconds(self) -> float:
        """How long a call may take."""
        ...

    @property
    def effect_terms(self) -> Mapping[str, Any]:
        """What `ctx.effect` is told beside the call, where the tool is an effect."""
        ...

    @property
    def repeatable(self) -> bool:
        """Whether an effect may happen twice in one task with the same arguments."""
        ...

    def faults(self, arguments: Mapping[str, Any]) -> Sequence[str]:
        """List what is wrong with arguments, without their values."""
        ...

    async def prepare(self, ctx: TaskContext, arguments: Mapping[str, Any]) -> None:
        """Do what can fail before an effect is reserved. Raises ToolError."""
        ...

    async def run(self, ctx: TaskContext, arguments: Mapping[str, Any], key: str | None) -> Any:
        """Call it; `key` is an effect's Idempotency-Key. Raises ToolError for what the model should be told."""
        ...


@dataclass(frozen=True, slots=True)
class OwnTool:
    """A function of the task modules."""

    declared: DeclaredTool

    @property
    def name(self) -> str:
        """Its name."""
        return self.declared.name

    async def shown(self, ctx: TaskContext) -> Tool:
        """Give what the model is shown."""
        return Tool(self.name, self.declared.description, self.declared.parameters())

    @property
    def timeout_seconds(self) -> float:
        """How long a call may take."""
        return self.declared.timeout_seconds

    @property
    def effect_terms(self) -> Mapping[str, Any]:
        """What it declares as an effect."""
        return {
            "reconcile": self.declared.reconcile,
            "honours_key_for_seconds": self.declared.honours_key_for_seconds,
        }

    @property
    def repeatable(self) -> bool:
        """Whether the same call may happen twice in one task."""
        return self.declared.repeatable

    def faults(self, arguments: Mapping[str, Any]) -> Sequence[str]:
        """List what is wrong with arguments, without their values."""
        try:
            self.declared.arguments.model_validate_json(json.dumps(arguments))
        except ValidationError as error:
            found = error.errors(include_url=False, include_context=False, include_input=False)[:_MOST_FAULTS]
            return [f"{'.'.join(str(part)[:64] for part in one['loc'])}: {one['msg'][:200]}" for one in found]
        return []

    async def prepare(self, ctx: TaskContext, arguments: Mapping[str, Any]) -> None:
        """There is nothing to prepare."""

    async def run(self, ctx: TaskContext, arguments: Mapping[str, Any], key: str | None) -> Any:
        """Call the function, with the context and the key where it takes them."""
        one = self.declared
        valid = one.arguments.model_validate_json(json.dumps(arguments))
        named = {name: getattr(valid, name) for name in type(valid).model_fields}
        if one.takes_key:
            named["idempotency_key"] = key
        if is_async(one.call):
            return await (one.call(ctx, **named) if one.takes_context else one.call(**named))
        given = (BlockingTaskContext(ctx, asyncio.get_running_loop()),) if one.takes_context else ()
        return await invoke(functools.partial(one.call, *given, **named))


@dataclass(frozen=True, slots=True)
class ReadDocument:
    """The documents of the task, by doc1, doc2 …, in portions."""

    references: Sequence[str]
    most_characters: int

    @property
    def name(self) -> str:
        """Its name."""
        return READ_DOCUMENT

    @property
    def timeout_seconds(self) -> float:
        """How long reading may take."""
        return _READ_TIMEOUT_SECONDS

    @property
    def effect_terms(self) -> Mapping[str, Any]:
        """It changes nothing."""
        return {}

    @property
    def repeatable(self) -> bool:
        """Reading twice does no harm."""
        return True

    async def shown(self, ctx: TaskContext) -> Tool:
        """Give what the model is shown."""
        names = {"type": "string", "enum": [f"doc{n}" for n in range(1, len(self.references) + 1)]}
        begin = {"type": "integer", "minimum": 0, "description": "where to begin, in characters; default 0"}
        return Tool(
            self.name,
            f"Read a document, {self.most_characters} characters at most at a time.",
            {"type": "object", "properties": {"document": names, "begin": begin}, "required": ["document"]},
        )

    def faults(self, arguments: Mapping[str, Any]) -> Sequence[str]:
        """List what is wrong with arguments."""
        found = []
        if not arguments.keys() <= {"document", "begin"}:
            found.append("the arguments: may hold document and begin")
        if arguments.get("document") not in [f"doc{n}" for n in range(1, len(self.references) + 1)]:
            found.append(f"document: should be doc1 to doc{len(self.references)}")
        begin = arguments.get("begin", 0)
        if not isinstance(begin, int) or isinstance(begin, bool) or begin < 0:
            found.append("begin: should be a whole number from 0")
        return found

    async def prepare(self, ctx: TaskContext, arguments: Mapping[str, Any]) -> None:
        """There is nothing to prepare."""

    async def run(self, ctx: TaskContext, arguments: Mapping[str, Any], key: str | None) -> Any:
        """Read one portion."""
        reference = self.references[int(arguments["document"].removeprefix("doc")) - 1]
        try:
            text = await ctx.input_text(reference)
        except DeadLetter as error:
            if error.error_type != "corrupted_input":
                raise
            raise ToolError("the document is not UTF-8 text") from None
        begin = arguments.get("begin", 0)
        portion = text[begin : begin + self.most_characters]
        after = begin + len(portion)
        more = f"; go on with begin {after}" if after < len(text) else ""
        return f"[characters {min(begin, len(text))} to {after} of {len(text)}{more}]\n{portion}"


def toolbox(task: AgentTask, shelf: Shelf) -> dict[str, AgentTool]:
    """Give the tools of a task but `finish`, by name; one that the operator has taken away meanwhile is not there."""
    found: dict[str, AgentTool] = {}
    for name in task.wanted:
        if name == READ_DOCUMENT:
            found[name] = ReadDocument(task.documents, max(100, shelf.settings.max_tool_output_bytes // 4 - 100))
        elif name in shelf.declared:
            found[name] = OwnTool(shelf.declared[name])
        elif name in shelf.remote:
            found[name] = RemoteTool(name)
    return found


async def timed(tool: AgentTool, ctx: TaskContext, arguments: Mapping[str, Any]) -> Any:
    """Call a tool that changes nothing, within its time. Raises ToolError for whatever the model should be told."""
    running = asyncio.ensure_future(tool.run(ctx, arguments, None))
    running.add_done_callback(_heard)
    try:
        await asyncio.wait({running}, timeout=tool.timeout_seconds)
    finally:
        if not running.done():
            running.cancel()
    if not running.done() or running.cancelled():
        raise ToolError(f"the tool did not answer within {tool.timeout_seconds:g} seconds")
    try:
        return running.result()
    except (ToolError, DeadLetter, Retry, KnownFailure):
        raise
    except Exception as error:
        # Its text may hold anything; its kind is enough to try something else.
        raise ToolError(f"the tool failed ({type(error).__name__})") from error


def _heard(running: "asyncio.Future[Any]") -> None:
    if not running.cancelled():
        running.exception()
