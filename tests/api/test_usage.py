"""What model calls took, wherever a task, an attempt or a dead letter is shown."""

from decimal import Decimal

from app.domain.lifecycle import Move
from app.domain.outcome import Settlement
from app.ids import mint
from app.store import llm_calls
from app.store.flights import Claimed
from app.store.settlements import settle
from tests.api.world import World
from tests.support.work import claimed

NONE = {
    "input_tokens": 0,
    "output_tokens": 0,
    "cost_usd": "0",
    "prompt_versions": [],
    "unpriced_calls": 0,
    "estimated_calls": 0,
}


async def called(world: World, one: Claimed, prompt: str | None, cost: str | None, *, finished: bool = True) -> None:
    """Have a claimed task make a call."""
    intent = llm_calls.Intent(
        mint("call"), one.task_id, one.tenant_id, one.type, one.attempt, one.fence, prompt or "chat", prompt, mint("f"),
        0, 1, "fake", "m-1", False, 100, 10, Decimal("0.5"),
    )  # fmt: skip
    assert intent.call_id in await llm_calls.intend(world.runtime.database, [intent])
    if finished:
        price = None if cost is None else Decimal(cost)
        finish = llm_calls.Finish(
            intent.call_id, "answered", 1000, 30, False, 1.0, cost_usd=price, model_answered="m-1b"
        )
        await llm_calls.finish(world.runtime.database, [finish])


async def test_usage_is_in_the_task_in_lists_in_attempts_and_in_the_dead_letter(world: World) -> None:
    await world.tenant("acme")
    headers = await world.key("acme", None, scopes=["tasks:read", "tasks:write", "dead_letters:read"])
    paid, free = [(await world.submitted(headers))["task_id"] for _ in range(2)]
    assert (await world.client.get(f"/v1/tasks/{paid}", headers=headers)).json()["usage"] == NONE
    (one,) = await claimed(world.runtime, [paid])
    await called(world, one, "b@2", "0.0000003")
    await called(world, one, "a@1", "0.1")
    await called(world, one, "a@1", None)

    usage = (await world.client.get(f"/v1/tasks/{paid}", headers=headers)).json()["usage"]
    listed = (await world.client.get("/v1/tasks", headers=headers)).json()["items"]
    (attempt,) = (await world.client.get(f"/v1/tasks/{paid}/attempts", headers=headers)).json()["items"]

    assert usage == {
        "input_tokens": 3000,
        "output_tokens": 90,
        "cost_usd": "0.1000003",
        "prompt_versions": ["a@1", "b@2"],
        "unpriced_calls": 1,
        "estimated_calls": 0,
    }
    assert {item["task_id"]: item["usage"] for item in listed} == {paid: usage, free: NONE}
    names = ("provider", "model", "prompt_version", "input_tokens", "output_tokens", "cost_usd")
    assert [attempt[name] for name in names] == ["fake", "m-1b", "a@1", 3000, 90, "0.1000003"]

    letter = Settlement(
        paid, one.fence, Move.DEAD_LETTER, "failed", error_type="refused", error_message="x", error_retryable=False,
        dead_letter_id=mint("dead"),
    )  # fmt: skip
    await settle(world.runtime.database, [letter])
    story = (await world.client.get(f"/v1/dead-letters/{paid}", headers=headers)).json()
    assert story["attempts"][0]["cost_usd"] == "0.1000003"


async def test_a_call_in_flight_counts_as_estimated_and_money_is_plain_digits(world: World) -> None:
    await world.tenant("globex")
    headers = await world.key("globex", None, scopes=["tasks:read", "tasks:write"])
    task_id = (await world.submitted(headers))["task_id"]
    (one,) = await claimed(world.runtime, [task_id])
    await called(world, one, "a@1", "0.000000300", finished=True)
    tiny = (await world.client.get(f"/v1/tasks/{task_id}", headers=headers)).json()["usage"]["cost_usd"]
    await called(world, one, "a@1", None, finished=False)

    usage = (await world.client.get(f"/v1/tasks/{task_id}", headers=headers)).json()["usage"]

    assert tiny == "0.0000003"
    assert (usage["cost_usd"], usage["estimated_calls"], usage["unpriced_calls"]) == ("0.5000003", 1, 0)
