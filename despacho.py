"""The public names: for people who write task types, and for programs that submit tasks.

    from despacho import DeadLetter, Retry, TaskContext, task_type

    @task_type("greet", timeout_seconds=10)
    async def greet(ctx: TaskContext, person: Person) -> Greeting: ...

`async def` handlers run on the worker's loop; plain `def` handlers run in a thread (or in a child process with
`executor="process"`) and get a `BlockingTaskContext`. List the module in DESPACHO_TASK_MODULES.

    from despacho import Client

    with Client() as client:                                    # DESPACHO_URL, DESPACHO_KEY
        print(client.submit("greet", {"name": "Ana"}).result(wait=60))

Neither side pays for the other: a name is loaded when it is asked for.
"""

import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeVar

if TYPE_CHECKING:
    from app.client import (
        NO_RETRIES,
        ApiError,
        AsyncClient,
        AsyncTaskHandle,
        Client,
        DespachoError,
        Handle,
        Refused,
        ResultWithheld,
        Retries,
        StillRunning,
        Task,
        TaskCancelled,
        TaskExpired,
        TaskFailed,
        TaskHandle,
        TaskRejected,
        TaskSuperseded,
        UnexpectedAnswer,
        Unreachable,
        Unsendable,
        WrongConfiguration,
    )
    from app.domain.approvals import Approval
    from app.domain.errors import DeadLetter, NotAccepted, NotSent, Retry, ToolError
    from app.domain.input_filters import Filtered, InputFilter, Verdict
    from app.domain.llm import Answer, LlmFailure
    from workers.blocking_context import BlockingTaskContext
    from workers.context import TaskContext
    from workers.documents import Document
    from workers.llm.messages import Message, Tool

__all__ = [
    "NO_RETRIES",
    "Answer",
    "ApiError",
    "Approval",
    "AsyncClient",
    "AsyncTaskHandle",
    "BlockingTaskContext",
    "Client",
    "DeadLetter",
    "DespachoError",
    "Document",
    "Filtered",
    "Handle",
    "LlmFailure",
    "Message",
    "NotAccepted",
    "NotSent",
    "Refused",
    "ResultWithheld",
    "Retries",
    "Retry",
    "StillRunning",
    "Task",
    "TaskCancelled",
    "TaskContext",
    "TaskExpired",
    "TaskFailed",
    "TaskHandle",
    "TaskRejected",
    "TaskSuperseded",
    "Tool",
    "ToolError",
    "UnexpectedAnswer",
    "Unreachable",
    "Unsendable",
    "Verdict",
    "WrongConfiguration",
    "task_type",
    "tool",
]

# Where the names are that are loaded when they are asked for; all others are the client's.
_HOMES = {
    "Answer": "app.domain.llm",
    "Approval": "app.domain.approvals",
    "BlockingTaskContext": "workers.blocking_context",
    "DeadLetter": "app.domain.errors",
    "Document": "workers.documents",
    "Filtered": "app.domain.input_filters",
    "LlmFailure": "app.domain.llm",
    "Message": "workers.llm.messages",
    "NotAccepted": "app.domain.errors",
    "NotSent": "app.domain.errors",
    "Retry": "app.domain.errors",
    "TaskContext": "workers.context",
    "Tool": "workers.llm.messages",
    "ToolError": "app.domain.errors",
    "Verdict": "app.domain.input_filters",
}

H = TypeVar("H", bound=Callable[..., Any])


