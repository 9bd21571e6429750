"""Calls under limits and budgets: what is let through, what is told, and what a refused call leaves."""

from decimal import Decimal
from types import TracebackType

import pytest

from app.domain.errors import Snoozed
from app.domain.llm import LlmFailure
from tests.support.llm_provider import Say
from tests.workers.llm.worlds import LlmWorld
from workers.attempt import Attempt

ASKED = [{"role": "user", "content": "tell me"}]


class Gate:
    """A dependency that notes what it is told; `closed` refuses, `down` has a failed call come back later."""

    def __init__(self, *, closed: bool = False, down: bool = False) -> None:
        self.closed, self.down = closed, down
        self.told: list[object] = []

    def call(
        self,
        name: str,
        *,
        priority_class: str,
        estimated_tokens: float = 0,
        attempt_timeout_seconds: float | None = None,
    ) -> "Gate":
        self.told.append((name, priority_class, estimated_tokens > 0, attempt_timeout_seconds))
        return self

    def used(self, tokens: float) -> None:
        self.told.append(("used", tokens))

    def failed(self, retry_after_seconds: float | None = None) -> None:
        self.told.append(("failed", retry_after_seconds))

    async def __aenter__(self) -> "Gate":
        if self.closed:
            raise Snoozed(3, "dependency_closed")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None and self.down:
            raise Snoozed(4, "dependency_closed") from error


class Spent:
    """A budget without room."""

    async def admit(self, owner: Attempt, *, cost_usd: Decimal = Decimal(0), tokens: int = 0) -> None:
        raise Snoozed(60, "budget")


async def test_a_call_tells_its_dependency_what_it_took_and_how_it_failed(world: LlmWorld) -> None:
    gate = Gate()
    providers = {"fake": world.provider.settings(dependency="llm")}
    ctx = await world.context(world.llm(providers=providers, dependencies=gate))

    answer = await ctx.llm.chat(ASKED)
    world.provider.queue = [Say(status=429, headers={"Retry-After": "9"}), Say(status=400)]
    for _ in range(2):
        with pytest.raises(LlmFailure):
            await ctx.llm.chat(ASKED)

    entered = ("llm", "common", True, 60.0)
    used = ("used", answer.tokens.input + answer.tokens.output)
    assert gate.told == [entered, used, entered, ("failed", 9.0), entered]


async def test_what_is_not_let_through_costs_nothing_and_takes_the_fallback(world: LlmWorld) -> None:
    fallbacks = [{"provider": "other"}]
    providers = {
        "fake": world.provider.settings(dependency="llm", fallbacks=fallbacks),
        "other": world.provider.settings(),
    }
    ctx = await world.context(world.llm(providers=providers, dependencies=Gate(closed=True)))
    assert (await ctx.llm.chat(ASKED)).provider == "other"
    alone = await world.context(
        world.llm(providers={"other": world.provider.settings(dependency="llm")}, dependencies=Gate(closed=True))
    )
    with pytest.raises(Snoozed):
        await alone.llm.chat(ASKED)

    refused = [(await world.calls(one.task_id))[0] for one in (ctx, alone)]
    assert [(row["outcome"], row["cost_usd"], row["input_tokens"]) for row in refused] == [("not_sent", 0, 0)] * 2


async def test_a_failure_that_comes_back_as_a_snooze_is_recorded_as_what_it_was(world: LlmWorld) -> None:
    providers = {"fake": world.provider.settings(dependency="llm", silence_timeout_seconds=0.2)}
    world.provider.say = Say(silent_seconds=20)
    ctx = await world.context(world.llm(providers=providers, dependencies=Gate(down=True)))

    with pytest.raises(Snoozed):
        await ctx.llm.chat(ASKED)

    (row,) = await world.calls(ctx.task_id)
    assert (row["outcome"], row["estimated"]) == ("timeout", True) and row["cost_usd"] > 0


async def test_a_budget_without_room_sends_nothing_but_gives_what_was_paid_before(world: LlmWorld) -> None:
    paid = world.llm()
    first = await world.context(paid)
    await first.llm.chat(ASKED)
    await world.failed(first.owner)

    ctx = await world.context(world.llm(budgets=Spent()), task_id=first.task_id)

    assert (await ctx.llm.chat(ASKED)).replayed
    with pytest.raises(Snoozed):
        await ctx.llm.chat([{"role": "user", "content": "more"}])
    assert world.provider.calls == 1
    assert (await world.calls(ctx.task_id))[-1]["outcome"] == "not_sent"
