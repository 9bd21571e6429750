"""Calls of language models: see README.md."""
