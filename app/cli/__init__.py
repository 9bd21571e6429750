"""The command line: `despacho`, or `python -m app`. See README.md in this folder for its map."""

from app.cli.program import main

__all__ = ["main"]
