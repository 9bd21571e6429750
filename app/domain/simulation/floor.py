"""The workers: pools of seats, and who sits where. A running task cannot be moved to another pool."""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from random import Random

from app.domain.capacity import Pool
from app.domain.simulation.load import SeatPool
from app.domain.simulation.tasks import Task


@dataclass(slots=True)
class Place:
    """One pool as it is now. Seats that went away are given up when their tasks end."""

    classes: frozenset[str]
    seats: int
    running: dict[str, Task] = field(default_factory=dict)

    @property
    def free(self) -> int:
        """Count the seats that nobody sits on."""
        return max(0, self.seats - len(self.running))


class Floor:
    """All pools, and what was released and waits for a seat that serves its class."""

    def __init__(self, pools: Iterable[SeatPool], names: Iterable[str]) -> None:
        self._names = tuple(names)
        every = frozenset(self._names)
        self.places = {pool.name: Place(pool.classes or every, pool.seats) for pool in pools}
        self._standing: dict[str, deque[Task]] = {name: deque() for name in self._names}
        self.pools: tuple[Pool, ...] = ()
        self._gather()

    def _gather(self) -> None:
        seats: dict[frozenset[str], int] = {}
        for place in self.places.values():
            seats[place.classes] = seats.get(place.classes, 0) + place.seats
        ordered = sorted(seats.items(), key=lambda item: sorted(item[0]))
        self.pools = tuple(Pool(classes, count) for classes, count in ordered)
        self.seats = sum(seats.values())

    def resize(self, name: str, seats: int) -> None:
        """Give a pool so many seats; what runs beyond them ends in its time."""
        self.places[name].seats = seats
        self._gather()

    def kill(self, name: str, count: int, draw: Random) -> list[Task]:
        """Take so many seats away at once, whoever sits on them; returns the tasks that lost their worker."""
        place = self.places[name]
        taken: list[Task | None] = [*place.running.values(), *[None] * place.free]
        victims = [task for task in draw.sample(taken, min(count, len(taken))) if task is not None]
        for task in victims:
            del place.running[task.task_id]
        place.seats = max(0, place.seats - count)
        self._gather()
        return victims

    def seat(self, task: Task) -> bool:
        """Seat a released task where the fewest classes could sit; without a free seat it stands in line."""
        fitting = [
            (len(place.classes), name)
            for name, place in self.places.items()
            if task.class_name in place.classes and place.free
        ]
        if not fitting:
            self._standing[task.class_name].append(task)
            return False
        task.pool = min(fitting)[1]
        self.places[task.pool].running[task.task_id] = task
        return True

    def leave(self, task: Task) -> None:
        """Free the task's seat."""
        self.places[task.pool].running.pop(task.task_id, None)

    def next_standing(self) -> Task | None:
        """Take out the first, by rank, of those in line for whom a seat is free now."""
        for name in self._names:
            line = self._standing[name]
            if line and any(name in place.classes and place.free for place in self.places.values()):
                return line.popleft()
        return None

    @property
    def is_standing(self) -> bool:
        """Say whether anybody stands in line."""
        return any(self._standing.values())

    def running(self) -> list[Task]:
        """List what runs."""
        return [task for place in self.places.values() for task in place.running.values()]
