"""What a run prints and keeps: plain tables on the terminal, everything as JSON in `bench/results/`."""

import json
import os
import platform
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

from bench.agents import KINDS, AgentDrain, ratio
from bench.flat import Depth
from bench.rounds import Sample, percentile
from bench.scenarios import QUIET_PER_SECOND, SLEEP_IDEAL, Memory, Posts, Quiet
from bench.system import ROOT, System
from bench.systems import Missing

OURS = "despacho"
RESULTS = ROOT / "bench" / "results"
WANTED_RATIOS = {"dramatiq": 3.0, "taskiq": 4.0, "celery": 12.0, "procrastinate": 10.0, "oban": 1.0, "awa": 1.0}
"""How many times the peer's drain the product's should be."""

Row = Sequence[object]


def table(header: Row, rows: Sequence[Row]) -> str:
    """Lay out rows in columns: the first to the left, the others to the right."""
    cells = [[_text(cell) for cell in row] for row in (header, *rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(header))]
    lines = [
        "  ".join(
            cell.ljust(width) if not at else cell.rjust(width)
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in cells
    ]
    return "\n".join(
        [lines[0].rstrip(), "  ".join("-" * width for width in widths), *(line.rstrip() for line in lines[1:])]
    )


def _text(cell: object) -> str:
    if isinstance(cell, float):
        return f"{cell:,.0f}" if abs(cell) >= 100 else f"{cell:.2g}" if abs(cell) < 1 else f"{cell:.1f}"
    return f"{cell:,}" if isinstance(cell, int) else str(cell)


def middle(samples: Sequence[Sample], figure: str) -> float:
    return float(statistics.median(getattr(sample, figure) for sample in samples))


def drain_table(results: Mapping[str, list[Sample]], titles: Mapping[str, str]) -> str:
    """Medians over the rounds, and how many times each peer the product is."""
    ours = results.get(OURS)
    header = (
        "system",
        "tasks",
        "drain/s",
        "range",
        "ours is",
        "end to end/s",
        "enqueue batch/s",
        "one by one/s",
        "pickup p50",
        "p99 ms",
    )
    rows = []
    for name, samples in sorted(results.items(), key=lambda item: -middle(item[1], "drain")):
        drains = [sample.drain for sample in samples]
        pickups = [value for sample in samples for value in sample.pickup_ms]
        ratio = f"{middle(ours, 'drain') / middle(samples, 'drain'):.1f} x" if ours and name != OURS else ""
        rows.append(
            (
                titles[name],
                samples[0].tasks,
                statistics.median(drains),
                f"{min(drains):,.0f}-{max(drains):,.0f}",
                ratio,
                middle(samples, "end_to_end"),
                middle(samples, "enqueue_batch"),
                middle(samples, "enqueue_one_by_one"),
                percentile(pickups, 0.5),
                percentile(pickups, 0.99),
            )
        )
    return table(header, rows)


def ratio_lines(results: Mapping[str, list[Sample]], titles: Mapping[str, str]) -> list[str]:
    """Say of each wanted ratio whether this run reached it."""
    if OURS not in results:
        return []
    ours = middle(results[OURS], "drain")
    lines = []
    for name, wanted in WANTED_RATIOS.items():
        if name in results:
            ratio = ours / middle(results[name], "drain")
            lines.append(
                f"{titles[name]}: {ratio:.1f} x, wanted {wanted:.0f} x: {'reached' if ratio >= wanted else 'MISSED'}"
            )
    return lines


def cpu_table(results: Mapping[str, list[Sample]], titles: Mapping[str, str]) -> str:
    """Where the time goes: CPU microseconds per task of the drain, by kind of process."""
    kinds = ("PostgreSQL", "RabbitMQ", "Python")
    rows = []
    for name, samples in results.items():
        used = [statistics.median(sample.cpu_us[kind] for sample in samples) for kind in kinds]
        rows.append((titles[name], *used, sum(used)))
    return table(("CPU us per task (drain)", *kinds, "all"), sorted(rows, key=lambda row: float(str(row[-1]))))


def posts_table(posts: Sequence[Posts]) -> str:
    bare = statistics.median(each.bare for each in posts)
    accepted = statistics.median(each.accepted for each in posts)
    whole = statistics.median(each.end_to_end for each in posts)
    share = statistics.median(each.generator_cpu_share for each in posts)
    return table(
        ("single POSTs, 64 connections", "per s", "of bare"),
        [
            ("bare FastAPI endpoint, same body model", bare, ""),
            ("accepted (no workers running)", accepted, f"{accepted / bare:.0%}"),
            ("POST until done, workers running", whole, f"{whole / bare:.0%}"),
            ("(the generator used of one core)", f"{share:.0%}", ""),
        ],
    )


def quiet_table(quiet: Quiet) -> str:
    rows = [(name, *values) for name, values in asdict(quiet).items()]
    return table((f"quiet, {QUIET_PER_SECOND:.0f} POSTs/s: ms after sending", "p50", "p99"), rows)


def agents_table(drains: Sequence[AgentDrain]) -> str:
    """Medians over the rounds, and the median of the rounds' ratios."""
    rows: list[Row] = []
    for kind in KINDS:
        own = [each for each in drains if each.kind == kind]
        figures = [statistics.median(getattr(each, name) for each in own) for name in ("rate", "commits")]
        used = [statistics.median(getattr(each, name) for each in own) for name in ("postgres_us", "python_us")]
        rows.append((kind, figures[0], f"{ratio(drains, kind):.0%}", f"{figures[1]:.3f}", *used))
    return table(("a task with", "drain/s", "of no-op", "commits", "PostgreSQL us", "Python us"), rows)


def sleepers_line(rates: Sequence[float]) -> str:
    rate = statistics.median(rates)
    return f"sleepers, 2,000 x 10 ms at concurrency 100: {rate:,.0f}/s = {rate / SLEEP_IDEAL:.0%} of the ideal"


def flat_table(depths: Sequence[Depth]) -> str:
    first, last = depths[0], depths[-1]
    rows: list[Row] = [
        (f"{each.rows:,} finished and {each.rows:,} waiting", each.drain, each.postgres_us) for each in depths
    ]
    rows.append(("times", first.drain / last.drain, last.postgres_us / first.postgres_us))
    return table(("flat: rows in the tables", "drain/s", "PostgreSQL us/task"), rows)


def memory_table(memory: Memory) -> str:
    rows = [(name, sizes[0], sizes[len(sizes) // 2], sizes[-1]) for name, sizes in memory.mebibytes.items()]
    return table((f"private memory, MiB, over {memory.tasks:,} tasks", "10%", "half", "end"), rows)


def setting_lines(systems: Sequence[System], missing: Sequence[Missing]) -> list[str]:
    lines = []
    for system in systems:
        versions = ", ".join(f"{name} {version}" for name, version in system.versions.items())
        lines.append(
            f"{system.spec.title} ({versions or 'this tree'}): {system.spec.settings}; batch: {system.spec.batch}"
        )
    return lines + [f"{each.name}: not run: {each.reason}" for each in missing]


def machine() -> dict[str, object]:
    model = next((line.split(":")[1].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")), "")
    return {"cores": os.cpu_count(), "cpu": model, "python": platform.python_version(), "kernel": platform.release()}


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text().split("\n")
    except OSError:
        return []


def keep(report: Mapping[str, object]) -> Path:
    """Write the whole report as JSON and return its path."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{datetime.now(UTC):%Y-%m-%dT%H-%M-%SZ}.json"
    path.write_text(json.dumps(report, indent=1, default=_plain))
    return path


def _plain(value: object) -> object:
    return asdict(value)  # type: ignore[call-overload]
