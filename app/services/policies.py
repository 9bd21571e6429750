"""The policy's versions: following the newest one, bringing one into force, and what it would change."""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Row
from sqlalchemy.ext.asyncio import AsyncConnection

from app.domain.policy import LimitKind, Policy
from app.domain.policy_file import PolicyError, parse_policy
from app.domain.priority import decide_class
from app.runtime import Runtime
from app.services.actors import Actor, AuditEntry
from app.services.decisions import facts_of_task, given_at_first
from app.services.errors import Conflict, FieldError, Invalid, NotFound
from app.store import overrides
from app.store import policies as store
from app.task_modules import Registry
from app.telemetry.logs import event

log = logging.getLogger("despacho.policy")
LOOKED_AT = 1000
_EXAMPLES = 5
_MOST_ERRORS = 50


async def follow(runtime: Runtime, connection: AsyncConnection) -> bool:
    """Have the newest version rule in this process; tells whether it changed.

    One that this release cannot read is refused: the version before goes on to rule, which log, metric and readiness
    say.
    """
    holder = runtime.policy
    was_refused = holder.refused
    try:
        changed = await holder.refresh(connection)
    except PolicyError as error:
        changed = False
        event(
            log, "policy_version_refused", level=logging.ERROR, version=holder.refused,
            in_force=holder.current.version, problems=len(error.problems), first_line=error.problems[0][0],
        )  # fmt: skip
    if changed:
        adopted(runtime)
    if changed or holder.refused != was_refused:
        runtime.metrics.policy_refused(holder.refused is not None)
    return changed


def adopted(runtime: Runtime) -> None:
    """Say that another version rules in this process from now on."""
    policy = runtime.policy.current
    runtime.metrics.reserve(classes=policy.by_name, types=(), error_types=())
    event(log, "policy_in_force", version=policy.version)


@dataclass(frozen=True, slots=True)
class Moved:
    """Tasks that one version puts into `before` and another into `after`, by reason code too; `examples` are ids."""

    before: str
    after: str
    tasks: int
    examples: list[str]


@dataclass(frozen=True, slots=True)
class Changes:
    """What a version would have decided otherwise for the last tasks; `in_use` counts what waits in missing classes."""

    looked_at: int
    changed: int
    classes: list[Moved] = field(default_factory=list)
    reason_codes: list[Moved] = field(default_factory=list)
    in_use: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Applied:
    """A version that was held against this installation. `row` is None for a dry run, `is_new` where it rules now."""

    policy: Policy
    row: Row[Any] | None
    is_new: bool
    warnings: list[str]
    changes: Changes | None


def read_document(document: str) -> Policy:
    """Parse a policy. Raises Invalid with a line and a remedy for each problem."""
    try:
        return parse_policy(document)
    except PolicyError as error:
        problems = error.problems[:_MOST_ERRORS]
        raise Invalid(
            [FieldError("#/document", f"line {line}: {text}") for line, text in problems],
            code="invalid_policy",
            detail=f"The policy cannot be used: {len(error.problems)} problem(s), each with its line in `errors`.",
        ) from None


async def apply(runtime: Runtime, actor: Actor, document: str, *, dry_run: bool) -> Applied:
    """Bring a version into force, here at once and elsewhere within seconds; a dry run only shows what it would change.

    Raises Invalid, or Conflict (`policy_version_exists`, `policy_class_in_use`).
    """
    policy = await asyncio.to_thread(read_document, document)
    warnings = list(warnings_of(policy, runtime.registry))
    if dry_run:
        return Applied(policy, None, False, warnings, await _changes(runtime, policy))
    entry = AuditEntry(actor, "policy.apply")

    async def once(connection: AsyncConnection) -> tuple[Row[Any] | None, bool]:
        await store.one_at_a_time(connection)
        present = await store.get(connection, policy.version)
        if await entry.is_written(connection):
            return present, True
        if present is not None:
            return await _same(connection, present, document), False
        if missing := await overrides.in_use(connection, list(policy.by_name)):
            raise _class_in_use(missing)
        await store.add(connection, policy, document, actor.subject)
        await entry.write(connection, target=policy.version)
        return await store.get(connection, policy.version), True

    row, is_new = await runtime.database.run(once)
    if is_new:
        runtime.policy.adopt(policy)
        adopted(runtime)
        runtime.metrics.policy_refused(False)
        runtime.dispatcher_poke.poke()
    return Applied(policy, row, is_new, warnings, None)


