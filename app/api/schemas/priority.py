"""The policy, its versions, and classes explained, as they come in and go out."""

from datetime import datetime
from typing import Annotated, Literal

import msgspec
from pydantic import Field, JsonValue, StringConstraints, model_validator

from app.api.schemas.common import Body, Instant, Json, Label


class PolicyDocument(Body):
    """A version of the policy as TOML; `dry_run` only shows what it would change."""

    document: Annotated[str, Field(examples=['version = "2026-12-01.1"\nowner = "platform-ops"\n…'])]
    dry_run: bool = False


class PolicyVersion(msgspec.Struct, frozen=True):
    """One version, without its text."""

    version: str
    owner: str
    author: str
    created_at: datetime
    in_force: bool


class PolicyPage(msgspec.Struct, frozen=True):
    """The versions, newest first."""

    items: list[PolicyVersion]
    next_page_token: str | None


class PolicyAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A version with its TOML text, which platform keys see (it may name tenants).

    `refused_version` is a newer version that this release cannot read: the one in force goes on to rule.
    """

    version: str
    owner: str
    author: str
    created_at: datetime
    in_force: bool
    classes: list[str]
    document: str | None
    refused_version: str | None


class MovedTasks(msgspec.Struct, frozen=True, rename={"before": "from", "after": "to"}):
    """How many of the tasks that were looked at have `from` now and would have `to`; examples are task ids."""

    before: str
    after: str
    tasks: int
    examples: list[str]


class PolicyChanges(msgspec.Struct, frozen=True):
    """What a version would have decided otherwise for the last tasks.

    `in_use` counts unfinished tasks of classes that the version does not have: it is refused while there are any.
    """

    looked_at: int
    changed: int
    classes: list[MovedTasks]
    reason_codes: list[MovedTasks]
    in_use: dict[str, int]


class PolicyApplied(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a version. `changes` are there for a dry run only."""

    version: str
    owner: str
    author: str | None
    created_at: datetime | None
    in_force: bool
    dry_run: bool
    warnings: list[str]
    changes: PolicyChanges | None


class Evaluation(Body):
    """What to explain: a submission that is not made, by what its class may depend on, or a stored task by its id."""

    task_id: Label | None = None
    type: Annotated[
        str | None, StringConstraints(min_length=1, max_length=64), Field(examples=["classify_document"])
    ] = None
    group: Label | None = None
    claims: Annotated[dict[Label, JsonValue] | None, Field(max_length=50)] = None
    requested_class: Annotated[Label | None, Field(description="a signal, never the decision")] = None
    due_at: Instant | None = None
    valid_until: Instant | None = None

    @model_validator(mode="after")
    def _one_of_both(self) -> "Evaluation":
        if (self.task_id is None) == (self.type is None):
            raise ValueError("give task_id or type")
        if self.task_id is not None and len(self.model_fields_set) > 1:
            raise ValueError("task_id goes alone")
        return self


class RuleTried(msgspec.Struct, frozen=True):
    """A rule, what came of it and why; `when` is there for platform keys."""

    reason_code: str
    priority_class: str
    outcome: Literal["matched", "does_not_hold", "not_asked", "comes_later"]
    why: str | None
    read: dict[str, Json]
    when: str | None


class ClassExplained(msgspec.Struct, frozen=True):
    """A class, the reason code of the rule that gave it, the facts it was decided from, and every rule in order."""

    priority_class: str
    reason_code: str
    policy_version: str
    facts_used: dict[str, Json]
    rules: list[RuleTried]


class TaskExplained(msgspec.Struct, frozen=True, kw_only=True):
    """The class of a stored task.

    `agrees` says whether its stored facts give the stored decision again (null: its version cannot be read any more).
    A class given by hand is `priority_class`; what the rules gave is `derived_class`.
    """

    task_id: str
    priority_class: str
    reason_code: str
    derived_class: str
    derived_reason_code: str
    policy_version: str
    agrees: bool | None
    again: ClassExplained | None


class Evaluated(msgspec.Struct, frozen=True, kw_only=True):
    """The class by the policy in force and why; with `task`, for a stored task, what was decided when it came."""

    priority_class: str
    reason_code: str
    policy_version: str
    requested_class: str | None
    facts_used: dict[str, Json]
    rules: list[RuleTried]
    task: TaskExplained | None
