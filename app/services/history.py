"""The history of a task: composed from its row, its attempts, its flight and its recorded events.

The regular part (submitted, released, started, ended) is derived and costs the hot path nothing; the irregular part is
in `events`.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Row
from sqlalchemy.ext.asyncio import AsyncConnection

from app.domain.effects import EffectState
from app.domain.lifecycle import WAITING, TaskStatus, is_final
from app.domain.release import PutOff, Waiting
from app.domain.waiting import Place, Situation, explain_waiting
from app.runtime import Runtime
from app.services import obstacles
from app.services.obstacles import Obstacles
from app.services.releases import put_off_in
from app.store import effect_lists, journal, llm_usage, pauses, standing, workers
from app.store import history as store
from app.store.llm_usage import AttemptUsage

__all__ = ["AttemptUsage", "Entry", "Story", "compose", "read_story"]
MOST_ATTEMPTS = 1000
MOST_EVENTS = 1000
MOST_KEPT = 1000
MOST_EFFECTS = 1000


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry: what happened, its typed reason, who did it, and the facts as exact JSON text."""

    at: datetime
    kind: str
    reason: str | None = None
    actor: str | None = None
    detail: str | None = None


@dataclass(frozen=True, slots=True)
class Story:
    """The parts that the history of one task is composed of."""

    attempts: Sequence[Row[Any]]
    effects: Sequence[Row[Any]]
    flight: Row[Any] | None
    events: Sequence[Row[Any]]
    kept: Sequence[Row[Any]]
    rounds: Mapping[int, Row[Any]]
    delayed: Row[Any] | None
    latest_round: Row[Any] | None
    served: frozenset[str]
    paused: Mapping[str, str]
    virtual_time: float | None
    measured: Mapping[str, Row[Any]]
    suspended: Row[Any] | None
    spent: Mapping[int, AttemptUsage]
    """What the model calls of each attempt took, by its fence."""
    obstacles: Obstacles


async def read_story(runtime: Runtime, task: Row[Any]) -> Story:
    """Read the parts, in one transaction."""
    task_id = task.task_id

    async def work(connection: AsyncConnection) -> Story:
        attempts = await store.attempts_of(connection, task_id, MOST_ATTEMPTS)
        flight = await standing.flight_of(connection, task_id)
        events = await store.events_of(connection, task_id, MOST_EVENTS)
        round_ids = {row.round_id for row in attempts} | ({flight.round_id} if flight else set())
        rounds = await standing.rounds(connection, sorted(round_ids))
        return Story(
            attempts,
            await effect_lists.of_task(connection, task_id, MOST_EFFECTS),
            flight,
            events,
            await journal.listed(connection, task_id, MOST_KEPT),
            rounds,
            await standing.delayed_of(connection, task_id),
            await standing.latest_round(connection),
            frozenset(name for row in await workers.live(connection) for name in row.classes),
            await pauses.active(connection),
            await standing.virtual_time_of(connection, task_id),
            await standing.class_figures(connection),
            await standing.suspended_of(connection, task_id),
            await llm_usage.by_attempt(connection, task_id),
            await obstacles.read(runtime, connection, task),
        )

    return await runtime.database.run(work)


def compose(task: Row[Any], story: Story, depends_on: tuple[str, ...] = ()) -> list[Entry]:
    """Compose the history, oldest first; the last entry of a waiting task says why it waits.

    `depends_on` are the dependencies that the task's type declares.
    """
    entries = [_submitted(task, story.events)]
    for row in story.attempts:
        entries += [_released(row, story.rounds), _started(row, row.started_at), _ended(row)]
    if story.flight is not None:
        entries.append(_released(story.flight, story.rounds))
        if story.flight.fence is not None:
            entries.append(_started(story.flight, story.flight.claimed_at))
    for row in story.effects:
        entries += _effect(row)
    entries += [Entry(row.at, row.kind, row.reason, row.actor, row.detail) for row in story.events]
    entries += [_kept(row) for row in story.kept]
    entries.sort(key=lambda one: one.at)
    last = _standing(task, story, depends_on)
    return [*entries, last] if last is not None else entries


def _submitted(task: Row[Any], events: Sequence[Row[Any]]) -> Entry:
    """Tell of the submission; the class that it got is the one before the first that somebody gave the task."""
    moved = next((json.loads(row.detail) for row in events if row.kind == "reclassified" and row.detail), None)
    detail = {
        "priority_class": moved["from"] if moved else task.priority_class,
        "policy_version": task.policy_version,
        "requested_class": task.requested_class,
        "facts": json.loads(task.facts),
    }
    reason_code = moved["from_reason_code"] if moved else task.reason_code
    return Entry(task.submitted_at, "submitted", reason_code, task.submitted_by, _text(detail))


