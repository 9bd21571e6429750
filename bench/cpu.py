"""CPU time and memory of process trees, read from /proc."""

import os
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

_TICK_SECONDS = 1 / os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_AFTER_NAME = 2  # fields before and including the parenthesised name in /proc/<pid>/stat


@dataclass(frozen=True, slots=True)
class Stat:
    """One process: its parent, its CPU seconds (with those of its ended and waited-for children)."""

    pid: int
    parent: int
    cpu_seconds: float


def _read(pid: str) -> Stat | None:
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = text[text.rindex(")") + 2 :].split()
    ticks = sum(int(fields[position - _AFTER_NAME - 1]) for position in (14, 15, 16, 17))
    return Stat(int(pid), int(fields[1]), ticks * _TICK_SECONDS)


def processes() -> dict[int, Stat]:
    found = (_read(path.name) for path in Path("/proc").iterdir() if path.name.isdigit())
    return {stat.pid: stat for stat in found if stat}


def trees(roots: Iterable[int]) -> list[Stat]:
    """Return the processes `roots` and all their living descendants."""
    known = processes()
    children: dict[int, list[int]] = defaultdict(list)
    for stat in known.values():
        children[stat.parent].append(stat.pid)
    found, waiting = [], [pid for pid in roots if pid in known]
    while waiting:
        pid = waiting.pop()
        found.append(known[pid])
        waiting.extend(children[pid])
    return found


def cpu_seconds(roots: Iterable[int]) -> float:
    """Sum the CPU seconds that the trees have used so far, ended children included."""
    return sum(stat.cpu_seconds for stat in trees(roots))


def private_bytes(roots: Iterable[int]) -> dict[int, int]:
    """Return each process's resident memory without what it shares: shared buffers are not growth."""
    return {stat.pid: _private(stat.pid) for stat in trees(roots)}


def _private(pid: int) -> int:
    try:
        pages = Path(f"/proc/{pid}/statm").read_text().split()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return (int(pages[1]) - int(pages[2])) * _PAGE_BYTES