async def _same(connection: AsyncConnection, present: Row[Any], document: str) -> Row[Any]:
    """Take the version in force for itself. Raises Conflict for another text, and for a version of the past."""
    if present.document == document and await store.newest_version(connection) == present.version:
        return present
    raise Conflict(
        "policy_version_exists",
        "There is a version of this name already; versions never change and none comes back: give it a new `version`.",
    )


def _class_in_use(missing: dict[str, int]) -> Conflict:
    named = ", ".join(f"{count} in {name}" for name, count in missing.items())
    return Conflict(
        "policy_class_in_use",
        f"Unfinished tasks have classes that this version does not have: {named}. Keep these classes until their work "
        "is done, or give the tasks other ones.",
    )


async def _changes(runtime: Runtime, policy: Policy) -> Changes:
    async def read(connection: AsyncConnection) -> tuple[Sequence[Row[Any]], dict[str, int]]:
        rows = await store.latest_tasks(connection, LOOKED_AT)
        return rows, await overrides.in_use(connection, list(policy.by_name))

    rows, in_use = await runtime.database.run(read)
    return await asyncio.to_thread(compare, policy, runtime.registry, rows, in_use)


def compare(policy: Policy, registry: Registry, rows: Sequence[Row[Any]], in_use: dict[str, int]) -> Changes:
    """Decide the classes of tasks by another policy, and count what is not as it was."""
    classes: dict[tuple[str, str], list[str]] = defaultdict(list)
    codes: dict[tuple[str, str], list[str]] = defaultdict(list)
    changed = 0
    for row in rows:
        before_class, before_code = given_at_first(row)
        task_type = registry.get(row.type)
        decided = decide_class(policy, facts_of_task(row, task_type.spec if task_type is not None else None))
        changed += decided.priority_class != before_class
        classes[before_class, decided.priority_class].append(row.task_id)
        codes[before_code, decided.reason_code].append(row.task_id)
    return Changes(len(rows), changed, _moved(classes), _moved(codes), in_use)


def _moved(found: dict[tuple[str, str], list[str]]) -> list[Moved]:
    return [
        Moved(before, after, len(ids), ids[:_EXAMPLES])
        for (before, after), ids in sorted(
            found.items(), key=lambda one: (one[0][0] == one[0][1], -len(one[1]), one[0])
        )
    ]


def warnings_of(policy: Policy, registry: Registry) -> Iterator[str]:
    """Say what a policy names that this installation does not have: allowed, since it may come, and maybe a slip."""
    facts = {name for one in registry.values() for name in one.spec.process}
    for rule in policy.rules:
        for read in rule.condition.reads:
            if read.root == "process" and read.field is not None and read.field not in facts:
                yield f"rule {rule.reason_code}: no task type here has the fact process.{read.field}"
    for limit in policy.limits:
        if limit.kind is LimitKind.TYPE and limit.name not in registry:
            yield f"limit {limit.on[:80]}: there is no such task type here"
    called = {name for one in registry.values() for name in one.spec.depends_on}
    for dependency in policy.dependencies:
        if dependency.name not in called:
            yield f"dependency {dependency.name}: no task type here depends on it"


async def in_force(runtime: Runtime) -> Row[Any]:
    """Read the version that rules in this process."""
    return await version(runtime, runtime.policy.current.version)


async def version(runtime: Runtime, name: str) -> Row[Any]:
    """Read one version with its document. Raises NotFound."""
    row = await runtime.database.run(lambda connection: store.get(connection, name))
    if row is None:
        raise NotFound("There is no version of this name.")
    return row


async def history(runtime: Runtime, *, below: int | None, limit: int) -> Sequence[Row[Any]]:
    """Read versions without their documents, newest first."""
    return await runtime.database.run(lambda connection: store.page(connection, below=below, limit=limit))
