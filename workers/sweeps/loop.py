"""Runs the sweeps while this process leads: one task each, one turn at a time, and no error ends them."""

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial

from app.runtime import Runtime
from app.store.database import is_transient
from app.telemetry.logs import event
from workers.sweeps import (
    approvals,
    bulk,
    dependencies,
    effects,
    expiry,
    figures,
    llm_calls,
    overrides,
    republish,
    rescuer,
    retention,
    schedules,
    vacuum,
)

log = logging.getLogger("despacho.sweeps")


@dataclass(frozen=True, slots=True)
class Sweep:
    """One sweep: its single turn, how long to rest between turns, and the share of the time it may take at most."""

    name: str
    turn: Callable[[Runtime], Awaitable[int]]
    interval_seconds: float
    most_share: float = 0.5

    def rest_seconds(self, took_seconds: float, draw: float) -> float:
        """Say how long to rest after a turn: the interval give or take a tenth, or longer to keep to the share."""
        due = took_seconds * (1 / self.most_share - 1)
        return max(self.interval_seconds * (0.9 + 0.2 * draw), due)


def sweeps_of(runtime: Runtime) -> tuple[Sweep, ...]:
    """List every sweep with its interval."""
    every_seconds = runtime.settings.retention.interval_seconds
    return (
        Sweep("rescuer", partial(rescuer.run_once, watch=rescuer.watch_of(runtime)), rescuer.INTERVAL_SECONDS),
        Sweep("expiry", expiry.run_once, expiry.INTERVAL_SECONDS),
        Sweep("approvals", approvals.run_once, approvals.INTERVAL_SECONDS),
        Sweep("overrides", overrides.run_once, overrides.INTERVAL_SECONDS, most_share=0.2),
        Sweep("strays", overrides.route_once, overrides.STRAYS_INTERVAL_SECONDS, most_share=0.02),
        Sweep("schedules", schedules.run_once, schedules.INTERVAL_SECONDS),
        Sweep("bulk", bulk.run_once, bulk.INTERVAL_SECONDS),
        Sweep("effects", effects.run_once, effects.INTERVAL_SECONDS, most_share=0.1),
        Sweep("republish", republish.run_once, republish.INTERVAL_SECONDS),
        Sweep("figures", figures.run_once, figures.INTERVAL_SECONDS, most_share=0.05),
        Sweep("llm_calls", partial(llm_calls.run_once, cursor=llm_calls.Cursor()), llm_calls.INTERVAL_SECONDS),
        Sweep(
            "dependencies",
            partial(dependencies.run_once, clock=dependencies.Clock()),
            dependencies.INTERVAL_SECONDS,
            most_share=0.05,
        ),
        Sweep("vacuum", vacuum.run_once, vacuum.INTERVAL_SECONDS, most_share=0.05),
        Sweep("retention", partial(retention.run_once, cursor=retention.Cursor()), every_seconds),
    )


class SweepLoop:
    """The sweeps of one process; they rest while `active(False)` holds, as it does at the start."""

    def __init__(self, runtime: Runtime, sweeps: Sequence[Sweep] | None = None) -> None:
        self._runtime = runtime
        self._sweeps = tuple(sweeps) if sweeps is not None else sweeps_of(runtime)
        self._active = asyncio.Event()

    def active(self, leading: bool) -> None:
        """Say whether this process leads; a turn that is being made is finished."""
        if leading:
            self._active.set()
        else:
            self._active.clear()

    async def run(self, stop: asyncio.Event) -> None:
        """Make turns until `stop` is set; turns that are being made then are finished."""
        await asyncio.gather(*(self._repeat(sweep, stop) for sweep in self._sweeps))

    async def _repeat(self, sweep: Sweep, stop: asyncio.Event) -> None:
        while not stop.is_set():
            if not self._active.is_set():
                await _either(self._active, stop)
                continue
            started = time.monotonic()
            try:
                await sweep.turn(self._runtime)
            except Exception as error:
                level = logging.WARNING if is_transient(error) else logging.ERROR
                event(log, "sweep_failed", level=level, sweep=sweep.name, error=error)
            rest = sweep.rest_seconds(time.monotonic() - started, self._runtime.draw())
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(rest):
                    await stop.wait()


async def _either(*events: asyncio.Event) -> None:
    waits = [asyncio.create_task(one.wait()) for one in events]
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()
