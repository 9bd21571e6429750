"""Contexts of claimed attempts with documents, a journal and scripted models, for the handlers that read documents."""

from collections.abc import Mapping
from typing import Any

from app.domain.errors import DeadLetter
from app.filter_settings import FilterSettings
from tests.workers.llm.worlds import LlmWorld
from workers.context import TaskContext
from workers.documents.document import Documents
from workers.documents.record import FilterRecord
from workers.facilities import Facilities
from workers.journal import Journal

STORED = Mapping[str, tuple[bytes, str]]


async def a_reader(
    world: LlmWorld, stored: STORED | None = None, *, task_id: str | None = None, **settings: Any
) -> TaskContext:
    """Claim a task (a new one, unless it is named) and give its context; `stored` are its inputs by reference."""

    async def read_input(tenant_id: str, ref: str) -> tuple[bytes, str]:
        if ref not in (stored or {}):
            raise DeadLetter("missing_input", f"no input {ref}")
        return (stored or {})[ref]

    facilities = Facilities(
        read_input=read_input,
        llm=world.llm(**settings),
        journal=Journal(world.runtime),
        documents=Documents(FilterSettings(), FilterRecord(world.runtime)),
    )
    context = TaskContext(await world.attempt(task_id), facilities)
    await context.load()
    return context
