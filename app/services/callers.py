"""Who calls: the identity behind a key, with its rights; an Actor for every service."""

from dataclasses import dataclass

from app.domain.scopes import Scope


@dataclass(frozen=True, slots=True)
class Caller:
    """The holder of a key. `tenant_id` is None for a platform key; `subject` is the person or program behind it."""

    key_id: str
    tenant_id: str | None
    scopes: frozenset[str]
    subject: str

    @property
    def is_platform(self) -> bool:
        """Say whether the key belongs to the platform and sees every tenant."""
        return self.tenant_id is None

    def may(self, scope: Scope) -> bool:
        """Say whether the key has `scope`."""
        return scope in self.scopes
