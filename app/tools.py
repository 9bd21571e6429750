"""Tools that engineers declare for agents: functions whose typed arguments are the schema that a model is shown.

`@tool` (in `despacho.py`) leaves a `DeclaredTool` on the function; the modules of DESPACHO_TASK_MODULES are searched
for them. Nothing registers itself globally.
"""

import importlib
import inspect
import re
import typing
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import isfinite
from typing import Any

from pydantic import BaseModel, ConfigDict, create_model

from app.domain.effects import MAXIMUM_CALL_SECONDS, MAXIMUM_HONOURS_SECONDS

TOOL_MARK = "__despacho_tool__"
TOOL_NAME = re.compile(r"[a-z][a-z0-9_]{0,63}")
BUILT_IN_TOOLS = ("read_document", "finish")
_CONTEXT, _KEY = "ctx", "idempotency_key"


@dataclass(frozen=True, slots=True)
class DeclaredTool:
    """One tool. `takes_context` and `takes_key` say what its function is given beside its arguments."""

    name: str
    description: str
    call: Callable[..., Any]
    arguments: type[BaseModel]
    takes_context: bool
    takes_key: bool
    effect: bool
    destructive: bool
    repeatable: bool
    timeout_seconds: float
    reconcile: Callable[..., Any] | None
    honours_key_for_seconds: float

    def parameters(self) -> dict[str, Any]:
        """Give the JSON schema of the arguments."""
        return self.arguments.model_json_schema()


def declared(
    name: str,
    call: Callable[..., Any],
    *,
    description: str | None,
    effect: bool,
    destructive: bool,
    repeatable: bool,
    timeout_seconds: float,
    reconcile: Callable[..., Any] | None,
    honours_key_for_seconds: float,
) -> DeclaredTool:
    """Make a tool of a function. Raises TypeError or ValueError that says what the declaration should be."""
    if not TOOL_NAME.fullmatch(name) or name in BUILT_IN_TOOLS:
        raise ValueError(
            f"tool {name!r}: its name should be 1 to 64 of a-z, 0-9 and _, starting with a letter, and none of "
            + ", ".join(BUILT_IN_TOOLS)
        )
    said = description if description is not None else (inspect.getdoc(call) or "").strip()
    if not said:
        raise ValueError(f"tool {name}: a description or a docstring should tell the model what it is for")
    if not (isfinite(timeout_seconds) and 0 < timeout_seconds <= MAXIMUM_CALL_SECONDS):
        raise ValueError(f"tool {name}: timeout_seconds should be above 0 and at most {MAXIMUM_CALL_SECONDS:.0f}")
    if not 0 <= honours_key_for_seconds <= MAXIMUM_HONOURS_SECONDS:
        raise ValueError(f"tool {name}: honours_key_for_seconds should be from 0 to {MAXIMUM_HONOURS_SECONDS:.0f}")
    acts = effect or destructive
    if not acts and (reconcile is not None or honours_key_for_seconds or repeatable):
        raise ValueError(f"tool {name}: reconcile, honours_key_for_seconds and repeatable are for effects")
    parameters = list(inspect.signature(call).parameters.values())
    takes_context = bool(parameters) and parameters[0].name == _CONTEXT
    fields = parameters[1:] if takes_context else parameters
    takes_key = any(one.name == _KEY for one in fields)
    if takes_key and not acts:
        raise ValueError(f"tool {name}: only an effect is given an {_KEY}")
    return DeclaredTool(
        name,
        said[:4000],
        call,
        _model(name, call, [one for one in fields if one.name != _KEY]),
        takes_context,
        takes_key,
        acts,
        destructive,
        repeatable,
        timeout_seconds,
        reconcile,
        honours_key_for_seconds,
    )


def _model(name: str, call: Callable[..., Any], parameters: list[inspect.Parameter]) -> type[BaseModel]:
    hints = typing.get_type_hints(call, include_extras=True)
    fields: dict[str, Any] = {}
    for one in parameters:
        if one.kind not in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY):
            raise TypeError(f"tool {name}: its arguments should have names of their own, not *{one.name}")
        if one.name not in hints:
            raise TypeError(f"tool {name}: the argument {one.name} should have a type")
        fields[one.name] = (hints[one.name], ... if one.default is one.empty else one.default)
    try:
        made: type[BaseModel] = create_model(f"{name}_arguments", __config__=ConfigDict(extra="forbid"), **fields)
        made.model_json_schema()
    except Exception as error:
        raise TypeError(f"tool {name}: its arguments cannot be a JSON schema ({type(error).__name__})") from error
    return made


def tools_in(module: Any) -> list[DeclaredTool]:
    """List the tools that a module has."""
    return [getattr(value, TOOL_MARK) for value in vars(module).values() if hasattr(value, TOOL_MARK)]


def load_tools(modules: Iterable[str]) -> dict[str, DeclaredTool]:
    """Collect the tools of modules, by name. Raises ValueError when two tools have one name, and ImportError."""
    found: dict[str, DeclaredTool] = {}
    for module in modules:
        for one in tools_in(importlib.import_module(module)):
            if found.setdefault(one.name, one).call is not one.call:
                raise ValueError(f"tool {one.name!r} is declared twice: rename one of them")
    return found
