"""Submitting tasks: everything that is decided before the 202, in order, and one commit for many.

validate against the type → decide the class (policy) → quota → INSERT, coalesced → commit → poke the dispatcher
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from app.classification import Asked
from app.coalescer import Coalescer
from app.domain.task_types import COST_WEIGHTS
from app.ids import mint
from app.runtime import Runtime
from app.services.errors import FieldError, Invalid
from app.services.webhooks import callback_errors
from app.store.database import LockTimeout, is_data_error
from app.store.submissions import NewTask, Outcome, Stored, insert_tasks
from app.task_modules import TaskType

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails


@dataclass(frozen=True, slots=True)
class TenantFacts:
    """What submission needs to know of a tenant."""

    tenant_id: str
    service_class: str
    weight: float
    max_open_tasks: int | None


@dataclass(frozen=True, slots=True)
class Submission:
    """A request to do a task, well formed but not yet held against its type. JSON fields hold exact JSON text."""

    type: str
    input: str | None = None
    input_ref: str | None = None
    group: str | None = None
    source_ref: str | None = None
    source_version: str | None = None
    claims: Mapping[str, object] | None = None
    requested_class: str | None = None
    not_before: datetime | None = None
    due_at: datetime | None = None
    valid_until: datetime | None = None
    max_attempts: int | None = None
    timeout_seconds: float | None = None
    metadata: str | None = None
    traceparent: str | None = None
    tracestate: str | None = None
    idempotency_key: str | None = None
    endpoint: str | None = None
    fingerprint: bytes | None = None
    callback_url: str | None = None


def prepare(runtime: Runtime, tenant: TenantFacts, subject: str, may_claim: bool, asked: Submission) -> NewTask:
    """Hold a submission against its type and decide its class; mints the task's id.

    Raises Invalid, with pointers and without any submitted value.
    """
    task_type = runtime.registry.get(asked.type)
    if task_type is None:
        raise Invalid(
            [FieldError("#/type", "no such task type here: GET /v1/task-types lists those there are")],
            code="unknown_task_type",
            detail="There is no such task type.",
        )
    spec = task_type.spec
    now = runtime.now()
    _check(runtime, task_type, asked, now)
    classified = runtime.policy.classifier.classify(
        spec,
        Asked(
            tenant.service_class, tenant.weight, asked.group, asked.due_at, asked.valid_until, asked.claims, may_claim
        ),
        now,
    )
    chosen = classified.chosen
    return NewTask(
        task_id=mint("task"),
        tenant_id=tenant.tenant_id,
        type=spec.name,
        task_group=asked.group,
        priority_class=chosen.name,
        reason_code=classified.reason_code,
        policy_version=classified.policy_version,
        facts=classified.facts,
        requested_class=asked.requested_class,
        source_ref=asked.source_ref,
        source_version=asked.source_version,
        input=asked.input,
        input_ref=asked.input_ref,
        cost_class=spec.cost_class.value,
        cost=COST_WEIGHTS[spec.cost_class],
        preemptible=spec.preemptible,
        max_attempts=min(asked.max_attempts or spec.max_attempts, chosen.max_attempts or 100),
        timeout_seconds=asked.timeout_seconds or spec.timeout_seconds,
        not_before=asked.not_before,
        due_at=asked.due_at,
        valid_until=asked.valid_until,
        valid_for_seconds=chosen.valid_for_seconds if asked.valid_until is None else None,
        start_within_seconds=chosen.start_within_seconds,
        metadata=asked.metadata,
        submitted_by=subject,
        traceparent=asked.traceparent,
        tracestate=asked.tracestate,
        idempotency_key=asked.idempotency_key,
        endpoint=asked.endpoint,
        fingerprint=asked.fingerprint,
        callback_url=asked.callback_url,
    )


def _check(runtime: Runtime, task_type: TaskType, asked: Submission, now: datetime) -> None:
    spec = task_type.spec
    errors: list[FieldError] = []
    if asked.input is not None and asked.input_ref is not None:
        errors.append(FieldError("#/input_ref", "give input or input_ref, not both"))
    elif asked.input_ref is None:
        errors.extend(_input_errors(task_type, asked.input, {"llm": runtime.settings.llm}))
    if asked.max_attempts is not None and asked.max_attempts > spec.max_attempts:
        errors.append(FieldError("#/max_attempts", f"may only lower the type's limit of {spec.max_attempts}"))
    if asked.timeout_seconds is not None and asked.timeout_seconds > spec.timeout_seconds:
        errors.append(FieldError("#/timeout_seconds", f"may only lower the type's limit of {spec.timeout_seconds:g}"))
    if asked.valid_until is not None:
        if asked.valid_until <= now:
            errors.append(FieldError("#/valid_until", "has passed already: it should lie ahead"))
        if asked.not_before is not None and asked.not_before >= asked.valid_until:
            errors.append(FieldError("#/not_before", "should lie before valid_until"))
    if asked.callback_url is not None:
        errors.extend(callback_errors(runtime, asked.callback_url))
    if errors:
        raise Invalid(errors)


def _input_errors(task_type: TaskType, input_text: str | None, known: Mapping[str, Any]) -> list[FieldError]:
    try:
        task_type.validate_input(input_text, known)
    except ValidationError as error:
        found = error.errors(include_url=False, include_input=False)
        return [_input_error(item, task_type.field_names) for item in found[:50]]
    return []


def _input_error(item: "ErrorDetails", names: frozenset[str]) -> FieldError:
    pointer = "/".join(("#", "input", *_schema_part(item["loc"], names)))
    if item["type"] == "schema_problem":
        # The place inside of a schema that was submitted: its names have been checked to be plain ones.
        pointer += str(item.get("ctx", {}).get("pointer", ""))[:500]
    return FieldError(pointer, _ECHOING.get(item["type"], str(item["msg"])[:300]))


# Messages of these kinds may repeat what was sent: they are replaced.
_ECHOING = {
    "extra_forbidden": "a field that the type does not know",
    "value_error": "the type refuses this value",
    "assertion_error": "the type refuses this value",
    "json_invalid": "not valid JSON",
    "union_tag_invalid": "not one of the kinds that the type knows",
}


def _schema_part(location: Sequence[int | str], names: frozenset[str]) -> list[str]:
    """Keep of a location what the schema names (and positions), up to the first thing that only the sender named."""
    kept: list[str] = []
    for part in location:
        if isinstance(part, int):
            kept.append(str(part))
        elif part in names:
            kept.append(part)
        else:
            break
    return kept


class Submitter:
    """The one way into the database for new tasks of this process; coalesces whatever arrives at the same time."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        maximum = 500
        # Keyed and unkeyed apart: a key that is held elsewhere must not make the others wait.
        self._plain: Coalescer[NewTask, Outcome] = Coalescer(self._flush, max_items=maximum, splits_on=is_data_error)
        self._keyed: Coalescer[NewTask, Outcome] = Coalescer(
            self._flush,
            max_items=maximum,
            splits_on=lambda error: is_data_error(error) or isinstance(error, LockTimeout),
        )

    async def submit(self, task: NewTask) -> Outcome:
        """Commit one task. Raises DatabaseUnavailable, LockTimeout (its key is in flight) or a data error."""
        return await (self._plain if task.idempotency_key is None else self._keyed).submit(task)

    async def submit_many(self, tasks: Sequence[NewTask]) -> list[Outcome]:
        """Commit many tasks of one request, in order; the same errors."""
        answers: dict[str, Outcome] = {}
        for keyed in (False, True):
            part = [task for task in tasks if (task.idempotency_key is not None) == keyed]
            if part:
                for task, outcome in zip(part, await self._flush(part), strict=True):
                    answers[task.task_id] = outcome
        return [answers[task.task_id] for task in tasks]

    async def _flush(self, tasks: Sequence[NewTask]) -> list[Outcome]:
        outcomes = await insert_tasks(self._runtime.database, tasks)
        self._runtime.dispatcher_poke.poke()
        metrics = self._runtime.metrics
        metrics.batch_flushed("submit", len(tasks))
        stored = [task for task, outcome in zip(tasks, outcomes, strict=True) if isinstance(outcome, Stored)]
        for (priority_class, type_), count in Counter((task.priority_class, task.type) for task in stored).items():
            metrics.tasks_submitted(priority_class, type_, count)
        for (priority_class, reason), count in Counter(
            (task.priority_class, task.reason_code) for task in stored
        ).items():
            metrics.tasks_classified(priority_class, reason, count)
        return outcomes
