"""The policy as values: classes, rules, limits, dependencies, budgets.

What a file must look like is `policy_file`; nothing here decides.

Class names exist in the policy and nowhere else in the code. A class's rank is its order in the file: 0 goes first.
`aging`, `may_preempt`, `on_saturation` and `contingency` are read and checked, so that a policy may already say them;
of these the release plan reads only `may_preempt` (whether a preemptible borrower is bound to leave), and promoting,
preempting and shedding are not acted upon.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from app.domain.budgets import Budget
from app.domain.conditions import Condition
from app.domain.dependencies import Dependency

DEFAULT_REASON = "DEFAULT"
DEFAULT_OVERRIDE_MAXIMUM_SECONDS = 86_400.0


class OnSaturation(StrEnum):
    """What happens to a submission when its class is full."""

    REFUSE = "refuse"
    DEFER = "defer"
    DOWNGRADE = "downgrade"


class LimitKind(StrEnum):
    """What a running cap or a pause may be laid on, beside a class."""

    TYPE = "type"
    TENANT = "tenant"
    GROUP = "group"
    DEPENDENCY = "dependency"


@dataclass(frozen=True, slots=True)
class Aging:
    """When a task that waits may rise to class `to`, and for which share of that class's releases at most."""

    after_seconds: float
    to: str
    or_due_share: float | None = None
    only_if_remaining_seconds: float = 0.0
    share: float = 0.2


@dataclass(frozen=True, slots=True)
class PriorityClass:
    """One class: its targets, its part of the seats (shares of 0 to 1) and how its work may be borrowed or lent.

    `reclaim_within_seconds` is the time in which a lent seat is back: who borrows must be bound to leave by then.
    `approve_within_seconds` is the target for deciding an approval that one of its tasks waits for; without it the
    approval is due when it expires. `republish_after_seconds` is how long a released task may stay unclaimed before its
    message is published again.
    """

    name: str
    rank: int
    owner: str
    start_within_seconds: float
    nominal: float
    maximum: float
    lendable: float
    reclaim_within_seconds: float
    republish_after_seconds: float
    valid_for_seconds: float | None = None
    max_attempts: int | None = None
    on_saturation: OnSaturation | None = None
    contingency: str | None = None
    may_preempt: frozenset[str] = frozenset()
    aging: Aging | None = None
    approve_within_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Rule:
    """One way into a class: when the condition holds, the task gets it, with this reason code."""

    reason_code: str
    priority_class: str
    when: str
    trusts: frozenset[str]
    condition: Condition = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Limit:
    """At most `concurrency` tasks in flight (released or running) for `on`, written `kind:name`."""

    kind: LimitKind
    name: str
    concurrency: int

    @property
    def on(self) -> str:
        """Spell the limit as the file and the answers do: `type:audit_site`."""
        return f"{self.kind}:{self.name}"


@dataclass(frozen=True, slots=True)
class EffectRule:
    """Whether effects of these types may be had by these tenants; an empty set means all, no condition means always."""

    reason_code: str
    allow: bool
    types: frozenset[str] = frozenset()
    tenants: frozenset[str] = frozenset()
    when: str | None = None
    condition: Condition | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Policy:
    """One version of the policy. `classes` are in rank order; `by_name` finds one; `document` is the file's text."""

    version: str
    owner: str
    default_class: str
    classes: tuple[PriorityClass, ...]
    rules: tuple[Rule, ...] = ()
    limits: tuple[Limit, ...] = ()
    document: str = field(default="", compare=False, repr=False, kw_only=True)
    effects: tuple[EffectRule, ...] = ()
    dependencies: tuple[Dependency, ...] = ()
    budgets: tuple[Budget, ...] = ()
    override_maximum_seconds: float = DEFAULT_OVERRIDE_MAXIMUM_SECONDS
    by_name: Mapping[str, PriorityClass] = field(init=False, compare=False, repr=False)
    _dependencies: Mapping[str, Dependency] = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "by_name", {one.name: one for one in self.classes})
        object.__setattr__(self, "_dependencies", {one.name: one for one in self.dependencies})

    def dependency(self, name: str) -> Dependency:
        """Give what the policy says of a dependency; of one that it does not name, the usual without limits."""
        return self._dependencies.get(name) or Dependency(name)

    def __hash__(self) -> int:
        return hash(self.version)
