"""Tells the metrics how dependencies and budgets stand, and whom it concerns when most of a budget is spent."""

import logging
import time
from dataclasses import dataclass

from app.domain.breaker import Phase, phase_at
from app.domain.budgets import ALERT_SHARE, share_spent
from app.runtime import Runtime
from app.services.budgets import standings_of_spenders
from app.store import budgets, dependencies, spending
from app.telemetry.logs import event

log = logging.getLogger("despacho.budgets")
INTERVAL_SECONDS = 1.0
_STATES = {Phase.CLOSED: 0, Phase.HALF_OPEN: 1, Phase.OPEN: 2}


@dataclass(slots=True)
class Clock:
    """When the turn before was, to count for how long dependencies let nothing through; how they stood then."""

    at: float | None = None


async def run_once(runtime: Runtime, clock: Clock) -> int:
    """Look once; returns how many dependencies there are."""
    async with runtime.database.transaction() as connection:
        standings, now = await dependencies.standings(connection)
        await dependencies.forget_expired(connection)
        found = await standings_of_spenders(runtime, connection)
        near = [one for one in found if share_spent(one.budget, one.spent) >= ALERT_SHARE]
        told: list[str] = []
        if near:
            day, _ = await spending.today(connection)
            told = await budgets.first_alerts(connection, day, sorted({one.budget.on for one in near}))
    states = {name: _STATES[phase_at(one.breaker, now)] for name, one in standings.items()}
    moment = time.monotonic()
    # Nobody looked for longer than a few turns: whoever led meanwhile has counted that time.
    passed = 0.0 if clock.at is None else min(moment - clock.at, 10 * INTERVAL_SECONDS)
    clock.at = moment
    runtime.metrics.dependency_states(states, since_seconds=passed)
    shares: dict[str, list[float]] = {}
    for one in found:
        shares.setdefault(one.budget.on.partition(":")[0], []).append(float(share_spent(one.budget, one.spent)))
    runtime.metrics.budgets(shares)
    for one in near:
        if one.budget.on in told:
            share = round(float(share_spent(one.budget, one.spent)), 3)
            event(log, "budget_nearly_spent", level=logging.WARNING, budget=one.budget.on, share_spent=share)
            told.remove(one.budget.on)
    return len(states)
