"""Every router, in one place: adding one is one line here."""

from fastapi import APIRouter

from app.api.routers import (
    attempts,
    audit,
    batches,
    bulk_actions,
    callbacks,
    cancellations,
    classes,
    dead_letters,
    events,
    health,
    inputs,
    keys,
    pauses,
    problems,
    schedules,
    task_types,
    tasks,
    tenants,
    workers,
)

ROUTERS: tuple[APIRouter, ...] = (
    tasks.router,
    batches.router,
    attempts.router,
    events.router,
    cancellations.router,
    bulk_actions.router,
    dead_letters.router,
    inputs.router,
    callbacks.router,
    schedules.router,
    pauses.router,
    task_types.router,
    classes.router,
    workers.router,
    tenants.router,
    keys.router,
    audit.router,
    health.router,
    problems.router,
)
