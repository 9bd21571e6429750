"""What a task type is: its name, its limits and the registered facts that decisions may use. No handler code here."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from app.domain.effects import EFFECT_TYPE
from app.domain.secret_names import SECRET_NAME


class CostClass(StrEnum):
    """How much capacity a task of a type takes, roughly; a tenant's virtual time advances by its weight."""

    SHORT = "short"
    MEDIUM = "medium"
    LONG = "long"


COST_WEIGHTS: dict[CostClass, float] = {CostClass.SHORT: 1.0, CostClass.MEDIUM: 4.0, CostClass.LONG: 16.0}


class Executor(StrEnum):
    """Where a handler runs: on the worker's loop, in a thread, or in a child process."""

    ASYNC = "async"
    THREAD = "thread"
    PROCESS = "process"


TYPE_NAME = re.compile(r"^[a-z][a-z0-9_.-]{0,63}$")


def _is_tool_name(name: object) -> bool:
    return isinstance(name, str) and 0 < len(name) <= 256 and name.isprintable()


@dataclass(frozen=True, slots=True)
class TaskTypeSpec:
    """The declared properties of a task type. Durations are in seconds; `process` holds its registered facts.

    `approval_expires_seconds` is how long an approval that its handler asks for stays open; None: as the settings say.
    `effects` are the only effect types that it may have (None: any); those in `destructive` need an approval each.
    `secrets` names the secrets that its handler may read; `mcp` the tools that it may call, by MCP server.
    """

    name: str
    description: str = ""
    max_attempts: int = 5
    timeout_seconds: float = 300.0
    cost_class: CostClass = CostClass.MEDIUM
    preemptible: bool = False
    executor: Executor = Executor.ASYNC
    depends_on: tuple[str, ...] = ()
    effects: tuple[str, ...] | None = None
    destructive: tuple[str, ...] = ()
    backoff_base_seconds: float = 5.0
    backoff_cap_seconds: float = 900.0
    approval_expires_seconds: float | None = None
    process: Mapping[str, Any] = field(default_factory=dict)
    secrets: tuple[str, ...] = ()
    mcp: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Check the declaration. Raises ValueError that names the field and what it should be."""
        if not TYPE_NAME.match(self.name):
            raise ValueError(
                f"task type name {self.name!r}: it should be 1 to 64 of a-z, 0-9, _, . and -, starting with a letter"
            )
        for effect_type in (*(self.effects or ()), *self.destructive):
            if not EFFECT_TYPE.fullmatch(effect_type):
                raise ValueError(
                    f"{self.name}: effects and destructive should be effect types of 1 to 64 of a-z, 0-9, _, . and -"
                )
        if self.effects is not None and not set(self.destructive) <= set(self.effects):
            raise ValueError(f"{self.name}: destructive should name only types that effects names")
        if not all(SECRET_NAME.fullmatch(name) for name in self.secrets):
            raise ValueError(
                f"{self.name}: secrets should be names of a letter and then up to 63 letters, digits, _ or -"
            )
        if not all(
            isinstance(server, str) and server and not isinstance(tools, str) and all(map(_is_tool_name, tools))
            for server, tools in self.mcp.items()
        ):
            raise ValueError(
                f'{self.name}: mcp should map names of servers to lists of tools, such as {{"files": ["read_file"]}}'
            )
        if not 1 <= self.max_attempts <= 100:
            raise ValueError(f"{self.name}: max_attempts should be from 1 to 100")
        if not 0 < self.timeout_seconds <= 7 * 86400:
            raise ValueError(f"{self.name}: timeout_seconds should be above 0 and at most 604800 (7 days)")
        if not 0 < self.backoff_base_seconds <= self.backoff_cap_seconds <= 86400:
            raise ValueError(
                f"{self.name}: backoff_base_seconds should be above 0 and at most backoff_cap_seconds (at most 86400)"
            )
        expires = self.approval_expires_seconds
        if expires is not None and not 0 < expires <= 366 * 86400:
            raise ValueError(f"{self.name}: approval_expires_seconds should be above 0 and at most 31622400 (366 days)")
