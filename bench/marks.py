"""A shared file of marks: when each numbered task was sent, when its handler started, and how often it ran.

Every system's no-op handler calls `mark(number)`: two array writes into shared memory, well under a microsecond and no
system call, so that the counting is the same for all and costs none of them anything that could be measured.
The standard library alone is used here: the file is imported by every environment that runs a peer.
"""

import mmap
import os
import time
from pathlib import Path

SENT, STARTED, RUNS = range(3)
MARKS_VARIABLE = "BENCH_MARKS"


class Marks:
    """Three arrays of unsigned 64-bit numbers in one mapped file, indexed by the task's number."""

    def __init__(self, path: Path) -> None:
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), 0)
        numbers = memoryview(self._map).cast("Q")
        self.capacity = len(numbers) // 3
        self._arrays = [numbers[part * self.capacity : (part + 1) * self.capacity] for part in range(3)]

    @classmethod
    def create(cls, path: Path, capacity: int) -> "Marks":
        """Make the file with room for task numbers 0 to `capacity` - 1, all unmarked."""
        with path.open("wb") as file:
            file.truncate(capacity * 3 * 8)
        return cls(path)

    def send(self, number: int) -> None:
        self._arrays[SENT][number] = time.monotonic_ns()

    def mark(self, number: int) -> None:
        """Record that the handler of this task started now; only the first start's time is kept."""
        if not self._arrays[STARTED][number]:
            self._arrays[STARTED][number] = time.monotonic_ns()
        self._arrays[RUNS][number] += 1

    def started_ns(self, first: int, count: int) -> list[int]:
        """Return the start times on the monotonic clock; 0 where the handler never ran."""
        return self._arrays[STARTED][first : first + count].tolist()

    def sent_ns(self, first: int, count: int) -> list[int]:
        return self._arrays[SENT][first : first + count].tolist()

    def runs(self, first: int, count: int) -> list[int]:
        return self._arrays[RUNS][first : first + count].tolist()

    def all_started(self, first: int, count: int) -> bool:
        return 0 not in self.started_ns(first, count)


_marks: Marks | None = None


def mark(number: int) -> None:
    """Mark a task in the file that the environment names; what every no-op handler does."""
    global _marks
    if _marks is None:
        _marks = Marks(Path(os.environ[MARKS_VARIABLE]))
    _marks.mark(number)
