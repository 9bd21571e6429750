"""The built-in task type `classify_document`: see README.md beside this file."""