def task_type(
    name: str,
    *,
    description: str | None = None,
    max_attempts: int = 5,
    timeout_seconds: float = 300.0,
    cost_class: Literal["short", "medium", "long"] = "medium",
    preemptible: bool = False,
    executor: Literal["async", "thread", "process"] | None = None,
    depends_on: tuple[str, ...] | list[str] = (),
    effects: tuple[str, ...] | list[str] | None = None,
    destructive: tuple[str, ...] | list[str] = (),
    backoff_base_seconds: float = 5.0,
    backoff_cap_seconds: float = 900.0,
    approval_expires_seconds: float | None = None,
    process: Mapping[str, Any] | None = None,
    secrets: tuple[str, ...] | list[str] = (),
    input_filters: "Sequence[str | InputFilter] | None" = None,
    mcp: Mapping[str, Sequence[str]] | None = None,
) -> Callable[[H], H]:
    """Declare a handler as the task type `name`.

    The handler takes the context and, if it wants one, the input; its annotations give the input's and result's
    schemas. `effects` lists the effect types that it may have (default: any), `destructive` those that need an approval
    of that very action; `approval_expires_seconds` is how long an approval that it asks for stays open. `process`
    registers facts that policy rules may look at (contract_sla_s …); `secrets` names what `ctx.secret` may give: each
    must be there before a run starts; `input_filters` look at documents before a prompt gets them; `mcp` names the
    tools that `ctx.mcp` may call, by server. Raises TypeError or ValueError at import when the declaration cannot work.
    """

    # Loaded here and not above: a program that only submits tasks has no use for any of it.
    import inspect
    import typing

    from pydantic import TypeAdapter

    from app.domain.task_types import CostClass, Executor, TaskTypeSpec
    from app.task_modules import MARK, TaskType, schema_field_names

    def declare(handler: H) -> H:
        is_async = inspect.iscoroutinefunction(handler)
        chosen = Executor(executor) if executor else (Executor.ASYNC if is_async else Executor.THREAD)
        if (chosen is Executor.ASYNC) != is_async:
            raise TypeError(
                f"{name}: an async def handler runs with executor='async', a plain def with 'thread' or 'process'"
            )
        parameters = list(inspect.signature(handler).parameters.values())
        if not 1 <= len(parameters) <= 2:
            raise TypeError(f"{name}: the handler should take the context and, if it wants one, the input")
        hints = typing.get_type_hints(handler)
        takes_input = len(parameters) == 2
        input_adapter: TypeAdapter[Any] = TypeAdapter(
            hints.get(parameters[1].name, Any) if takes_input else dict[str, Any] | None
        )
        result = hints.get("return", Any)
        summary = description if description is not None else (inspect.getdoc(handler) or "").partition("\n\n")[0]
        spec = TaskTypeSpec(
            name=name,
            description=summary,
            max_attempts=max_attempts,
            timeout_seconds=timeout_seconds,
            cost_class=CostClass(cost_class),
            preemptible=preemptible,
            executor=chosen,
            depends_on=tuple(depends_on),
            effects=None if effects is None else tuple(effects),
            destructive=tuple(destructive),
            backoff_base_seconds=backoff_base_seconds,
            backoff_cap_seconds=backoff_cap_seconds,
            approval_expires_seconds=approval_expires_seconds,
            process=dict(process or {}),
            secrets=tuple(secrets),
            input_filters=None if input_filters is None else tuple(input_filters),
            mcp={server: tools if isinstance(tools, str) else tuple(tools) for server, tools in (mcp or {}).items()},
        )
        declared = TaskType(
            spec,
            handler,
            takes_input,
            input_adapter,
            None if result is Any else TypeAdapter(result),
            schema_field_names(input_adapter.json_schema()),
        )
        setattr(handler, MARK, declared)
        return handler

    return declare


def tool(
    name: str,
    *,
    description: str | None = None,
    effect: bool = False,
    destructive: bool = False,
    repeatable: bool = False,
    timeout_seconds: float = 30.0,
    reconcile: Callable[..., Any] | None = None,
    honours_key_for_seconds: float = 0.0,
) -> Callable[[H], H]:
    """Declare a function as a tool that `agent` tasks may use, where the operator allows it (DESPACHO_AGENT__TOOLS).

    Its typed arguments are the schema that the model is shown; a first parameter `ctx` gets the context. What it
    returns (JSON) is told to the model as data; `raise ToolError("…")` tells that it did nothing, and why. `effect`: it
    changes something outside, and goes through the ledger; what it returns (a text, or the member `id`) is the id that
    is kept, a parameter `idempotency_key` gets the key to send along, and `reconcile` and `honours_key_for_seconds` are
    those of `ctx.effect`. `destructive`: a person approves each call first. `repeatable`: the same call with the same
    arguments may happen twice in one task. Raises TypeError or ValueError at import when it cannot work.
    """
    from app.tools import TOOL_MARK, declared

    def declare(function: H) -> H:
        made = declared(
            name,
            function,
            description=description,
            effect=effect,
            destructive=destructive,
            repeatable=repeatable,
            timeout_seconds=timeout_seconds,
            reconcile=reconcile,
            honours_key_for_seconds=honours_key_for_seconds,
        )
        setattr(function, TOOL_MARK, made)
        return function

    return declare


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(importlib.import_module(_HOMES.get(name, "app.client")), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
