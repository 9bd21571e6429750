"""Decisions that plug in: the engine acts on what they say, and only then."""

from collections.abc import Sequence
from datetime import datetime

from app.domain.policy import Policy
from app.domain.simulation.hooks import Aged, Arrived, Candidate, Defer, Downgrade, Hooks, Refuse, Saturation, Wanted
from app.domain.simulation.load import Need
from tests.domain.simulation.loads import full, run

LONG = """
[[type]]
name = "archive"
run = "20m"
timeout = "1h"
preemptible = true
checkpoint_every = "5s"
loses_checkpoint = {loses}
[[arrivals]]
type = "archive"
count = 12
[[arrivals]]
type = "urgent"
at = "5m"
count = 20
"""


def rises(_: Policy, aged: Aged, now: datetime) -> str | None:
    return "short_deadline" if (now - aged.submitted_at).total_seconds() >= 900 else None


def newest(_: Policy, __: Wanted, running: Sequence[Candidate], ___: datetime) -> str | None:
    fit = [one.task_id for one in running if one.preemptible and one.checkpoint_age_seconds is not None]
    return max(fit, default=None)


def test_a_hook_that_is_not_there_is_lacking() -> None:
    assert Hooks(aging=rises).lacks([Need.AGING, Need.PREEMPTION]) == (Need.PREEMPTION,)


def test_what_waits_too_long_rises_and_is_counted_once() -> None:
    tables = '[[arrivals]]\ntype = "usual"\ncount = 400\n'

    result = run(tables, seats=2, policy=full(), hooks=Hooks(aging=rises))

    assert result.classes["common"]["promoted"]
    assert result.classes["short_deadline"]["started"]
    assert result.total["arrived"] == sum(result.total[name] or 0 for name in ("done", "waiting", "running"))


def test_a_preempted_task_resumes_where_it_was_and_spends_no_attempt() -> None:
    result = run(LONG.format(loses=0.0), hours=3, policy=full(), hooks=Hooks(preempt=newest))

    assert result.classes["critical"]["preempt_executed"]
    common = result.classes["common"]
    assert (common["done"], common["retried"], common["checkpoints_lost"]) == (12, 0, 0)


def test_a_lost_checkpoint_is_counted_and_its_work_done_again() -> None:
    lost = run(LONG.format(loses=1.0), hours=3, policy=full(), hooks=Hooks(preempt=newest)).classes["common"]

    assert lost["checkpoints_lost"]
    assert lost["done"] == 12


def test_nobody_is_preempted_without_a_checkpoint() -> None:
    tables = '[[type]]\nname = "pay"\nrun = "20m"\ntimeout = "1h"\n[[arrivals]]\ntype = "pay"\ncount = 12\n'
    tables += '[[arrivals]]\ntype = "urgent"\nat = "5m"\ncount = 20\n'

    critical = run(tables, policy=full(), hooks=Hooks(preempt=newest)).classes["critical"]

    assert critical["preempt_declined"] and not critical["preempt_executed"]


def test_what_the_source_no_longer_needs_takes_no_seat() -> None:
    tables = '[[arrivals]]\ntype = "usual"\ncount = 100\nsource_closes_after = "1m"\n'

    common = run(tables, seats=2, policy=full(), hooks=Hooks(revalidate=lambda needed: needed)).classes["common"]

    assert (common["superseded"] or 0) > 50 and common["waiting"] == 0


def test_a_saturated_class_refuses_defers_or_downgrades() -> None:
    def answer(given: Saturation) -> Hooks:
        def saturate(_: Policy, arrived: Arrived) -> Saturation:
            return given if arrived.ahead >= 10 and arrived.priority_class.name == "common" else None

        return Hooks(saturate=saturate)

    tables = '[[arrivals]]\ntype = "usual"\ncount = 30\n'

    refused = run(tables, seats=2, hooks=answer(Refuse()))
    assert refused.classes["common"]["refused"] == 20 and refused.classes["common"]["done"] == 10
    deferred = run(tables, seats=2, hooks=answer(Defer(1_800)))
    assert deferred.classes["common"]["deferred"] == 20 and deferred.classes["common"]["done"] == 30
    downgraded = run(tables, seats=2, hooks=answer(Downgrade("deferrable")))
    assert downgraded.classes["deferrable"]["arrived"] == 20
