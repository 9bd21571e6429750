"""The runtime of a child process: what its worker hands over, and nothing opened before a handler needs it.

The worker hands it over through the pipe: a command line is seen by everybody on the machine, an environment by every
process that the handler starts.
"""

import base64
import logging
import pickle
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import timedelta
from typing import Any, cast

from app.broker.base import BrokerUnreachable, Consumer, Depth, Published, TaskMessage
from app.domain.policy_file import parse_policy
from app.runtime import PolicyHolder, Runtime
from app.settings import Settings
from app.store.database import Database
from app.task_modules import Registry
from app.telemetry.logs import event
from app.telemetry.metrics import Metrics

log = logging.getLogger("despacho.worker")
_CONNECTIONS = {"pool_size": 1, "hot_pool_size": 2}


def handed_over(runtime: Runtime) -> dict[str, Any]:
    """Spell for a new child what its runtime is made of; it holds secrets, so that only the pipe may carry it."""
    given = (runtime.settings, runtime.database.url.get_secret_value(), runtime.name)
    return {"given": _packed(given), **current(runtime)}


def current(runtime: Runtime) -> dict[str, Any]:
    """Spell what may have changed since the child's last task: the policy and the database's clock."""
    policy = runtime.policy.current
    return {
        "policy_version": policy.version,
        "policy": policy.document,
        "clock_ahead_seconds": runtime.clock_ahead.total_seconds(),
    }


def child_runtime(message: Mapping[str, Any], registry: Registry, say: Callable[[dict[str, Any]], None]) -> Runtime:
    """Make the runtime from what was handed over. Metrics and pokes go to the worker; there is no broker."""
    given: tuple[Settings, str, str] = _unpacked(message["given"])
    settings, database_url, name = given
    metrics = cast(Metrics, ForwardedMetrics(say))
    runtime = Runtime(
        settings=settings,
        database=Database(
            database_url,
            settings.database.model_copy(update=_CONNECTIONS),
            application_name=f"despacho-{name}-child"[:63],
            on_retry=metrics.database_retried,
        ),
        broker=_NoBroker(),
        metrics=metrics,
        policy=PolicyHolder(parse_policy(message["policy"])),
        registry=registry,
        name=name,
    )
    runtime.dispatcher_poke.forward = lambda: say({"poke": True})
    refresh(runtime, message)
    return runtime


def refresh(runtime: Runtime, message: Mapping[str, Any]) -> None:
    """Take over what `current` spelled."""
    if message["policy_version"] != runtime.policy.current.version:
        runtime.policy.adopt(parse_policy(message["policy"]))
    runtime.clock_ahead = timedelta(seconds=message["clock_ahead_seconds"])


def _packed(value: object) -> str:
    return base64.b64encode(pickle.dumps(value)).decode()


def _unpacked(text: str) -> Any:
    return pickle.loads(base64.b64decode(text))  # noqa: S301 - only the worker writes to this pipe


class ForwardedMetrics:
    """Stands for a child's `Metrics`: every call with plain arguments is made at the worker, where it is scraped."""

    def __init__(self, say: Callable[[dict[str, Any]], None]) -> None:
        self._say = say

    def __getattr__(self, name: str) -> Callable[..., None]:
        def forward(*arguments: Any, **named: Any) -> None:
            self._say({"metric": name, "arguments": arguments, "named": named})

        return forward


def count_for_child(metrics: Metrics, name: object, arguments: Sequence[Any], named: Mapping[str, Any]) -> None:
    """Make a call that a child forwarded, if there is such a one; a figure is not worth the attempt."""
    if isinstance(name, str) and not name.startswith("_") and callable(vars(Metrics).get(name)):
        try:
            getattr(metrics, name)(*arguments, **named)
        except Exception as error:
            event(log, "child_metric_lost", level=logging.WARNING, metric=name, error=error)


class _NoBroker:
    """What a handler's process has in place of a broker: messages are sent by dispatchers alone."""

    connected = False
    problem = "a handler's process has no broker"

    async def start(self) -> None:
        """Have nothing to start."""

    async def close(self) -> None:
        """Have nothing to close."""

    async def declare(self, classes: Collection[str]) -> None:
        """Raise BrokerUnreachable."""
        raise BrokerUnreachable(self.problem)

    async def publish(self, items: Sequence[tuple[str, TaskMessage]]) -> list[Published]:
        """Send nothing."""
        return [Published.UNREACHABLE] * len(items)

    def consumer(self, classes: Collection[str], prefetch: int) -> Consumer:
        """Raise BrokerUnreachable."""
        raise BrokerUnreachable(self.problem)

    def dead_letter_consumer(self, prefetch: int) -> Consumer:
        """Raise BrokerUnreachable."""
        raise BrokerUnreachable(self.problem)

    async def depths(self, classes: Collection[str]) -> Mapping[str, Depth]:
        """Raise BrokerUnreachable."""
        raise BrokerUnreachable(self.problem)
