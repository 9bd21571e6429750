"""What a key may do: scopes, and the roles that name sets of them for people."""

from enum import StrEnum


class Scope(StrEnum):
    """One right of a key; the values are part of the REST contract."""

    TASKS_WRITE = "tasks:write"
    TASKS_READ = "tasks:read"
    PAYLOADS_READ = "payloads:read"
    PRIORITY_CLAIM = "priority:claim"
    PRIORITY_OVERRIDE = "priority:override"
    PRIORITY_READ = "priority:read"
    PRIORITY_WRITE = "priority:write"
    DEAD_LETTERS_READ = "dead_letters:read"
    DEAD_LETTERS_REPROCESS = "dead_letters:reprocess"
    DEAD_LETTERS_PURGE = "dead_letters:purge"
    EFFECTS_READ = "effects:read"
    EFFECTS_RESOLVE = "effects:resolve"
    APPROVALS_READ = "approvals:read"
    APPROVALS_DECIDE = "approvals:decide"
    OPERATE = "operate"
    METRICS_READ = "metrics:read"
    ADMIN = "admin"


class Role(StrEnum):
    """A set of scopes under a name."""

    SUBMITTER = "submitter"
    READER = "reader"
    OPERATOR = "operator"
    APPROVER = "approver"
    ADMIN = "admin"


_READER = frozenset(
    {
        Scope.TASKS_READ,
        Scope.DEAD_LETTERS_READ,
        Scope.EFFECTS_READ,
        Scope.APPROVALS_READ,
        Scope.PRIORITY_READ,
        Scope.METRICS_READ,
    }
)

# Nobody but an admin gets `priority:claim` or `dead_letters:purge` with a role: they are given one by one.
ROLES: dict[Role, frozenset[Scope]] = {
    Role.SUBMITTER: frozenset(
        {Scope.TASKS_WRITE, Scope.TASKS_READ, Scope.PAYLOADS_READ, Scope.PRIORITY_READ, Scope.METRICS_READ}
    ),
    Role.READER: _READER,
    Role.OPERATOR: _READER
    | {
        Scope.TASKS_WRITE,
        Scope.OPERATE,
        Scope.DEAD_LETTERS_REPROCESS,
        Scope.EFFECTS_RESOLVE,
        Scope.PRIORITY_OVERRIDE,
    },
    Role.APPROVER: frozenset({Scope.TASKS_READ, Scope.APPROVALS_READ, Scope.APPROVALS_DECIDE}),
    Role.ADMIN: frozenset(Scope),
}
