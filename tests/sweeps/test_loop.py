"""Sweeps make turns while their process leads, survive errors, and never overlap themselves."""

import asyncio

from app.runtime import Runtime
from tests.support.eventually import eventually
from workers.sweeps.loop import Sweep, SweepLoop, sweeps_of


class Turns:
    """Counts turns; each `fails_every`th one raises, and two at once are noticed."""

    def __init__(self, fails_every: int = 0) -> None:
        self.made = 0
        self.now = 0
        self.most = 0
        self._fails_every = fails_every

    async def turn(self, runtime: Runtime) -> int:
        self.now += 1
        self.most = max(self.most, self.now)
        await asyncio.sleep(0)
        self.made += 1
        self.now -= 1
        if self._fails_every and self.made % self._fails_every == 0:
            raise RuntimeError("out of order")
        return 1


async def test_turns_are_made_only_while_leading_and_errors_end_nothing(runtime: Runtime) -> None:
    good, bad = Turns(), Turns(fails_every=1)
    loop = SweepLoop(runtime, [Sweep("good", good.turn, 0.001), Sweep("bad", bad.turn, 0.001)])
    stop = asyncio.Event()
    running = asyncio.create_task(loop.run(stop))
    await asyncio.sleep(0)
    assert (good.made, bad.made) == (0, 0)

    loop.active(True)
    await eventually(lambda: good.made > 3 and bad.made > 3)
    loop.active(False)
    await eventually(lambda: good.now == 0)
    loop.active(True)
    before = good.made
    await eventually(lambda: good.made > before)

    stop.set()
    await asyncio.wait_for(running, 5)
    assert (good.most, bad.most) == (1, 1)


async def test_stopping_does_not_wait_for_the_interval(runtime: Runtime) -> None:
    turns, stop = Turns(), asyncio.Event()
    loop = SweepLoop(runtime, [Sweep("slow", turns.turn, 3600.0)])
    loop.active(True)
    running = asyncio.create_task(loop.run(stop))
    await eventually(lambda: turns.made == 1)

    stop.set()

    await asyncio.wait_for(running, 5)


def test_a_dear_turn_rests_so_long_that_it_keeps_to_its_share() -> None:
    async def turn(runtime: Runtime) -> int:
        return 0

    sweep = Sweep("figures", turn, 2.0, most_share=0.05)

    assert sweep.rest_seconds(0.01, 0.5) == 2.0
    assert round(sweep.rest_seconds(10.0, 0.5)) == 190


async def test_every_sweep_makes_a_turn_on_an_empty_database(runtime: Runtime) -> None:
    for sweep in sweeps_of(runtime):
        assert await sweep.turn(runtime) >= 0
