"""Every router, in one place: adding one is one line here."""

from fastapi import APIRouter

from app.api.routers import (
    attempts,
    audit,
    batches,
    classes,
    events,
    health,
    keys,
    problems,
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
    task_types.router,
    classes.router,
    workers.router,
    tenants.router,
    keys.router,
    audit.router,
    health.router,
    problems.router,
)
