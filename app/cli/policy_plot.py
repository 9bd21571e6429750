"""Plots of a simulation: bars in the terminal, and one SVG file. SVG is text, so that no drawing library is needed."""

from collections.abc import Sequence
from html import escape

from rich.text import Text

from app.cli.output import console, printable
from app.cli.policy_report import Run

_BARS = " ▁▂▃▄▅▆▇█"
_WIDTH = 60
_COLOURS = (
    "#c62828",
    "#ef6c00",
    "#1565c0",
    "#558b2f",
    "#6a1b9a",
    "#00838f",
    "#4e342e",
    "#37474f",
    "#ad1457",
    "#9e9d24",
)
_PANEL_WIDTH, _PANEL_HEIGHT, _MARGIN = 820, 170, 60


def bars(runs: Sequence[Run]) -> None:
    """Draw waiting and running by class over time in the terminal."""
    for run in runs:
        series = run.result.series
        text = Text(f"{printable(run.result.policy_version)}: {run.result.hours:g} h from left to right\n", style="dim")
        for what, by_class in (("waiting", series.waiting), ("running", series.running)):
            for name, values in by_class.items():
                if any(values):
                    text.append(f"{name:<16} {what} {_bar(values)} most {max(values):,}\n")
        console().print(text)


def _bar(values: Sequence[int]) -> str:
    most = max(values)
    size = max(1, len(values) // _WIDTH)
    parts = [max(values[at : at + size]) for at in range(0, len(values), size)]
    return "".join(_BARS[-(-part * (len(_BARS) - 1) // most)] for part in parts)


def svg(runs: Sequence[Run]) -> str:
    """Draw waiting and running by class over time, one pair of panels for each run, below each other."""
    panels: list[str] = []
    height = 20
    for run in runs:
        series = run.result.series
        for what, by_class in (("waiting", series.waiting), ("running", series.running)):
            title = f"{run.name}, policy {run.result.policy_version}: tasks {what}"
            drawn = {name: values for name, values in by_class.items() if any(values)}
            panels.append(_panel(title, drawn, list(by_class), run.result.hours, height))
            height += _PANEL_HEIGHT + _MARGIN
    width = _PANEL_WIDTH + 2 * _MARGIN + 120
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
        'font-family="sans-serif" font-size="12"><rect width="100%" height="100%" fill="white"/>'
        f"{''.join(panels)}</svg>\n"
    )


def _panel(title: str, drawn: dict[str, Sequence[int]], names: Sequence[str], hours: float, top: float) -> str:
    most = max((max(values) for values in drawn.values()), default=0) or 1
    left, base = _MARGIN, top + 20 + _PANEL_HEIGHT
    parts = [f'<text x="{left}" y="{top + 10:g}" font-weight="bold">{_text(title)}</text>']
    for share in (0.0, 0.5, 1.0):
        y = base - share * _PANEL_HEIGHT
        parts.append(f'<line x1="{left}" y1="{y:g}" x2="{left + _PANEL_WIDTH}" y2="{y:g}" stroke="#ddd"/>')
        parts.append(f'<text x="{left - 6}" y="{y + 4:g}" text-anchor="end">{most * share:,.0f}</text>')
        x = left + share * _PANEL_WIDTH
        parts.append(f'<text x="{x:g}" y="{base + 16:g}" text-anchor="middle">{hours * share:g} h</text>')
    for at, (name, values) in enumerate(drawn.items()):
        colour = _COLOURS[names.index(name) % len(_COLOURS)]
        step = _PANEL_WIDTH / max(1, len(values) - 1)
        points = " ".join(
            f"{left + number * step:.1f},{base - value / most * _PANEL_HEIGHT:.1f}"
            for number, value in enumerate(values)
        )
        parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.5"/>')
        y = top + 30 + 16 * at
        parts.append(f'<text x="{left + _PANEL_WIDTH + 10}" y="{y:g}" fill="{colour}">{_text(name)}</text>')
    return "".join(parts)


def _text(value: str) -> str:
    return escape(printable(value))
