"""The tools as data: names, schemas, hints. What they do is in `calling.py`."""

from dataclasses import dataclass
from typing import Any

Schema = dict[str, Any]
_TEXT: Schema = {"type": "string", "minLength": 1, "maxLength": 256}
_TASK: Schema = {**_TEXT, "description": "The id of the task, task_…"}
_SECONDS: Schema = {"type": "number", "minimum": 0, "maximum": 50}


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """One tool. `reads`: it changes nothing; `idempotent`: calling it twice does no more than once."""

    name: str
    title: str
    description: str
    properties: Schema
    required: tuple[str, ...] = ()
    reads: bool = False
    destructive: bool = False
    idempotent: bool = False

    @property
    def input_schema(self) -> Schema:
        """Give the schema of the arguments."""
        return {
            "type": "object",
            "properties": self.properties,
            "required": list(self.required),
            "additionalProperties": False,
        }


TOOLS: tuple[ToolSpec, ...] = (
    ToolSpec(
        "submit_task",
        "Submit a task",
        "Hand a task to the queue. Once this answers, the task is kept and will end. Give an idempotency_key so that"
        " calling again makes no second task; list_task_types tells the types and the schemas of their inputs.",
        {
            "type": {**_TEXT, "description": "The task type."},
            "input": {"description": "The input, as the type's schema has it."},
            "idempotency_key": {**_TEXT, "description": "The same key and task again is the same task."},
            "group": _TEXT,
            "requested_class": _TEXT,
            "supersede_key": _TEXT,
            "not_before": {**_TEXT, "format": "date-time"},
            "due_at": {**_TEXT, "format": "date-time"},
            "valid_until": {**_TEXT, "format": "date-time"},
            "metadata": {"type": "object"},
            "wait_seconds": {**_SECONDS, "description": "Answer when it has ended, or after so many seconds."},
        },
        ("type",),
        idempotent=False,
    ),
    ToolSpec(
        "get_task",
        "Read a task",
        "Tell how a task stands: status, progress, result or error.",
        {"task_id": _TASK},
        ("task_id",),
        reads=True,
        idempotent=True,
    ),
    ToolSpec(
        "wait_for_task",
        "Wait for a task",
        "Wait until a task has ended, for at most timeout_seconds (30 unless said), and tell how it stands then."
        " A task that goes on after that is no error: `is_final` says so; call again.",
        {"task_id": _TASK, "timeout_seconds": _SECONDS},
        ("task_id",),
        reads=True,
        idempotent=True,
    ),
    ToolSpec(
        "list_task_types",
        "List task types",
        "List what this installation can do, with the schemas of inputs and results.",
        {"name": {**_TEXT, "description": "Only this type."}},
        reads=True,
        idempotent=True,
    ),
    ToolSpec(
        "list_dead_letters",
        "List dead letters",
        "List tasks that could not be done, newest first, with why.",
        {
            "error_type": _TEXT,
            "type": _TEXT,
            "limit": {"type": "integer", "minimum": 1, "maximum": 200, "description": "At most so many; 20."},
        },
        reads=True,
        idempotent=True,
    ),
    ToolSpec(
        "reprocess_dead_letter",
        "Do a dead letter again",
        "Give a dead-lettered task a fresh attempt budget and put it back into the queue.",
        {"task_id": _TASK, "reason": {**_TEXT, "maxLength": 500, "description": "Why; kept in the audit trail."}},
        ("task_id", "reason"),
        destructive=True,
    ),
)

BY_NAME = {one.name: one for one in TOOLS}
