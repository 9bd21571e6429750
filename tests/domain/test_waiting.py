"""The typed answer to "why is it still waiting"."""

from dataclasses import replace

import pytest

from app.domain.lifecycle import TaskStatus
from app.domain.release import PutOff, Waiting
from app.domain.waiting import Place, Situation, WaitReason, explain_waiting
from tests.domain.policies import NOW

PLACE = Place(TaskStatus.QUEUED, "common", "acme", "audit", "finance", ("llm",), virtual_time=3.0)
BUSY = PutOff({Waiting.NO_SEAT: 1, Waiting.TENANTS_TURN: 2}, reach=10, reserve=2, maximum=8, load=8.0, next_start=3.0)
SITUATION = Situation(frozenset({"common"}), {}, frozenset(), {"common": BUSY})


@pytest.mark.parametrize(
    ("place", "situation", "reason", "said"),
    [
        (replace(PLACE, status=TaskStatus.RUNNING), SITUATION, WaitReason.RUNNING, "a worker is running it"),
        (
            replace(PLACE, status=TaskStatus.SCHEDULED, due_at=NOW),
            SITUATION,
            WaitReason.NOT_BEFORE,
            "before 2026-11-30T12:00:00Z",
        ),
        (
            replace(PLACE, status=TaskStatus.FAILED_RETRYABLE, due_at=NOW),
            SITUATION,
            WaitReason.BACKOFF,
            "from 2026-11-30T12:00:00Z on",
        ),
        (replace(PLACE, status=TaskStatus.AWAITING_APPROVAL), SITUATION, WaitReason.APPROVAL, "A person must decide"),
        (replace(PLACE, status=TaskStatus.EXPIRED), SITUATION, WaitReason.FINAL, "ended as expired"),
        (replace(PLACE, released=True), SITUATION, WaitReason.RELEASED, "on its way to a worker"),
        (
            PLACE,
            replace(SITUATION, paused={"class:common": "audit"}),
            WaitReason.PAUSED,
            "class:common is paused: audit",
        ),
        (PLACE, replace(SITUATION, paused={"type:audit": ""}), WaitReason.PAUSED, "type:audit is paused: no reason"),
        (PLACE, replace(SITUATION, paused={"tenant:acme": "x"}), WaitReason.PAUSED, "tenant:acme"),
        (PLACE, replace(SITUATION, paused={"dependency:llm": "x"}), WaitReason.PAUSED, "dependency:llm"),
        (PLACE, replace(SITUATION, served=frozenset({"other"})), WaitReason.NO_CONSUMERS, "No live worker serves"),
        (
            PLACE,
            replace(SITUATION, dependencies={"llm": "The dependency llm is closed until 12:05."}),
            WaitReason.DEPENDENCY_CLOSED,
            "until 12:05",
        ),
        (PLACE, replace(SITUATION, saturated=frozenset({"llm"})), WaitReason.DEPENDENCY_LIMIT, "Calls of llm already"),
        (PLACE, replace(SITUATION, saturated=frozenset({"crm"})), WaitReason.NO_SEAT, "8.0 of 10 seats"),
        (PLACE, replace(SITUATION, budgets={"all": "The budget all is spent."}), WaitReason.BUDGET, "budget all"),
        (
            replace(PLACE, status=TaskStatus.SCHEDULED, due_at=NOW, snoozed=("budget", "No room.")),
            SITUATION,
            WaitReason.BUDGET,
            "No room. It comes back from 2026-11-30T12:00:00Z on.",
        ),
        (
            replace(PLACE, status=TaskStatus.SCHEDULED, due_at=NOW, snoozed=("something_else", "x")),
            SITUATION,
            WaitReason.NOT_BEFORE,
            "before 2026-11-30T12:00:00Z",
        ),
        (PLACE, replace(SITUATION, limits_full=frozenset({"group:finance"})), WaitReason.LIMIT, "group:finance has as"),
        (PLACE, replace(SITUATION, limits_full=frozenset({"type:other"})), WaitReason.NO_SEAT, "8.0 of 10 seats"),
        (PLACE, SITUATION, WaitReason.NO_SEAT, "(reserve 2, maximum 8)"),
        (replace(PLACE, virtual_time=None), SITUATION, WaitReason.NO_SEAT, "no further seat was free"),
        (replace(PLACE, virtual_time=4.5), SITUATION, WaitReason.TENANTS_TURN, "tenants that got less"),
        (PLACE, replace(SITUATION, put_off={}), WaitReason.TENANTS_TURN, "goes with the next release"),
    ],
)
def test_the_first_reason_that_applies_is_told(
    place: Place, situation: Situation, reason: WaitReason, said: str
) -> None:
    explanation = explain_waiting(place, situation)

    assert explanation.reason is reason
    assert said in explanation.detail


@pytest.mark.parametrize("status", list(TaskStatus))
def test_every_status_has_an_answer(status: TaskStatus) -> None:
    assert explain_waiting(replace(PLACE, status=status), SITUATION).detail.endswith(".")
