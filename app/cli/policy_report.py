"""Showing what came of a simulation: figures as rows, classes as columns; two policies side by side."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich.table import Table
from rich.text import Text

from app.cli.client import Json
from app.cli.output import console, printable
from app.domain.simulation.figures import Checked, Figures, Result
from app.domain.simulation.load import Load, Need

_ALWAYS = (
    "arrived", "started", "done", "waiting", "started_in_window", "wait_p50_seconds", "wait_p95_seconds",
    "wait_p99_seconds", "wait_max_seconds", "starvation_seconds", "seat_share", "nominal_share", "borrowed_share",
    "lent_share", "give_back_max_seconds",
)  # fmt: skip
_TENANTS_SHOWN = 8
_SAME_WITHIN = 1e-9


@dataclass(frozen=True, slots=True)
class Run:
    """One load under one policy; `lacking` are the decisions that it needs and this version does not take."""

    name: str
    load: Load
    result: Result
    checked: Sequence[Checked]
    lacking: Sequence[Need]
    seed: int


def show(run: Run) -> None:
    """Show one run."""
    names = [name for name, figures in run.result.classes.items() if figures["arrived"] or figures["promoted"]]
    table = _titled(run.name, run.load.title)
    table.add_column(f"policy {printable(run.result.policy_version)}")
    for name in names:
        table.add_column(name, justify="right")
    for figure in _rows([run]):
        table.add_row(figure, *(_figure(figure, run.result.classes[name][figure]) for name in names))
    console().print(table)
    _show_tenants(run)
    _show_checked(run)


def show_compared(a: Run, b: Run) -> None:
    """Show two policies under the same load; what differs stands out and has a mark."""
    names = list(dict.fromkeys([*a.result.classes, *b.result.classes]))
    seen = [name for name in names if any(run.result.classes.get(name, {}).get("arrived") for run in (a, b))]
    table = _titled(a.name, a.load.title)
    for heading in ("class", "figure"):
        table.add_column(heading)
    for run, label in ((a, "A"), (b, "B")):
        table.add_column(f"{label}: {printable(run.result.policy_version)}", justify="right")
    table.add_column("")
    for name in seen:
        for at, figure in enumerate(_rows([a, b])):
            left, right = (run.result.classes.get(name, {}).get(figure) for run in (a, b))
            mark = _mark(left, right)
            style = "bold" if mark else "dim"
            table.add_row(
                name if at == 0 else "", figure, _figure(figure, left), _figure(figure, right), mark, style=style
            )
        table.add_section()
    console().print(table)
    for run, label in ((a, "A"), (b, "B")):
        _show_checked(run, label)


def as_json(runs: Sequence[Run]) -> Json:
    """Give everything as JSON values."""
    return [
        {
            "load": run.name,
            "title": run.load.title,
            "policy_version": run.result.policy_version,
            "hours": run.result.hours,
            "seed": run.seed,
            "not_yet_decided": [str(need) for need in run.lacking],
            "classes": {name: dict(figures) for name, figures in run.result.classes.items()},
            "tenants": {name: dict(figures) for name, figures in run.result.tenants.items()},
            "total": dict(run.result.total),
            "expectations": [_checked(one) for one in run.checked],
        }
        for run in runs
    ]


def _checked(one: Checked) -> dict[str, Json]:
    expectation = one.expectation
    return {
        "class": expectation.priority_class,
        "tenant": expectation.tenant,
        "figure": expectation.figure,
        "at_least": expectation.at_least,
        "at_most": expectation.at_most,
        "found": one.found,
        "verdict": _verdict(one),
    }


def _verdict(one: Checked) -> str:
    return "not yet decided" if one.holds is None else "passed" if one.holds else "failed"


def _titled(name: str, title: str) -> Table:
    console().print(Text(f"{printable(name)}: {printable(title)}", style="bold"))
    return Table(box=None, pad_edge=False, header_style="bold")


def _rows(runs: Sequence[Run]) -> list[str]:
    """List the figures worth a row: those that are always looked for, and those that something happened in."""
    every: list[Figures] = [figures for run in runs for figures in run.result.classes.values()]
    found = dict.fromkeys(_ALWAYS)
    found.update(dict.fromkeys(figure for figures in every for figure, value in figures.items() if value))
    order = list(every[0])
    return sorted(found, key=order.index)


def _figure(name: str, value: float | None) -> Text:
    if value is None:
        return Text("–")
    if name.endswith(("_share", "_in_window")) or name == "seat_use":
        return Text(f"{value:.1%}")
    if name.endswith("_seconds"):
        return Text(_duration(value))
    return Text(f"{value:,.2f}".rstrip("0").rstrip("."))


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.1f}s" if seconds % 1 else f"{seconds:.0f}s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h{minutes:02}m" if hours else f"{minutes}m{rest:02}s"


def _mark(left: float | None, right: float | None) -> str:
    if left is None or right is None:
        return "" if left is right else "≠"
    if abs(left - right) <= _SAME_WITHIN * max(1.0, abs(left)):
        return ""
    return "▲" if right > left else "▼"


def _show_tenants(run: Run) -> None:
    """Show the tenants that waited longest."""
    tenants = run.result.tenants
    if len(tenants) < 2:
        return
    longest = sorted(tenants, key=lambda name: (-(tenants[name]["wait_p99_seconds"] or 0), name))
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("tenant")
    columns = ("arrived", "started", "wait_p50_seconds", "wait_p99_seconds", "lead_tasks")
    for column in columns:
        table.add_column(column, justify="right")
    for name in longest[:_TENANTS_SHOWN]:
        table.add_row(printable(name), *(_figure(column, tenants[name][column]) for column in columns))
    console().print(table)
    if len(tenants) > _TENANTS_SHOWN:
        console().print(Text(f"and {len(tenants) - _TENANTS_SHOWN} more tenants, all in -o json", style="dim"))


def _show_checked(run: Run, label: str = "") -> None:
    shown = console()
    styles: Mapping[str, str] = {"passed": "green", "failed": "bold red", "not yet decided": "yellow"}
    for one in run.checked:
        expectation, verdict = one.expectation, _verdict(one)
        bounds = [
            f"{words} {_figure(expectation.figure, bound)}"
            for words, bound in (("at least", expectation.at_least), ("at most", expectation.at_most))
            if bound is not None
        ]
        of = expectation.priority_class or expectation.tenant or "all"
        found = _figure(expectation.figure, one.found)
        text = f"{label + ' ' if label else ''}{verdict}: {of} {expectation.figure} {found}, {' and '.join(bounds)}"
        shown.print(Text(printable(text), style=styles[verdict]))
    if run.lacking:
        needs = ", ".join(run.lacking)
        shown.print(Text(f"not yet decided by this version: it needs {needs}", style="yellow"))
    shown.print()
