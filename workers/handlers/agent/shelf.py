"""What an agent of this installation may use: the operator's list of tools, held against those that there are."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from app.agent_task_settings import AgentSettings
from app.settings import load_settings
from app.tools import BUILT_IN_TOOLS, DeclaredTool, load_tools

_ALL = "*"


@dataclass(frozen=True, slots=True)
class Shelf:
    """The tools that tasks may name, and the operator's limits. `remote` are tools of MCP servers, as server.tool."""

    settings: AgentSettings
    declared: Mapping[str, DeclaredTool]
    remote: frozenset[str]

    @property
    def names(self) -> list[str]:
        """List what a task may name."""
        return sorted({*BUILT_IN_TOOLS, *self.declared, *self.remote})

    def is_effect(self, name: str) -> bool:
        """Say whether a tool changes something outside."""
        own = self.declared.get(name)
        return (own is not None and own.effect) or name in self.settings.effect_tools or self.is_destructive(name)

    def is_destructive(self, name: str) -> bool:
        """Say whether each call of a tool needs an approval."""
        own = self.declared.get(name)
        return (own is not None and own.destructive) or name in self.settings.destructive_tools


def shelf_of(settings: AgentSettings, declared: Mapping[str, DeclaredTool]) -> Shelf:
    """Choose of the declared tools those that the operator allows."""
    allowed = set(settings.tools)
    own = {name: one for name, one in declared.items() if _ALL in allowed or name in allowed}
    return Shelf(settings, own, frozenset(name for name in allowed if "." in name))


@lru_cache(maxsize=1)
def shelf() -> Shelf:
    """Give what the operator allows, read from the settings once per process."""
    settings = load_settings()
    return shelf_of(settings.agent, load_tools(settings.task_modules))
