"""Whose task a context is of: what both contexts know of the attempt, and a logger that is bound to it."""

import logging
from collections.abc import MutableMapping
from typing import Any

from workers.attempt import Attempt


class _BoundLog(logging.LoggerAdapter[logging.Logger]):
    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        kwargs["extra"] = {**(self.extra or {}), **kwargs.get("extra", {})}
        return msg, kwargs


class TaskIdentity:
    """The attempt by the names that handlers know it by."""

    __slots__ = ("owner",)

    def __init__(self, owner: Attempt) -> None:
        self.owner = owner

    @property
    def task_id(self) -> str:
        """The task's id."""
        return self.owner.task_id

    @property
    def task_type(self) -> str:
        """The name of the task's type."""
        return self.owner.spec.name

    @property
    def attempt(self) -> int:
        """The number of this attempt, from 1."""
        return self.owner.number

    @property
    def tenant_id(self) -> str:
        """Whose task it is."""
        return self.owner.tenant_id

    @property
    def priority_class(self) -> str:
        """The class that the task has."""
        return self.owner.priority_class

    @property
    def traceparent(self) -> str | None:
        """The W3C trace context that the task was submitted with."""
        return self.owner.traceparent

    @property
    def log(self) -> logging.LoggerAdapter[logging.Logger]:
        """A logger whose lines carry task_id, attempt and tenant."""
        return _BoundLog(
            logging.getLogger("despacho.handler"),
            {"task_id": self.task_id, "attempt": self.attempt, "tenant_id": self.tenant_id},
        )
