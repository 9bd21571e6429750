"""Showing answers: tables for people, JSON and bare ids for pipes. Results go to stdout, remarks to stderr."""

import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum

from rich.console import Console
from rich.table import Table
from rich.text import Text

from app.cli.client import Json

ROWS_OF_A_TABLE = 50
ALL_ROWS = 1_000_000
"""For lists that come in one piece."""
_PIPED_WIDTH = 140
_NOTHING = "–"


class Format(StrEnum):
    """How to show it."""

    TABLE = "table"
    JSON = "json"
    IDS = "ids"


def show_list(
    items: Iterable[Json], *, output: Format, columns: Sequence[str], id_of: Callable[[Json], str], limit: int | None
) -> None:
    """Show items as they come. A table ends after `limit` rows (default 50) and says so; the others are complete."""
    if output is Format.IDS:
        for item in items:
            print(id_of(item))  # noqa: T201 - the result
    elif output is Format.JSON:
        _show_json_list(items)
    else:
        _show_table(items, columns, limit or ROWS_OF_A_TABLE)


def wanted(output: Format, limit: int | None) -> int | None:
    """Say how many items to ask for: one more than a table shows, so that it can say that there are more."""
    return limit if limit is not None or output is not Format.TABLE else ROWS_OF_A_TABLE + 1


def show_one(item: Json, *, output: Format, id_of: Callable[[Json], str], fields: Sequence[str] | None = None) -> None:
    """Show one thing: its fields line by line, its JSON, or its id."""
    if output is Format.IDS:
        print(id_of(item))  # noqa: T201 - the result
    elif output is Format.JSON or not isinstance(item, Mapping):
        print(json.dumps(item, ensure_ascii=False, indent=2))  # noqa: T201 - the result
    else:
        table = Table(box=None, show_header=False, pad_edge=False)
        table.add_column(style="bold", no_wrap=True)
        table.add_column(overflow="fold")
        for name in fields or list(item):
            if item.get(name) not in (None, {}, []):
                table.add_row(name, cell(item.get(name)))
        console().print(table)


def cell(value: Json) -> Text:
    """Return a value as it stands in a table, without anything that a terminal would act on."""
    if value is None:
        return Text(_NOTHING)
    if isinstance(value, bool):
        return Text("yes" if value else "no")
    if isinstance(value, float):
        return Text(f"{value:.3f}".rstrip("0").rstrip("."))
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return Text(printable(text))


def printable(text: str) -> str:
    """Return `text` without anything but line ends that a terminal would act on."""
    return "".join(char if char.isprintable() or char == "\n" else "\ufffd" for char in text)


def console() -> Console:
    """Return the console of results; where they are piped it is as wide as a table needs."""
    return Console() if sys.stdout.isatty() else Console(width=_PIPED_WIDTH)


def remark(text: str) -> None:
    """Say something that is no result."""
    sys.stderr.write(printable(text) + "\n")


def _show_json_list(items: Iterable[Json]) -> None:
    """Write one array, item by item: a long list is never held in memory."""
    separator = "["
    for item in items:
        sys.stdout.write(separator + "\n  " + json.dumps(item, ensure_ascii=False))
        separator = ","
    sys.stdout.write("[]\n" if separator == "[" else "\n]\n")


def _show_table(items: Iterable[Json], columns: Sequence[str], limit: int) -> None:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in columns:
        table.add_column(name, overflow="fold")
    shown = 0
    more = False
    for item in items:
        if shown == limit:
            more = True
            break
        table.add_row(*(cell(item.get(name)) for name in columns))
        shown += 1
    if shown:
        console().print(table)
    else:
        remark("nothing found")
    if more:
        remark(f"these are the first {limit}; --limit N shows more, and -o json or -o ids shows all")
