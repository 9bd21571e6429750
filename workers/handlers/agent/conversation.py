"""What is said between an agent and its model: the opening, the model's turns, and what it is told of them."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from app.domain.llm import ToolCall
from workers.handlers.agent.schemas import finish_parameters
from workers.handlers.agent.toolbox import FINISH
from workers.llm.messages import Message, Tool
from workers.llm.prompts import Prompt
from workers.llm.providers.openai_compatible import tool_call

TOLD_FAILURES: Mapping[str, str] = {
    "empty_answer": "Your answer was empty. Call a tool, or call finish.",
    "truncated": "Your answer was cut off at the limit of its length. Say less at a time, and call a tool or finish.",
    "refused": "You refused. If the goal cannot be reached, call finish and say why.",
    "content_filter": "A filter stopped your answer. Go another way, or call finish and say why not.",
}
"""Answers of a model that are no use, and what it is told of them; other failures of calls are the task's."""
TEXT_ONLY = "Call a tool, or call finish with the answer: text alone does nothing."
LAST_TURN = "This is your last turn: call finish now."
TOO_MANY = "Not done: too many calls at once."
_NOT_SPOKEN = re.compile(r"[^A-Za-z0-9_-]")


@dataclass(frozen=True, slots=True)
class Opening:
    """How a conversation begins; kept by the first run, so that no later one says it in other words."""

    messages: Sequence[Message]
    tools: Sequence[Tool]
    named: Mapping[str, str]
    """The tools' names by the names that the model says."""

    def kept(self) -> dict[str, Any]:
        """Spell it as JSON."""
        return {
            "messages": [[one.role, one.text] for one in self.messages],
            "tools": [[one.name, one.description, dict(one.parameters)] for one in self.tools],
            "named": dict(self.named),
        }


def opening_of(spelled: Mapping[str, Any]) -> Opening:
    """Read what `kept` spelled."""
    return Opening(
        [Message(role, text) for role, text in spelled["messages"]],
        [Tool(name, description, parameters) for name, description, parameters in spelled["tools"]],
        spelled["named"],
    )


def opening(
    prompt: Prompt, goal: str, instructions: str, documents: int, shown: Mapping[str, Tool],
    result_schema: Mapping[str, Any] | None, *, salt: str,
) -> Opening:  # fmt: skip
    """Make the beginning of a conversation. Raises LlmFailure (`prompt_invalid`)."""
    listed = ", ".join(f"doc{n}" for n in range(1, documents + 1))
    known = {
        "goal": goal,
        "instructions": instructions,
        "documents": f"Documents to read with read_document: {listed}" if documents else "",
    }
    # A prompt of one's own need not have all of them; one that it has beyond them is missing, which its error says.
    values = {name: value for name, value in known.items() if name in prompt.variables}
    finish = Tool(FINISH, "End the work with its answer.", finish_parameters(result_schema))
    return Opening(
        prompt.render(values, salt=salt),
        [*shown.values(), finish],
        {one.name: name for name, one in shown.items()},
    )


@dataclass(frozen=True, slots=True)
class Reply:
    """A model's turn as it is kept: text and calls, or the kind of an answer that is no use."""

    text: str
    calls: Sequence[ToolCall]
    failure: str | None
    seconds: float


def reply_of(spelled: Mapping[str, Any], turn: int) -> Reply:
    """Read a kept turn. The calls get ids of our own: those of models come twice, or not at all."""
    calls = [tool_call(f"t{turn}_{n}", name, raw) for n, (name, raw) in enumerate(spelled["calls"], 1)]
    return Reply(spelled["text"], calls, spelled["failure"], spelled["seconds"])


def repeated(reply: Reply) -> Message:
    """Give the model its own turn back, in a form that every provider takes: names and arguments without faults."""
    calls = tuple(
        ToolCall(
            call.id,
            _NOT_SPOKEN.sub("_", call.name)[:64] or "unknown",
            {} if call.arguments is None else call.arguments,
            "{}" if call.arguments is None or not call.raw.strip() else call.raw,
        )
        for call in reply.calls
    )
    return Message("assistant", reply.text, calls)


@dataclass(slots=True)
class Tally:
    """What has been counted over the turns of this run; a later run counts the same again."""

    seconds: float = 0.0
    fruitless: int = 0
    """Turns in a row in which nothing that the model said could be used."""
    same: dict[str, int] = field(default_factory=dict)
    acted: dict[str, tuple[int, str]] = field(default_factory=dict)
    """The effects that were had: by tool and arguments, in which turn and with which answer."""
    calls: dict[str, int] = field(default_factory=dict)
    errors: dict[str, int] = field(default_factory=dict)
    findings: dict[str, set[str]] = field(default_factory=dict)

    def note(self, name: str, outcome: Mapping[str, Any]) -> None:
        """Count a call."""
        self.seconds += outcome["seconds"]
        self.calls[name] = self.calls.get(name, 0) + 1
        self.errors[name] = self.errors.get(name, 0) + bool(outcome["error"])
        self.findings.setdefault(name, set()).update(outcome["findings"])
