"""The task type `agent`: a model reaches a goal with tools, within limits, and nothing is done or paid twice.

Whatever interrupts it (a crash, a retry, an approval, a reprocessing), the next run walks the same conversation again
from what was kept, and goes on where there is nothing kept. See README.md.
"""

import time
from typing import Any

from app.domain.journal import json_text
from app.domain.llm import LlmFailure, ToolCall
from despacho import DeadLetter, TaskContext, task_type
from workers.handlers.agent.calling import Calling, shown
from workers.handlers.agent.conversation import (
    LAST_TURN,
    TEXT_ONLY,
    TOLD_FAILURES,
    TOO_MANY,
    Opening,
    Reply,
    Tally,
    opening,
    opening_of,
    repeated,
    reply_of,
)
from workers.handlers.agent.limits import Limits, Stopped
from workers.handlers.agent.request import AgentResult, AgentTask, StopReason, ToolUse, Usage
from workers.handlers.agent.schemas import faults, finish_parameters, is_object
from workers.handlers.agent.shelf import Shelf, shelf
from workers.handlers.agent.toolbox import FINISH, AgentTool, toolbox
from workers.llm.messages import Message

_MOST_FRUITLESS = 3
_PROMPT = "agent@1"
_MEANS: dict[str, str] = {
    "turn_limit": "the agent has used up its turns (max_turns)",
    "token_limit": "the next model call would pass max_tokens",
    "cost_limit": "the next model call would pass max_cost_usd",
    "time_limit": "the agent has used up its time (max_seconds)",
    "no_progress": "the model repeats itself, or says nothing that can be used",
    "refused": "the model refuses to go on",
}


@task_type(
    "agent",
    description="A model reaches a goal with tools, within limits of turns, tokens and money.",
    max_attempts=5,
    timeout_seconds=3600,
    cost_class="long",
)
async def agent(ctx: TaskContext, task: AgentTask) -> AgentResult:
    """Reach the goal. Dead-letters what retrying cannot mend, and with `on_limit` `fail` also a limit that is met."""
    run = _Run(ctx, task, shelf())
    try:
        answer, result = await run.whole()
        reason: StopReason = run.ended
    except Stopped as stopped:
        answer, result, reason = None, None, stopped.reason
        if task.on_limit == "fail":
            raise DeadLetter(reason, _MEANS[reason]) from None
    return await run.result(answer, result, reason)


