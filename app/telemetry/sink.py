"""Where log lines go: a bounded queue and one thread that writes them, so that no caller ever waits for a pipe.

A full queue drops lines and counts them. A process that is killed loses what it had not written yet, some milliseconds
of lines; one that ends by itself writes them first.
"""

import sys
from collections import deque
from threading import Condition, Thread, get_ident
from time import monotonic
from typing import TextIO

MAX_QUEUED_LINES = 50_000
MAX_LINES_PER_WRITE = 1000


class Sink:
    """A text stream behind a queue. Writing to it never blocks and never raises."""

    def __init__(self, stream: TextIO | None = None, max_lines: int = MAX_QUEUED_LINES) -> None:
        """Write to `stream`; None means whatever `sys.stderr` is at each write."""
        self._stream = stream
        self._max_lines = max_lines
        self.dropped = 0
        self.start()

    def start(self) -> None:
        """Begin with an empty queue and a new thread; a forked child calls it, since it inherits no thread."""
        self._lines: deque[str] = deque()
        self._changed = Condition()
        self._writing = 0
        self._closed = False
        self._thread = Thread(target=self._run, name="log-writer", daemon=True)
        self._thread.start()

    def write(self, lines: list[str]) -> None:
        """Queue lines without their line ends."""
        with self._changed:
            room = self._max_lines - len(self._lines)
            if room < len(lines):
                self.dropped += len(lines) - max(room, 0)
                lines = lines[: max(room, 0)]
            self._lines.extend(lines)
            self._changed.notify_all()

    def flush(self, deadline_seconds: float = 2.0) -> bool:
        """Wait until everything queued is written, or the deadline; say which."""
        if get_ident() == self._thread.ident:
            return False
        until = monotonic() + deadline_seconds
        with self._changed:
            while (self._lines or self._writing) and self._thread.is_alive():
                left = until - monotonic()
                if left <= 0 or not self._changed.wait(left):
                    return False
        return not self._lines

    def close(self, deadline_seconds: float = 2.0) -> None:
        """Write what is queued, within the deadline, and end the thread."""
        self.flush(deadline_seconds)
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._thread.join(deadline_seconds)

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._lines and not self._closed:
                    self._changed.wait()
                if not self._lines:
                    return
                batch = [self._lines.popleft() for _ in range(min(len(self._lines), MAX_LINES_PER_WRITE))]
                self._writing = len(batch)
            try:
                stream = self._stream if self._stream is not None else sys.stderr
                stream.write("\n".join(batch) + "\n")
                stream.flush()
            except Exception:
                # A stream that is gone must not end the process that only wanted to say something.
                with self._changed:
                    self.dropped += len(batch)
            finally:
                with self._changed:
                    self._writing = 0
                    self._changed.notify_all()
