"""Filters over tasks and dead letters, as values: stored with a bulk action, and rendered as conditions."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from datetime import datetime
from typing import TypeVar

import msgspec
from sqlalchemy import ColumnElement, Table

from app.store.schema import dead_letters, effects, tasks

F = TypeVar("F", "TaskFilter", "DeadLetterFilter")


@dataclass(frozen=True, slots=True)
class TaskFilter:
    """Which tasks. An empty tuple or None leaves a field open; several values of a field mean "or"."""

    status: tuple[str, ...] = ()
    type: tuple[str, ...] = ()
    priority_class: tuple[str, ...] = ()
    group: tuple[str, ...] = ()
    source_ref: tuple[str, ...] = ()
    tenant_id: tuple[str, ...] = ()
    submitted_after: datetime | None = None
    submitted_before: datetime | None = None


@dataclass(frozen=True, slots=True)
class DeadLetterFilter:
    """Which dead letters. An empty tuple or None leaves a field open; several values of a field mean "or"."""

    error_type: tuple[str, ...] = ()
    type: tuple[str, ...] = ()
    priority_class: tuple[str, ...] = ()
    group: tuple[str, ...] = ()
    tenant_id: tuple[str, ...] = ()
    failed_after: datetime | None = None
    failed_before: datetime | None = None


@dataclass(frozen=True, slots=True)
class EffectFilter:
    """Which effects. An empty tuple leaves a field open; several values of a field mean "or"."""

    state: tuple[str, ...] = ()
    type: tuple[str, ...] = ()
    task_id: tuple[str, ...] = ()
    tenant_id: tuple[str, ...] = ()


def is_empty(found: TaskFilter | DeadLetterFilter) -> bool:
    """Say whether a filter leaves everything open."""
    return all(getattr(found, field.name) in ((), None) for field in fields(found))


def encode(found: TaskFilter | DeadLetterFilter) -> str:
    """Turn a filter into JSON text, without the fields that are open."""
    return msgspec.json.encode({k: v for k, v in asdict(found).items() if v not in ((), None)}).decode()


def decode(kind: type[F], stored: str) -> F:
    """Read a filter back from JSON text."""
    return msgspec.json.decode(stored, type=kind)


def task_conditions(found: TaskFilter) -> list[ColumnElement[bool]]:
    """Render the conditions on `tasks`."""
    conditions = _names(
        tasks,
        {
            "status": found.status,
            "type": found.type,
            "priority_class": found.priority_class,
            "task_group": found.group,
            "source_ref": found.source_ref,
            "tenant_id": found.tenant_id,
        },
    )
    if found.submitted_after is not None:
        conditions.append(tasks.c.submitted_at >= found.submitted_after)
    if found.submitted_before is not None:
        conditions.append(tasks.c.submitted_at < found.submitted_before)
    return conditions


def dead_letter_conditions(found: DeadLetterFilter) -> list[ColumnElement[bool]]:
    """Render the conditions on `dead_letters`."""
    conditions = _names(
        dead_letters,
        {
            "error_type": found.error_type,
            "type": found.type,
            "priority_class": found.priority_class,
            "task_group": found.group,
            "tenant_id": found.tenant_id,
        },
    )
    if found.failed_after is not None:
        conditions.append(dead_letters.c.failed_at >= found.failed_after)
    if found.failed_before is not None:
        conditions.append(dead_letters.c.failed_at < found.failed_before)
    return conditions


def effect_conditions(found: EffectFilter) -> list[ColumnElement[bool]]:
    """Render the conditions on `effects`."""
    return _names(
        effects,
        {
            "state": found.state,
            "effect_type": found.type,
            "task_id": found.task_id,
            "tenant_id": found.tenant_id,
        },
    )


def _names(table: Table, wanted: dict[str, Sequence[str]]) -> list[ColumnElement[bool]]:
    return [table.c[name].in_(values) for name, values in wanted.items() if values]
