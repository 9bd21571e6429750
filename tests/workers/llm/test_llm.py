"""`ctx.llm` as a handler meets it: answers, shapes, fallbacks, and what a later run gets without paying."""

import asyncio
import json
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
from pydantic import BaseModel

from app.domain.errors import OwnershipLost
from app.domain.lifecycle import Move
from app.domain.llm import LlmFailure, StopReason
from app.domain.outcome import Settlement
from app.llm_settings import ModelPrice
from app.store import llm_calls, llm_usage, retention
from app.store.settlements import settle
from despacho import Tool
from tests.support.llm_provider import INPUT_USD, MODEL, OUTPUT_USD, PRICE, Say
from tests.support.work import rows
from tests.workers.llm.worlds import LlmWorld, a_context
from workers.sweeps import llm_calls as sweep


class Verdict(BaseModel):
    category: str
    consistent: bool


RIGHT = Say(text='{"category": "invoice", "consistent": true}')
WRONG = Say(text='{"category": "invoice"}')


@pytest.mark.parametrize("kind", ["openai", "anthropic"])
async def test_the_same_prompt_streamed_and_not_takes_the_same_tokens_and_cost(world: LlmWorld, kind: str) -> None:
    world.prompt("greet@1", "Say hello to {{name}}")
    world.provider.say = Say(text="hello dear old friend", cached=2)
    llm = world.llm(providers={"fake": world.provider.settings(kind)})

    found = []
    for stream in (False, True):
        ctx = await world.context(llm)
        assert await ctx.llm.complete("greet@1", name="Ana", stream=stream) == "hello dear old friend"
        (call,) = await world.calls(ctx.task_id)
        assert call["streamed"] is stream
        found.append(
            [call[name] for name in ("input_tokens", "output_tokens", "cached_tokens", "cost_usd", "estimated")]
        )

    assert found[0] == found[1]
    read, written, cached, cost, estimated = found[0]
    assert (written, cached, estimated) == (4, 2, False)
    assert cost == (read - 2) * INPUT_USD + 2 * INPUT_USD / 10 + written * OUTPUT_USD
    assert (read, written) == (world.provider.input_tokens / 2, world.provider.output_tokens / 2)


@pytest.mark.parametrize("usage_in", ["last", "empty"])
@pytest.mark.parametrize("done", [True, False])
async def test_usage_is_found_wherever_a_stream_tells_it(world: LlmWorld, usage_in: str, done: bool) -> None:
    world.provider.say = Say(text="one two three", usage_in=usage_in, done=done, reasoning=5)
    ctx = await world.context()

    answer = await ctx.llm.chat([{"role": "user", "content": "count"}], stream=True)

    assert (answer.text, answer.tokens.output, answer.tokens.reasoning) == ("one two three", 8, 5)
    assert not answer.estimated
    assert world.provider.requests[0]["stream_options"] == {"include_usage": True}


async def test_a_provider_without_usage_is_estimated_and_flagged(world: LlmWorld) -> None:
    world.provider.say = Say(text="one two three four", usage=False)
    ctx = await world.context()

    answer = await ctx.llm.chat([{"role": "user", "content": "count to four"}])

    (call,) = await world.calls(ctx.task_id)
    assert answer.estimated and call["estimated"]
    assert call["input_tokens"] > 0 and call["output_tokens"] == 5 and call["cost_usd"] > 0


async def test_a_later_run_gets_every_answer_without_a_call(world: LlmWorld) -> None:
    llm = world.llm()
    first = await world.context(llm)
    world.provider.queue = [Say(text="a"), Say(text="b"), Say(text="c")]
    asked = [{"role": "user", "content": "draw a letter"}]
    drawn = [(await first.llm.chat(asked)).text for _ in range(2)]
    other = (await first.llm.chat([{"role": "user", "content": "another"}])).text
    await world.failed(first.owner)

    second = await world.context(llm, task_id=first.task_id)
    again = [await second.llm.chat(asked) for _ in range(2)]
    new = await second.llm.chat(asked)

    assert (drawn, other) == (["a", "b"], "c")
    assert [one.text for one in again] == drawn and all(one.replayed for one in again)
    assert new.text == "fine" and not new.replayed
    assert world.provider.calls == 4
    assert second.llm.input_tokens == new.tokens.input


