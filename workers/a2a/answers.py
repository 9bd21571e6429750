"""What another agent answered: the states as words, the parts as clean text and data."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from app.domain.errors import DeadLetter
from app.domain.tool_output import Cleaned, TooDeep, cleaned, marked, together

WORKING = frozenset({"unspecified", "submitted", "working"})
FAILURES = {
    "failed": ("delegation_failed", "the agent says that it failed"),
    "rejected": ("delegation_rejected", "the agent refused the work"),
    "canceled": ("delegation_cancelled", "the work was cancelled at the agent"),
    "input_required": ("delegation_input_required", "the agent asks for more than the message has"),
    "auth_required": ("delegation_auth_required", "the agent asks for other credentials"),
}
"""State of the remote task → error type and sentence. None of them is mended by asking again."""


@dataclass(frozen=True, slots=True)
class DelegatedAnswer:
    """What an agent answered. `data` holds its JSON parts; `findings` and `dropped` are as in ToolResult."""

    agent: str
    remote_task_id: str | None
    text: str
    data: tuple[Any, ...] = ()
    findings: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()

    def as_data(self) -> str:
        """Write the answer for a prompt: marked as data between marks that the answer cannot contain."""
        return marked(f"a2a/{self.agent}", self.text if self.text or not self.data else list(self.data))


def state_of(task: Any) -> str:
    """Name the state of a remote task in lower case."""
    from a2a.types.a2a_pb2 import TaskState

    try:
        return str(TaskState.Name(task.status.state)).removeprefix("TASK_STATE_").lower()
    except ValueError:
        return "unspecified"


def parts_of_task(task: Any) -> list[Any]:
    """Give the parts of the artifacts; where there are none, those of the last word."""
    found = [part for artifact in task.artifacts for part in artifact.parts]
    return found or list(task.status.message.parts)


def kept_answer(parts: Iterable[Any], max_bytes: int) -> dict[str, Any]:
    """Make of parts what the journal keeps. Raises DeadLetter (`delegation_answer_too_large`, `…_invalid_answer`)."""
    from google.protobuf.json_format import MessageToDict

    texts: list[Cleaned] = []
    values: list[Cleaned] = []
    dropped: set[str] = set()
    size = 0
    try:
        for part in parts:
            size += part.ByteSize()
            if size > max_bytes:
                raise DeadLetter(
                    "delegation_answer_too_large",
                    f"the agent's answer is larger than the {max_bytes} bytes that may be kept",
                )
            kind = part.WhichOneof("content")
            if kind == "text":
                texts.append(cleaned(part.text))
            elif kind == "data":
                values.append(cleaned(MessageToDict(part.data)))
            else:
                dropped.add(kind or "empty")
    except (TooDeep, ValueError, RecursionError) as error:
        raise DeadLetter("delegation_invalid_answer", f"the agent's answer cannot be kept: {error}") from None
    return {
        "text": "\n".join(one.value for one in texts),
        "data": [one.value for one in values],
        "findings": list(together([*texts, *values])),
        "dropped": sorted(dropped),
    }