def _released(row: Row[Any], rounds: Mapping[int, Row[Any]]) -> Entry:
    found = rounds.get(row.round_id)
    detail: dict[str, object] = {"attempt": row.attempt, "round_id": row.round_id}
    if found is not None:
        figures = json.loads(found.figures)
        detail["policy_version"] = found.policy_version
        detail["put_off"] = figures.get("put_off", {})
    return Entry(row.released_at, "released", "turn", "dispatcher", _text(detail))


def _started(row: Row[Any], at: datetime) -> Entry:
    return Entry(at, "started", "claimed", row.worker_id, _text({"attempt": row.attempt, "fence": row.fence}))


def _ended(row: Row[Any]) -> Entry:
    detail = {
        "attempt": row.attempt,
        "fence": row.fence,
        "counted": row.spent,
        "error_type": row.error_type,
        "error_message": row.error_message,
        "retry_after_seconds": row.retry_after_seconds,
    }
    return Entry(row.finished_at, "ended", row.outcome, row.worker_id, _text(detail))


def _kept(row: Row[Any]) -> Entry:
    """Tell of a step or a checkpoint; what it holds is the handler's own."""
    detail = {"size_bytes": row.size_bytes, "fence": row.fence}
    if row.name is not None:
        detail["name"] = row.name
    return Entry(row.stored_at, row.kind, detail=_text(detail))


def _effect(row: Row[Any]) -> list[Entry]:
    """Tell of an effect's latest reservation and, unless a person said it, of what is known of it."""
    facts = {"effect_id": row.effect_id, "type": row.effect_type, "attempt": row.attempt}
    entries = [Entry(row.reserved_at, "effect", "reserved", None, _text({**facts, "calls": len(row.tokens)}))]
    if row.state in (EffectState.CONFIRMED, EffectState.NOT_SENT) and row.resolved_at is None:
        known = {**facts, "external_id": row.external_id}
        entries.append(Entry(row.updated_at, "effect", row.state, None, _text(known)))
    return entries


def _standing(task: Row[Any], story: Story, depends_on: tuple[str, ...]) -> Entry | None:
    if is_final(task.status):
        if task.finished_at is None or (story.attempts and story.attempts[-1].finished_at >= task.finished_at):
            return None
        return Entry(task.finished_at, "finished", task.status)
    if task.status not in WAITING | {TaskStatus.AWAITING_APPROVAL}:
        return None
    place = Place(
        status=TaskStatus(task.status),
        priority_class=task.priority_class,
        tenant_id=task.tenant_id,
        task_type=task.type,
        group=task.task_group or "",
        depends_on=depends_on,
        due_at=story.delayed.due_at if story.delayed is not None else None,
        released=story.flight is not None,
        virtual_time=story.virtual_time,
        snoozed=_snoozed(story),
    )
    figures = json.loads(story.latest_round.figures) if story.latest_round is not None else {}
    put_off = _put_off(task, story, figures)
    situation = Situation(
        served=story.served,
        paused=story.paused,
        limits_full=frozenset(figures.get("limits_full", ())),
        put_off=put_off,
        dependencies=story.obstacles.dependencies,
        saturated=story.obstacles.saturated,
        budgets=story.obstacles.budgets,
    )
    found = explain_waiting(place, situation)
    detail: dict[str, object] = {"because": found.detail, "put_off": {}}
    if (asked := story.suspended) is not None:
        detail |= {
            "approval_id": asked.approval_id,
            "action": asked.action,
            "due_at": asked.due_at,
            "expires_at": asked.expires_at,
        }
    elif (behind := put_off.get(task.priority_class)) is not None:
        detail["put_off"] = behind.reasons
        detail["seats"] = {name: getattr(behind, name) for name in ("reach", "reserve", "maximum", "load")}
    return Entry(task.updated_at, "waiting", found.reason.value, None, _text(detail))


def _snoozed(story: Story) -> tuple[str, str] | None:
    last = story.attempts[-1] if story.attempts else None
    if last is None or last.outcome != "snoozed" or last.error_type is None:
        return None
    return last.error_type, last.error_message or ""


def _put_off(task: Row[Any], story: Story, figures: Mapping[str, Any]) -> dict[str, PutOff]:
    """Say what the latest round put off; it looked at no class that had no seat left.

    Such a class is told by what the leader counted of it after the task had come to wait.
    """
    found = put_off_in(figures)
    name = task.priority_class
    measured = story.measured.get(name)
    if name not in found and measured is not None and measured.at > task.updated_at:
        seen = json.loads(measured.figures)
        found[name] = PutOff(
            {Waiting.NO_SEAT: seen["waiting"]},
            seen["reach"],
            seen["nominal"],
            seen["maximum"],
            float(seen["released"] + seen["running"]),
            None,
        )
    return found


def _text(detail: Mapping[str, object]) -> str:
    return json.dumps(detail, default=lambda value: value.isoformat().replace("+00:00", "Z"), separators=(",", ":"))
