"""The result table of `despacho demo`. Pure: from documents and Task JSON to something that rich can print."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal, InvalidOperation
from typing import cast

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from app.cli.demo_documents import Document

TaskJson = Mapping[str, object]
_NOTHING = "–"
_DIFFERS = "≠"
_LOOK_AT = "!"
_MAX_ALERTS = 20


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table, read from one Task as the REST contract gives it."""

    document: str
    status: str
    category: str
    priority: str
    attempts: int
    seconds: float | None
    tokens: int
    cost_usd: Decimal
    short_alert: str
    alert: str
    compared: bool
    differs: bool


def render_results(results: Sequence[tuple[Document, TaskJson]]) -> RenderableType:
    """Return the table of all results and, under it, the summary; disagreeing declarations are marked."""
    rows = [row_of(document, task) for document, task in results]
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("", no_wrap=True, min_width=1)
    table.add_column("document", overflow="fold", min_width=11)
    table.add_column("category", overflow="fold", min_width=10)
    table.add_column("class, reason", overflow="fold", min_width=6)
    for heading in ("attempts", "seconds", "tokens", "cost"):
        table.add_column(heading, justify="right", no_wrap=True, min_width=len(heading))
    table.add_column("alert", overflow="fold", min_width=7, max_width=24)
    for row in rows:
        table.add_row(*_cells(row), style="yellow" if row.differs else None)
    return Group(table, Text(), Text("\n".join(summary_lines(rows))))


def row_of(document: Document, task: TaskJson) -> Row:
    """Return what the table shows of one task, final or not."""
    result = _table(task.get("result"))
    usage = _table(task.get("usage"))
    error = _table(task.get("error"))
    status = str(task.get("status", ""))
    return Row(
        document=document.name,
        status=status,
        category=str(result.get("category", _NOTHING)) if status == "done" else status,
        priority=f"{task.get('priority_class', _NOTHING)} {task.get('priority_reason_code') or ''}".strip(),
        attempts=_whole(task.get("attempts")),
        seconds=_seconds_between(task.get("started_at"), task.get("finished_at")),
        tokens=_whole(usage.get("input_tokens")) + _whole(usage.get("output_tokens")),
        cost_usd=_money(usage.get("cost_usd")),
        short_alert=_short_alert(result, error),
        alert=_alert(result, error),
        compared=isinstance(result.get("consistent"), bool),
        differs=result.get("consistent") is False,
    )


def summary_lines(rows: Sequence[Row]) -> list[str]:
    """Return the lines under the table: how many, what they are, what they took, and what a person should look at."""
    statuses = Counter(row.status for row in rows)
    categories = Counter(row.category for row in rows if row.status == "done")
    seconds = sum(row.seconds or 0.0 for row in rows)
    attempts = sum(row.attempts for row in rows)
    cost = sum((row.cost_usd for row in rows), Decimal(0))
    lines = [
        f"{_count(len(rows), 'document')}: {_listed(statuses)}; {_count(attempts, 'attempt')}, "
        f"{seconds:.2f} s of work, {_count(sum(row.tokens for row in rows), 'token')}, {_dollars(cost)}"
    ]
    if categories:
        lines.append(f"categories: {_listed(categories)}")
    differing = sum(row.differs for row in rows)
    compared = sum(row.compared for row in rows)
    if compared:
        lines.append(f"declared and found: {compared - differing} agree, {differing} disagree")
    alerts = [row for row in rows if row.alert]
    lines += [f"{_mark(row)} {_printable(row.document)}: {_printable(row.alert)}" for row in alerts[:_MAX_ALERTS]]
    if len(alerts) > _MAX_ALERTS:
        lines.append(f"… and {len(alerts) - _MAX_ALERTS} more")
    return lines


def _mark(row: Row) -> str:
    return _DIFFERS if row.differs else _LOOK_AT if row.alert else ""


def _cells(row: Row) -> list[Text]:
    return [
        Text(_mark(row)),
        Text(_printable(row.document)),
        Text(_printable(row.category), style="" if row.status == "done" else "red"),
        Text(_printable(row.priority)),
        Text(str(row.attempts)),
        Text(_NOTHING if row.seconds is None else f"{row.seconds:.3f}"),
        Text(str(row.tokens)),
        Text(_dollars(row.cost_usd)),
        Text(_printable(row.short_alert)),
    ]


def _alert(result: TaskJson, error: TaskJson) -> str:
    if result.get("alert"):
        return str(result["alert"])
    return f"{error.get('type', 'error')}: {error.get('message', '')}" if error else ""


def _short_alert(result: TaskJson, error: TaskJson) -> str:
    """Return what fits a column: what was declared, or the type of the error; the whole text stands under the table."""
    if result.get("alert"):
        return f"declared {result['expected']}" if result.get("expected") else str(result["alert"])
    return str(error.get("type", "error")) if error else ""


def _table(value: object) -> TaskJson:
    return cast(TaskJson, value) if isinstance(value, Mapping) else {}


def _whole(value: object) -> int:
    return value if isinstance(value, int) else 0


def _money(value: object) -> Decimal:
    try:
        return Decimal(str(value or 0))
    except InvalidOperation:
        return Decimal(0)


def _seconds_between(start: object, end: object) -> float | None:
    if not isinstance(start, str) or not isinstance(end, str):
        return None
    return (datetime.fromisoformat(end) - datetime.fromisoformat(start)).total_seconds()


def _dollars(amount: Decimal) -> str:
    return "$0" if amount == 0 else f"${amount.normalize():f}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _listed(counts: Counter[str]) -> str:
    return ", ".join(f"{count} {name}" for name, count in sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def _printable(text: str) -> str:
    """Return `text` without anything that a terminal would act on: names and messages come from outside."""
    return "".join(char if char.isprintable() else "\ufffd" for char in text)
