"""`ctx.delegate`: send once, come back until it is done. What was sent and what came is in the task's journal.

The message's id is a digest of the task and the delegation's name, so that a send that is repeated because its answer
was lost is the same message to the agent. Between two looks the task holds no worker.
"""

import contextlib
import hashlib
from datetime import datetime
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter, ValidationError

from app.domain.errors import DeadLetter, Retry, Snoozed
from app.domain.journal import NotJson, check_step_name, json_text
from app.runtime import Runtime
from workers.a2a.agents import Agents
from workers.a2a.answers import FAILURES, WORKING, DelegatedAnswer, kept_answer, parts_of_task, state_of
from workers.extra import load_extra

if TYPE_CHECKING:
    from workers.context import TaskContext

AWAITING = "awaiting_agent"


class Delegations:
    """The delegations of one process."""

    def __init__(self, runtime: Runtime, agents: Agents) -> None:
        self._runtime = runtime
        self._settings = runtime.settings.a2a
        self._agents = agents

    async def close(self) -> None:
        """Close the connections to agents."""
        await self._agents.close()

    async def delegate(
        self,
        context: "TaskContext",
        agent: str,
        message: Any,
        *,
        name: str,
        returns: Any,
        timeout_seconds: float | None,
    ) -> Any:
        """Have an agent do something; see `TaskContext.delegate`."""
        check_step_name(name)
        sent = await self._sent(context, agent, message, name)
        answer = sent["answer"]
        if answer is None:
            # Kept as a step, so that a later run of the task has it although the agent may have forgotten.
            answer = await context.step(f"a2a.answer:{name}", self._look, agent, sent, timeout_seconds)
        if returns is not None:
            return _typed(answer, returns)
        return DelegatedAnswer(
            agent, sent["remote_task_id"], answer["text"], tuple(answer["data"]), tuple(answer["findings"]),
            tuple(answer["dropped"]),
        )  # fmt: skip

    async def _sent(self, context: "TaskContext", agent: str, message: Any, name: str) -> dict[str, Any]:
        """Send the message, or give what an earlier run sent. Raises DeadLetter where it was another message."""
        try:
            digest = hashlib.sha256(json_text([agent, message]).encode()).hexdigest()
        except NotJson as error:
            raise DeadLetter("invalid_delegation", f"the message should be text or JSON; it has {error}") from None

        async def send() -> dict[str, Any]:
            return {"digest": digest, **await self._send(context, agent, message, name)}

        sent: dict[str, Any] = await context.step(f"a2a.send:{name}", send)
        if sent["digest"] != digest:
            raise DeadLetter(
                "delegation_changed",
                f"the delegation {name!r} was sent to another agent or with another message in an earlier run:"
                " give each its own name=",
            )
        return sent

    async def _send(self, context: "TaskContext", agent: str, message: Any, name: str) -> dict[str, Any]:
        load_extra("a2a")
        from a2a.client.client import ClientCallContext
        from a2a.types.a2a_pb2 import Message, Part, Role, SendMessageRequest
        from google.protobuf.json_format import ParseDict
        from google.protobuf.struct_pb2 import Value

        owner = context.owner
        part = Part(text=message) if isinstance(message, str) else Part(data=ParseDict(message, Value()))
        request = SendMessageRequest(
            message=Message(message_id=message_id_of(owner.task_id, name), role=Role.ROLE_USER, parts=[part])
        )
        traced = {"traceparent": owner.traceparent} if owner.traceparent else {}
        call = ClientCallContext(service_parameters=traced)

        async def asking(client: Any) -> Any:
            async for answer in client.send_message(request, context=call):
                return answer
            return None

        answer = await self._agents.ask(agent, asking)
        began = self._runtime.now().isoformat()
        most = self._settings.max_answer_bytes
        if answer is not None and answer.HasField("message"):
            return {"remote_task_id": None, "began_at": began, "answer": kept_answer(answer.message.parts, most)}
        if answer is None or not answer.HasField("task") or not answer.task.id:
            raise DeadLetter("delegation_invalid_answer", "the agent answered with neither a message nor a task")
        return {
            "remote_task_id": answer.task.id,
            "began_at": began,
            "answer": self._finished(answer.task),
        }

    async def _look(self, agent: str, sent: dict[str, Any], timeout_seconds: float | None) -> dict[str, Any]:
        """Ask how the remote task stands. Raises Snoozed while it works, and DeadLetter for ends that are no answer."""
        from a2a.types.a2a_pb2 import CancelTaskRequest, GetTaskRequest

        task_id = sent["remote_task_id"]
        task = await self._agents.ask(
            agent, lambda client: client.get_task(GetTaskRequest(id=task_id, history_length=0))
        )
        if (answer := self._finished(task)) is not None:
            return answer
        elapsed = (self._runtime.now() - datetime.fromisoformat(sent["began_at"])).total_seconds()
        left = (timeout_seconds or self._settings.timeout_seconds) - elapsed
        if left <= 0:
            with contextlib.suppress(DeadLetter, Retry):
                await self._agents.ask(agent, lambda client: client.cancel_task(CancelTaskRequest(id=task_id)))
            raise DeadLetter("delegation_timeout", "the agent did not finish in time; it was asked to stop")
        # Half of the time that it has taken so far: a long piece of work is looked at rarely.
        pause = min(max(self._settings.poll_seconds, elapsed / 2), self._settings.max_poll_seconds, max(left, 0.1))
        raise Snoozed(pause, AWAITING, "the agent is still at work")

    def _finished(self, task: Any) -> dict[str, Any] | None:
        """Give the answer of a remote task that is done; None while it works. Raises DeadLetter for another end."""
        state = state_of(task)
        if state in WORKING:
            return None
        if state in FAILURES:
            raise DeadLetter(*FAILURES[state])
        return kept_answer(parts_of_task(task), self._settings.max_answer_bytes)


def message_id_of(task_id: str, name: str) -> str:
    """Make the id of the message that a delegation sends: the same in every run of the task."""
    return f"msg_{hashlib.sha256(f'{task_id} {name}'.encode()).hexdigest()[:32]}"


def _typed(answer: dict[str, Any], returns: Any) -> Any:
    """Validate the first JSON part, or else the text as JSON. Raises DeadLetter, which repeats no value."""
    adapter: TypeAdapter[Any] = TypeAdapter(returns)
    try:
        if answer["data"]:
            return adapter.validate_python(answer["data"][0])
        return adapter.validate_python(answer["text"]) if returns is str else adapter.validate_json(answer["text"])
    except ValidationError as error:
        places = ", ".join("/".join(str(part) for part in one["loc"])[:100] or "#" for one in error.errors()[:5])
        raise DeadLetter(
            "delegation_invalid_answer", f"the agent's answer does not match what it should return, at {places}"
        ) from None
