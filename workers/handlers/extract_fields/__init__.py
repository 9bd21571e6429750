"""The built-in task type `extract_fields`: see README.md beside this file."""

from workers.handlers.extract_fields.handler import extract_fields

__all__ = ["extract_fields"]
