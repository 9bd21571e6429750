"""The public names for people who write task types.

    from despacho import DeadLetter, Retry, TaskContext, task_type

    @task_type("greet", timeout_seconds=10)
    async def greet(ctx: TaskContext, person: Person) -> Greeting: ...

`async def` handlers run on the worker's loop; plain `def` handlers run in a thread (or in a child process with
`executor="process"`) and get a `BlockingTaskContext`. List the module in DESPACHO_TASK_MODULES.
"""

import inspect
import typing
from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeVar

from pydantic import TypeAdapter

from app.domain.errors import DeadLetter, Retry
from app.domain.task_types import CostClass, Executor, TaskTypeSpec
from app.task_modules import MARK, TaskType, schema_field_names
from workers.context import BlockingTaskContext, TaskContext

__all__ = ["BlockingTaskContext", "DeadLetter", "Retry", "TaskContext", "task_type"]

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
    backoff_base_seconds: float = 5.0,
    backoff_cap_seconds: float = 900.0,
    process: Mapping[str, Any] | None = None,
    secrets: tuple[str, ...] | list[str] = (),
) -> Callable[[H], H]:
    """Declare a handler as the task type `name`.

    The handler takes the context and, if it wants one, the input; its annotations give the input's and result's
    schemas. `process` registers facts that policy rules may look at (contract_sla_s …); `secrets` names what
    `ctx.secret` may give: each must be there before a run starts. Raises TypeError or ValueError at import when the
    declaration cannot work.
    """

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
            backoff_base_seconds=backoff_base_seconds,
            backoff_cap_seconds=backoff_cap_seconds,
            process=dict(process or {}),
            secrets=tuple(secrets),
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
