"""Queues that take messages and never answer. Pure.

A quorum queue whose node was killed moments after the queue was declared can come back without a leader (RabbitMQ 3.10:
the queue is in its table, its registration in Raft's is lost): publishes get no confirm and consumers an error, for
ever. Deleting it and declaring it anew mends it; a message is an intention, so nothing is lost with those in it.
"""

from collections.abc import Iterable

from app.broker.base import Published

STUCK_AFTER_SECONDS = 10.0


class StuckQueues:
    """Notes, per class, since when its queue has answered nothing on a connection that is otherwise well."""

    def __init__(self, after_seconds: float = STUCK_AFTER_SECONDS) -> None:
        self._after_seconds = after_seconds
        self._silent_since: dict[str, float] = {}

    def forget(self) -> None:
        """Begin anew: the connection is another, or the broker takes no messages for now."""
        self._silent_since.clear()

    def seen(self, outcomes: Iterable[tuple[str, Published]], asked_at: float, now: float) -> list[str]:
        """Take what became of (class, message)s published at `asked_at`; return the classes to mend, each once."""
        silent: dict[str, bool] = {}
        for name, outcome in outcomes:
            silent[name] = silent.get(name, True) and outcome is Published.UNKNOWN
        stuck = []
        for name, is_silent in silent.items():
            if not is_silent:
                self._silent_since.pop(name, None)
            elif now - self._silent_since.setdefault(name, asked_at) >= self._after_seconds:
                del self._silent_since[name]
                stuck.append(name)
        return stuck
