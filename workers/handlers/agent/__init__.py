"""The task type `agent`: see README.md."""

from workers.handlers.agent.handler import agent

__all__ = ["agent"]
