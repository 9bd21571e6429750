"""`despacho top`: how every class stands, again and again until Ctrl-C; once where nobody watches."""

import time
from collections.abc import Sequence
from typing import Annotated

import typer
from rich.console import Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from app.cli.client import Client, Json
from app.cli.output import cell, console

_COLUMNS = ("name", "waiting", "running", "maximum", "oldest_waiting_seconds", "wait_p95_seconds", "consumers")


def top(
    client: Client,
    every: Annotated[float, typer.Option("--every", min=0.2, help="Seconds between two looks.")] = 2.0,
) -> None:
    """Watch the classes: waiting, running, seats, the oldest, dead letters. Ctrl-C ends."""
    shown = console()
    if not shown.is_terminal:
        shown.print(_look(client))
        return
    with Live(_look(client), console=shown, screen=True, auto_refresh=False) as live:
        while True:
            time.sleep(every)
            live.update(_look(client), refresh=True)


def view(classes: Sequence[Json], dead_letters: Sequence[Json]) -> RenderableType:
    """Return what is shown of one look."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in _COLUMNS:
        table.add_column(
            name.replace("_seconds", " s").replace("_", " "), justify="left" if name == "name" else "right"
        )
    for one in classes:
        stuck = bool(one["waiting"]) and one["consumers"] == 0
        table.add_row(*(cell(one.get(name)) for name in _COLUMNS), style="red" if stuck else None)
    total = sum(group["count"] for group in dead_letters)
    worst = "; ".join(f"{group['count']} {group['error_type']} ({group['type']})" for group in dead_letters[:3])
    return Group(table, Text(), Text(f"dead letters: {total}" + (f", most of all {worst}" if worst else "")))


def _look(client: Client) -> RenderableType:
    return view(client.classes.list(), client.dead_letters.summary()["items"])
