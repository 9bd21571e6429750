"""Loading task types: modules are named by the settings and imported here, never statically.

`@task_type` (in `despacho.py`) leaves a `TaskType` on the function; loading a module collects them. Nothing registers
itself globally, so two registries can live in one process.
"""

import importlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import TypeAdapter, ValidationError

from app.domain.task_types import TaskTypeSpec
from app.tools import load_tools, tools_in

BUILT_IN_MODULES = (
    "workers.handlers.agent",
    "workers.handlers.classify_document",
    "workers.handlers.extract_fields",
    "workers.handlers.http_request",
    "workers.handlers.llm_completion",
)
MARK = "__despacho_task_type__"


class TaskModuleError(Exception):
    """A task module cannot be used; the text names the module and what is wrong."""


@dataclass(frozen=True, slots=True)
class TaskType:
    """A task type with its handler and the adapters for its input and result."""

    spec: TaskTypeSpec
    handler: Callable[..., Any]
    takes_input: bool
    input_adapter: TypeAdapter[Any]
    result_adapter: TypeAdapter[Any] | None
    field_names: frozenset[str]
    """Every field that the input's schema spells, at any depth: the only names an error may point at."""

    def input_schema(self) -> dict[str, Any]:
        """Give the JSON Schema of the input."""
        return self.input_adapter.json_schema()

    def result_schema(self) -> dict[str, Any]:
        """Give the JSON Schema of the result ({} when the handler declares none)."""
        return self.result_adapter.json_schema(mode="serialization") if self.result_adapter else {}

    def validate_input(self, text: str | bytes | None, known: Mapping[str, Any] | None = None) -> Any:
        """Parse and validate exact JSON text. Raises pydantic's ValidationError.

        `known` is what a submission knows beside the input (`llm`: the settings); validators find it as their context.
        """
        return self.input_adapter.validate_json(text if text is not None else b"null", context=known)

    def encode_result(self, value: Any) -> str:
        """Turn what the handler returned into exact JSON text.

        Raises ValueError or TypeError when it is not JSON: NaN, infinities, lone surrogates, foreign objects.
        """
        if value is not None and self.result_adapter is not None:
            value = self.result_adapter.dump_python(value, mode="json", warnings="error")
        elif hasattr(value, "model_dump"):
            value = value.model_dump(mode="json")
        if value is None:
            return "null"
        encoded = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        encoded.encode()
        return encoded


def schema_field_names(schema: object) -> frozenset[str]:
    """Collect the property names of a JSON Schema, at any depth."""
    names: set[str] = set()
    if isinstance(schema, dict):
        properties = schema.get("properties")
        if isinstance(properties, dict):
            names.update(str(name) for name in properties)
        for value in schema.values():
            names |= schema_field_names(value)
    elif isinstance(schema, list):
        for value in schema:
            names |= schema_field_names(value)
    return frozenset(names)


class Registry(Mapping[str, TaskType]):
    """The task types that a process knows, by name."""

    def __init__(self, types: Iterable[TaskType]) -> None:
        self._types: dict[str, TaskType] = {}
        for task_type in types:
            name = task_type.spec.name
            if name in self._types and self._types[name].handler is not task_type.handler:
                raise TaskModuleError(f"task type {name!r} is declared twice: rename one of them")
            self._types[name] = task_type

    def __getitem__(self, name: str) -> TaskType:
        return self._types[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._types)

    def __len__(self) -> int:
        return len(self._types)


def load(modules: Sequence[str]) -> Registry:
    """Import the built-in and the named modules and collect their task types.

    Raises TaskModuleError with the module's name when one cannot be imported or declares none.
    """
    found: list[TaskType] = []
    for name in (*BUILT_IN_MODULES, *modules):
        try:
            module = importlib.import_module(name)
        except Exception as error:
            raise TaskModuleError(
                f"DESPACHO_TASK_MODULES: {name!r} cannot be imported ({type(error).__name__}): "
                "it should be an importable module with @task_type functions"
            ) from error
        declared = [getattr(value, MARK) for value in vars(module).values() if hasattr(value, MARK)]
        if not declared and not tools_in(module):
            raise TaskModuleError(
                f"DESPACHO_TASK_MODULES: {name!r} declares no task type and no tool: decorate one with @task_type"
            )
        found.extend(declared)
    try:
        load_tools(modules)
    except ValueError as error:
        raise TaskModuleError(f"DESPACHO_TASK_MODULES: {error}") from None
    return Registry(found)


__all__ = ["BUILT_IN_MODULES", "Registry", "TaskModuleError", "TaskType", "ValidationError", "load"]
