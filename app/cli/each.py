"""Doing the same to many: one that fails does not stop the others, and the exit code tells of it."""

import sys
from collections.abc import Callable, Iterable

from rich.console import Console
from rich.progress import Progress

from app.cli.client import text_of
from app.cli.ending import CommandFailed, WrongUsage
from app.cli.output import remark
from app.client.errors import ApiError, UnexpectedAnswer

_A_LOT = 20


def each(ids: Iterable[str], act: Callable[[str], None], *, doing: str) -> None:
    """Call `act` for every id. Raises CommandFailed at the end when some were refused, WrongUsage without any id."""
    wanted = list(ids)
    if not wanted:
        if sys.stdin.isatty():
            raise WrongUsage("no id was given: name some, or - to read them from stdin")
        remark("no id on stdin: nothing to do")
        return
    failed = 0
    shown = Console(stderr=True)
    with Progress(console=shown, transient=True, disable=not shown.is_terminal or len(wanted) < _A_LOT) as progress:
        for one in progress.track(wanted, description=doing):
            try:
                act(one)
            except (ApiError, UnexpectedAnswer) as refused:
                failed += 1
                remark(f"{one}: {text_of(refused)}")
    if failed:
        raise CommandFailed(f"{doing}: {failed} of {len(wanted)} failed")
