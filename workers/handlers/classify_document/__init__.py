"""The built-in task type `classify_document`: see README.md beside this file."""

from workers.handlers.classify_document.handler import classify_document

__all__ = ["classify_document"]