async def test_a_call_of_a_dead_attempt_is_not_forgotten(world: LlmWorld) -> None:
    priced = {"dead-1": ModelPrice.model_validate(PRICE)}
    llm = world.llm(providers={"fake": world.provider.settings(model="dead-1", prices=priced)})
    sample = await world.context(llm)
    world.provider.say = Say(text="one two three")
    await sample.llm.chat([{"role": "user", "content": "count"}])
    owner = await world.attempt()
    intent = llm_calls.Intent(
        "call_00000000000000000000000000", owner.task_id, owner.tenant_id, owner.task_type, 1, owner.fence, "chat",
        None, "f", 0, 1, "fake", "dead-1", False, 70, 400, Decimal("1"),
    )  # fmt: skip
    assert await llm_calls.intend(world.runtime.database, [intent]) == {intent.call_id: None}
    assert await llm_calls.intend(world.runtime.database, [intent]) == {intent.call_id: None}
    await sweep.run_once(world.runtime, quiet_seconds=0)
    alive = (await world.calls(owner.task_id))[0]
    await world.failed(owner)

    assert await sweep.run_once(world.runtime, quiet_seconds=0) == 1

    (known,) = await world.calls(sample.task_id)
    (dead,) = await world.calls(owner.task_id)
    assert (alive["outcome"], alive["cost_usd"]) == ("open", Decimal(1))
    assert (dead["outcome"], dead["estimated"], dead["output_tokens"]) == ("unanswered", True, known["output_tokens"])
    assert dead["cost_usd"] == known["cost_usd"]

    finish = llm_calls.Finish(intent.call_id, "answered", 7, 8, False, 1.0, cost_usd=Decimal("0.5"), response="{}")
    await llm_calls.finish(world.runtime.database, [finish])
    (late,) = await world.calls(owner.task_id)
    assert (late["outcome"], late["cost_usd"], late["estimated"]) == ("answered", Decimal("0.5"), False)


async def test_who_lost_its_task_makes_no_call(world: LlmWorld) -> None:
    llm = world.llm()
    late = await world.context(llm)
    await world.failed(late.owner)

    with pytest.raises(OwnershipLost):
        await late.llm.chat([{"role": "user", "content": "x"}])

    assert world.provider.calls == 0
    assert await world.calls(late.task_id) == []


@pytest.mark.parametrize("kind", ["openai", "anthropic"])
@pytest.mark.parametrize("way", ["json_schema", "json_object", "tool", "prompt"])
async def test_an_answer_has_the_shape_that_was_asked_for(world: LlmWorld, kind: str, way: str) -> None:
    world.prompt("check@1", "[system]\nBe brief.\n[user]\n{{text}}")
    said = {"tool": RIGHT.text, "prompt": f"Here it is:\n```json\n{RIGHT.text}\n```"}.get(way, RIGHT.text)
    world.provider.say = Say(text=said, as_tool=way == "tool")
    llm = world.llm(providers={"fake": world.provider.settings(kind, structured=way)})

    for stream in (False, True):
        ctx = await world.context(llm)
        verdict = await ctx.llm.complete("check@1", text="pay 5", returns=Verdict, stream=stream)
        assert verdict == Verdict(category="invoice", consistent=True)

    request = world.provider.requests[0]
    told = json.dumps(request)
    assert "consistent" in told
    assert ("response_format" in request) == (kind == "openai" and way in ("json_schema", "json_object"))
    assert ("tool_choice" in request) == (way == "tool")


async def test_an_answer_that_does_not_fit_is_given_back_once(world: LlmWorld) -> None:
    world.prompt("check@2", "{{text}}")
    world.provider.queue = [WRONG, RIGHT]
    llm = world.llm()
    ctx = await world.context(llm)

    assert (await ctx.llm.complete("check@2", text="x", returns=Verdict)).consistent
    await world.failed(ctx.owner)
    again = await world.context(llm, task_id=ctx.task_id)
    assert (await again.llm.complete("check@2", text="x", returns=Verdict)).consistent

    assert world.provider.calls == 2
    repair = world.provider.requests[1]["messages"]
    assert repair[-2] == {"role": "assistant", "content": WRONG.text}
    assert "consistent: Field required" in repair[-1]["content"]
    assert [(call["turn"], call["outcome"]) for call in await world.calls(ctx.task_id)] == [
        (1, "invalid_output"),
        (2, "answered"),
    ]


