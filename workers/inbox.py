"""What a worker has received and not claimed yet, in the order in which it will be claimed.

By the rank of its class, and inside a class in turns between tenants: what lies here was released ahead, and a tenant
that comes late must not wait behind everything that another had released.
"""

from collections import OrderedDict, deque
from collections.abc import Callable, Iterator

from app.broker.base import Delivery, TaskMessage

Entry = tuple[Delivery, TaskMessage]
_Waiting = tuple[float, Delivery, TaskMessage]


class Inbox:
    """Deliveries that wait for a slot; `rank_of` gives the rank of a class, 0 first."""

    def __init__(self, rank_of: Callable[[str], int]) -> None:
        self._rank_of = rank_of
        self._ranks: dict[int, OrderedDict[str, deque[_Waiting]]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, at_seconds: float, delivery: Delivery, message: TaskMessage) -> None:
        """Put a delivery that arrived `at_seconds` (the loop's clock) behind those of its tenant."""
        tenants = self._ranks.setdefault(self._rank_of(delivery.priority_class), OrderedDict())
        line = tenants.get(message.tenant_id)
        if line is None:
            line = tenants[message.tenant_id] = deque()
        line.append((at_seconds, delivery, message))
        self._count += 1

    def take(self, count: int) -> list[Entry]:
        """Take up to `count` in the order of turns."""
        taken: list[Entry] = []
        for rank in sorted(self._ranks):
            tenants = self._ranks[rank]
            while tenants and len(taken) < count:
                tenant, line = tenants.popitem(last=False)
                _, delivery, message = line.popleft()
                taken.append((delivery, message))
                if line:
                    tenants[tenant] = line
        self._count -= len(taken)
        return taken

    def take_older(self, than_seconds: float, count: int) -> list[Entry]:
        """Take up to `count` of those that arrived before a moment, whatever their turn."""
        taken: list[Entry] = []
        for tenants in self._ranks.values():
            for tenant in list(tenants):
                line = tenants[tenant]
                while line and line[0][0] <= than_seconds and len(taken) < count:
                    _, delivery, message = line.popleft()
                    taken.append((delivery, message))
                if not line:
                    del tenants[tenant]
        self._count -= len(taken)
        return taken

    def oldest_seconds(self) -> float:
        """Tell when the longest-waiting one arrived. Raises ValueError when nothing waits."""
        return min(line[0][0] for line in self._lines())

    def _lines(self) -> Iterator[deque[_Waiting]]:
        for tenants in self._ranks.values():
            yield from tenants.values()