class _Run:
    """One run over the conversation of a task."""

    def __init__(self, ctx: TaskContext, task: AgentTask, shelf_: Shelf) -> None:
        self._ctx = ctx
        self._task = task
        self._settings = shelf_.settings
        self._shelf = shelf_
        self._tools = toolbox(task, shelf_)
        self._calling = Calling(ctx, shelf_, self._tools)
        self._limits = Limits(task.turns, task.tokens, task.cost_usd, task.seconds, task.max_cost_usd is not None)
        self._tally = Tally()
        self._turn = 0
        self.ended: StopReason = "finished"

    async def whole(self) -> tuple[str | None, Any]:
        """Go turn by turn to the answer, or the result. Raises Stopped where a limit is met."""
        begun = opening_of(await self._ctx.step("opening", self._opened))
        messages = list(begun.messages)
        for turn in range(1, self._limits.turns + 1):
            self._turn = turn
            self._ctx.progress((turn - 1) / self._limits.turns, f"turn {turn}")
            if turn == self._limits.turns > 1:
                messages.append(Message("user", LAST_TURN))
            reply = reply_of(await self._asked(begun, messages, turn), turn)
            self._tally.seconds += reply.seconds
            found = await self._heard(begun, messages, reply, turn)
            if found is not None:
                return found
        raise Stopped("turn_limit")

    async def result(self, answer: str | None, result: Any, reason: StopReason) -> AgentResult:
        """Put the result together."""
        spent = await self._ctx.llm.spent()
        tally = self._tally
        tools = [
            ToolUse(name=name, calls=calls, errors=tally.errors[name], findings=sorted(tally.findings[name]))
            for name, calls in tally.calls.items()
        ]
        usage = Usage(
            calls=spent.calls,
            input_tokens=spent.input_tokens,
            output_tokens=spent.output_tokens,
            cost_usd=spent.cost_usd,
            unpriced_calls=spent.unpriced,
        )
        return AgentResult(answer=answer, result=result, stop_reason=reason, turns=self._turn, tools=tools, usage=usage)

    # --- the model ------------------------------------------------------------------------------------------------

    async def _opened(self) -> dict[str, Any]:
        task = self._task
        prompt = await self._ctx.llm.prompt(task.prompt or _PROMPT)
        shown = {name: await tool.shown(self._calling.ctx) for name, tool in self._tools.items()}
        made = opening(
            prompt, task.goal, task.system or "", len(task.documents), shown, task.result_schema,
            salt=self._ctx.task_id,
        )  # fmt: skip
        head = {"provider": prompt.provider, "model": prompt.model, "temperature": prompt.temperature}
        return {**made.kept(), **head, "prompt": prompt.reference, "most": prompt.max_output_tokens}

    async def _asked(self, begun: Opening, messages: list[Message], turn: int) -> dict[str, Any]:
        """Ask the model, or give what an earlier run heard. Raises Stopped, LlmFailure."""
        head = await self._ctx.step("opening", self._opened)
        task, most = self._task, self._task.max_output_tokens or head["most"]
        chosen: dict[str, Any] = {
            "provider": task.provider or head["provider"],
            "model": task.model or head["model"],
            "max_output_tokens": most,
        }

        async def ask() -> dict[str, Any]:
            await self._check(begun, messages, chosen)
            began = time.monotonic()
            text, calls, failure = "", [], None
            try:
                answer = await self._ctx.llm.chat(
                    messages,
                    tools=begun.tools,
                    temperature=head["temperature"],
                    prompt_version=head["prompt"],
                    **chosen,
                )
                text, calls = answer.text, [[call.name, call.raw] for call in answer.tool_calls]
            except LlmFailure as error:
                if error.error_type not in TOLD_FAILURES:
                    raise
                failure = error.error_type
            return {"text": text, "calls": calls, "failure": failure, "seconds": round(time.monotonic() - began, 3)}

        return dict(await self._ctx.step(f"turn {turn}", ask))

    async def _check(self, begun: Opening, messages: list[Message], chosen: dict[str, Any]) -> None:
        tokens, cost_usd = await self._ctx.llm.expected(messages, tools=begun.tools, **chosen)
        spent = await self._ctx.llm.spent()
        if self._limits.cannot_be_kept(spent, cost_usd):
            raise DeadLetter(
                "unpriced_model",
                "max_cost_usd cannot be kept, as nobody knows what the model costs: give its price in "
                "DESPACHO_LLM__PROVIDERS, or leave max_cost_usd out",
            )
        if (reason := self._limits.met(spent, tokens, cost_usd, self._tally.seconds)) is not None:
            raise Stopped(reason)

    async def _heard(
        self, begun: Opening, messages: list[Message], reply: Reply, turn: int
    ) -> tuple[str | None, Any] | None:
        """Do what the model wants; give the end where it has come. Raises Stopped."""
        if reply.failure is not None:
            self._fruitless("refused" if reply.failure in ("refused", "content_filter") else "no_progress")
            messages.append(Message("user", TOLD_FAILURES[reply.failure]))
            return None
        messages.append(repeated(reply))
        if not reply.calls:
            if self._tally.fruitless and self._task.result_schema is None:
                self.ended = "text_answer"
                return reply.text, None
            self._fruitless("no_progress")
            messages.append(Message("user", TEXT_ONLY))
            return None
        useful = False
        for index, call in enumerate(reply.calls, 1):
            if index > self._settings.max_calls_per_turn:
                messages.append(Message("tool", TOO_MANY, tool_call_id=call.id))
                continue
            if call.name == FINISH:
                wrong = self._misfit(call)
                if not wrong:
                    return self._finished(call)
                messages.append(_refusal(call, FINISH, wrong))
                continue
            said, used = await self._done(begun, call, turn, index)
            messages.append(Message("tool", said, tool_call_id=call.id))
            useful = useful or used
        if useful:
            self._tally.fruitless = 0
        else:
            self._fruitless("no_progress")
        return None

    def _fruitless(self, reason: StopReason) -> None:
        self._tally.fruitless += 1
        if self._tally.fruitless >= _MOST_FRUITLESS:
            raise Stopped(reason)

    # --- tools ----------------------------------------------------------------------------------------------------

    async def _done(self, begun: Opening, call: ToolCall, turn: int, index: int) -> tuple[str, bool]:
        """Make one call, and tell what the model is told of it, and whether it could be made."""
        tool = self._tools.get(begun.named.get(call.name, ""))
        if tool is None:
            there = ", ".join([*begun.named, FINISH])
            return f"Not done: there is no such tool. There are: {there}", False
        wrong = ["should be a JSON object"] if call.arguments is None else list(tool.faults(call.arguments))
        if wrong or call.arguments is None:
            return _refused(tool.name, wrong), False
        self._ctx.progress((turn - 1) / self._limits.turns, f"turn {turn}: {tool.name}")
        same = f"{tool.name} {_ordered(call.arguments)}"
        self._tally.same[same] = self._tally.same.get(same, 0) + 1
        if self._tally.same[same] > self._settings.max_identical_calls:
            raise Stopped("no_progress")
        if same in self._tally.acted and not tool.repeatable:
            earlier, text = self._tally.acted[same]
            return f"Not done again: it was done in turn {earlier}, and answered:\n{text}", False
        return await self._made(tool, call.arguments, same, turn, index), True

    async def _made(self, tool: AgentTool, arguments: dict[str, Any], same: str, turn: int, index: int) -> str:
        if self._tally.seconds >= self._limits.seconds:
            raise Stopped("time_limit")
        outcome = await self._calling.call(tool, arguments, turn, index)
        self._tally.note(tool.name, outcome)
        text = shown(tool.name, outcome)
        if self._shelf.is_effect(tool.name) and not outcome["error"]:
            self._tally.acted[same] = (turn, text)
        return text

    def _misfit(self, call: ToolCall) -> list[str]:
        """List what is wrong with the end that the model wants."""
        if call.arguments is None:
            return ["the arguments: should be a JSON object"]
        return faults(finish_parameters(self._task.result_schema), call.arguments)

    def _finished(self, call: ToolCall) -> tuple[str | None, Any]:
        given, schema = call.arguments or {}, self._task.result_schema
        self.ended = "finished"
        if schema is None:
            return str(given["answer"]), None
        return None, given if is_object(schema) else given["result"]


def _refused(name: str, wrong: list[str]) -> str:
    return f"Not done: the arguments of {name} do not fit:\n" + "\n".join(f"- {one}" for one in wrong)


def _refusal(call: ToolCall, name: str, wrong: list[str]) -> Message:
    return Message("tool", _refused(name, wrong), tool_call_id=call.id)


def _ordered(arguments: dict[str, Any]) -> str:
    return json_text({name: arguments[name] for name in sorted(arguments)})