async def test_two_answers_that_do_not_fit_are_a_failure_that_names_the_places(world: LlmWorld) -> None:
    world.prompt("check@3", "{{text}}")
    world.provider.say = Say(text='{"category": "sk-CANARY-7", "consistent": "sk-CANARY-7"}')
    llm = world.llm()
    ctx = await world.context(llm)

    with pytest.raises(LlmFailure) as failed:
        await ctx.llm.complete("check@3", text="x", returns=Verdict)
    await world.failed(ctx.owner)
    again = await world.context(llm, task_id=ctx.task_id)
    world.provider.say = RIGHT
    recovered = await again.llm.complete("check@3", text="x", returns=Verdict)

    assert (failed.value.error_type, failed.value.retryable) == ("invalid_output", False)
    assert "consistent" in failed.value.message and "CANARY" not in failed.value.message
    assert recovered.consistent and world.provider.calls == 3


async def test_a_repair_that_failed_is_taken_up_where_it_was_left(world: LlmWorld) -> None:
    world.prompt("check@4", "{{text}}")
    world.provider.queue = [WRONG, Say(status=503), RIGHT]
    llm = world.llm()
    ctx = await world.context(llm)
    with pytest.raises(LlmFailure):
        await ctx.llm.complete("check@4", text="x", returns=Verdict)
    await world.failed(ctx.owner)

    again = await world.context(llm, task_id=ctx.task_id)
    assert (await again.llm.complete("check@4", text="x", returns=Verdict)).consistent

    assert world.provider.calls == 3
    assert len(world.provider.requests[2]["messages"]) == 4


async def test_what_is_no_object_is_wrapped_for_the_model_and_unwrapped_for_the_handler(world: LlmWorld) -> None:
    world.prompt("list@1", "{{text}}")
    world.provider.say = Say(text='{"value": ["a", "b"]}')
    ctx = await world.context()

    assert await ctx.llm.complete("list@1", text="x", returns=list[str]) == ["a", "b"]


async def test_fallbacks_are_tried_in_order_and_every_call_is_recorded(world: LlmWorld) -> None:
    fallbacks = [{"model": "fake-2"}, {"provider": "other"}]
    providers = {
        "fake": world.provider.settings(fallbacks=fallbacks),
        "other": world.provider.settings("anthropic", model="fake-3"),
    }
    world.provider.queue = [Say(status=429), Say(status=529), Say(text="at last")]
    ctx = await world.context(world.llm(providers=providers))

    answer = await ctx.llm.chat([{"role": "user", "content": "x"}])

    calls = await world.calls(ctx.task_id)
    assert (answer.text, answer.provider, answer.model) == ("at last", "other", "fake-3")
    assert [(call["provider"], call["model_asked"], call["outcome"]) for call in calls] == [
        ("fake", MODEL, "rate_limit"),
        ("fake", "fake-2", "overloaded"),
        ("other", "fake-3", "answered"),
    ]
    assert [call["cost_usd"] for call in calls] == [0, 0, None]


async def test_a_failure_of_another_kind_has_no_fallback(world: LlmWorld) -> None:
    providers = {"fake": world.provider.settings(fallbacks=[{"model": "fake-2"}], fallback_on=["rate_limit"])}
    world.provider.say = Say(status=401)
    ctx = await world.context(world.llm(providers=providers))

    with pytest.raises(LlmFailure) as failed:
        await ctx.llm.chat([{"role": "user", "content": "x"}])

    assert (failed.value.error_type, world.provider.calls) == ("permission", 1)


async def test_a_call_that_is_cancelled_in_the_middle_is_paid_for(world: LlmWorld) -> None:
    world.provider.say = Say(text="one two three four five six", drip_seconds=0.2)
    ctx = await world.context()
    call = asyncio.create_task(ctx.llm.chat([{"role": "user", "content": "count"}], stream=True))
    while world.provider.calls == 0:  # noqa: ASYNC110 - the provider is a server without a signal for it
        await asyncio.sleep(0.02)
    await asyncio.sleep(0.3)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call

    (row,) = await world.calls(ctx.task_id)
    assert (row["outcome"], row["estimated"]) == ("cancelled", True)
    assert row["input_tokens"] > 0 and 0 < row["output_tokens"] < 10 and row["cost_usd"] > 0


async def test_tools_come_and_go_in_both_dialects(world: LlmWorld) -> None:
    weather = Tool("weather", "Tells the weather.", {"type": "object", "properties": {"city": {"type": "string"}}})
    for kind in ("openai", "anthropic"):
        world.provider.say = Say(text=None, tool_calls=(("weather", '{"city": "Lima"}'),))
        llm = world.llm(providers={"fake": world.provider.settings(kind)})
        for stream in (False, True):
            ctx = await world.context(llm)
            asked = {"role": "user", "content": "how is it in Lima?"}
            answer = await ctx.llm.chat([asked], tools=[weather], stream=stream)
            (call,) = answer.tool_calls
            assert (call.name, call.arguments) == ("weather", {"city": "Lima"})
            assert answer.stop_reason is StopReason.TOOL_CALLS
            world.provider.queue = [Say(text="sunny")]
            said = [
                asked,
                {"role": "assistant", "content": answer.text, "tool_calls": answer.tool_calls},
                {"role": "tool", "content": "24 degrees", "tool_call_id": call.id},
            ]
            assert (await ctx.llm.chat(said, tools=[weather])).text == "sunny"


async def test_the_ledger_adds_up_by_task_attempt_tenant_and_type(world: LlmWorld) -> None:
    world.prompt("sum@1", "{{text}}")
    llm = world.llm()
    ctx = await world.context(llm)
    await ctx.llm.complete("sum@1", text="x")
    await ctx.llm.complete("sum@1", text="y", model="unknown-model")

    (moment,) = await rows(
        world.runtime, "SELECT clock_timestamp() AS now, clock_timestamp() - interval '1 day' AS past"
    )
    async with world.runtime.database.transaction() as connection:
        by_attempt = await llm_usage.by_attempt(connection, ctx.task_id)
        spent = await llm_usage.spent(connection, since=moment["past"], before=moment["now"])
        typical = await llm_usage.typical(connection, "echo")

    calls = await world.calls(ctx.task_id)
    of_attempt = by_attempt[ctx.owner.fence]
    assert (of_attempt.model, of_attempt.prompt_version) == ("unknown-model", "sum@1")
    assert of_attempt.cost_usd == calls[0]["cost_usd"] and calls[1]["cost_usd"] is None
    (row,) = [one for one in spent if (one.tenant_id, one.task_type) == ("acme", "echo")]
    assert row.calls >= 2 and row.unpriced >= 1 and row.cost_usd >= of_attempt.cost_usd
    assert typical.tasks >= 1 and typical.tokens_per_task > 0


async def test_many_at_once_are_written_together(world: LlmWorld) -> None:
    llm = world.llm()
    ctx = await world.context(llm)
    world.provider.script = lambda body: Say(text=body["messages"][0]["content"])

    answers = await asyncio.gather(*(ctx.llm.chat([{"role": "user", "content": f"n{i}"}]) for i in range(40)))

    assert [answer.text for answer in answers] == [f"n{i}" for i in range(40)]
    assert len(await world.calls(ctx.task_id)) == 40
    page = world.runtime.metrics.render().decode()
    assert 'despacho_llm_calls_total{model="fake-1",outcome="answered",provider="fake",type="echo"} 40.0' in page
    assert "despacho_llm_cost_usd_total{" in page and 'kind="output"' in page


async def test_without_a_provider_the_failure_says_what_to_set(world: LlmWorld) -> None:
    ctx = a_context(await world.attempt(), world.llm(providers={"fake": world.provider.settings()}))

    with pytest.raises(LlmFailure, match="only: fake"):
        await ctx.llm.chat([{"role": "user", "content": "x"}], provider="nobody")


async def test_an_answer_goes_with_its_task_and_its_cost_stays(world: LlmWorld) -> None:
    ctx = await world.context()
    await ctx.llm.chat([{"role": "user", "content": "x"}])
    done = Settlement(ctx.task_id, ctx.owner.fence, Move.FINISH, "done", result="null")
    assert await settle(world.runtime.database, [done])
    soon = datetime.now(UTC) + timedelta(minutes=5)

    window = await retention.remove_tasks(world.runtime.database, above=ctx.task_id[:-1], now=soon, days=1e-9, limit=1)

    (call,) = await world.calls(ctx.task_id)
    assert (window.removed, call["response"]) == (1, None) and call["cost_usd"] > 0
