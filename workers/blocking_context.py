"""The context for plain `def` handlers: every method waits in their thread for what runs on the loop of the worker."""

import asyncio
from collections.abc import Callable
from decimal import Decimal
from typing import Any

from app.domain.approvals import Approval
from workers.bridge import Bridge
from workers.context import TaskContext, as_text
from workers.dependency_call import BlockingDependencyCall
from workers.documents.document import Document
from workers.llm.llm import BlockingLlm
from workers.mcp.tools import BlockingMcpTools
from workers.outgoing import BlockingOutgoingHttp
from workers.task_identity import TaskIdentity


class BlockingTaskContext(TaskIdentity):
    """The same context for plain `def` handlers: its calls block the handler's thread, never the worker's loop."""

    __slots__ = ("_bridge", "_context")

    def __init__(self, context: TaskContext, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(context.owner)
        self._context = context
        self._bridge = Bridge(loop)

    @property
    def llm(self) -> BlockingLlm:
        """Language models; see TaskContext."""
        return BlockingLlm(self._context.llm, self._bridge)

    def input_bytes(self, ref: str) -> bytes:
        """Read a stored input; see TaskContext."""
        return self._bridge.run(lambda _: self._context.input_bytes(ref))

    def input_text(self, ref: str) -> str:
        """Read a stored input as text; see TaskContext."""
        return as_text(self.input_bytes(ref))

    def document(self, ref: str) -> Document:
        """Read a stored input as a document for a prompt; see TaskContext."""
        return self._bridge.run(lambda _: self._context.document(ref))

    def filtered(self, text: str, source: str = "text") -> Document:
        """Have the type's filters look at a text from outside; see TaskContext."""
        return self._bridge.run(lambda _: self._context.filtered(text, source))

    def step(self, name: str, call: Callable[..., Any], *arguments: Any, returns: Any = None) -> Any:
        """Do something once; see TaskContext. A plain `call` runs in the handler's thread and may use the context."""
        return self._bridge.run(lambda here: self._context.step(name, here(call), *arguments, returns=returns))

    @property
    def http(self) -> BlockingOutgoingHttp:
        """The guarded HTTP client, whose calls block; see TaskContext."""
        return BlockingOutgoingHttp(self._context.http, self._bridge)

    def secret(self, name: str) -> str:
        """Give the value of a declared secret; see TaskContext."""
        return self._context.secret(name)

    def signature(self, secret: str, *, message_id: str, timestamp: int, body: bytes) -> dict[str, str]:
        """Sign a message by Standard Webhooks; see TaskContext."""
        return self._bridge.run(
            lambda _: self._context.signature(secret, message_id=message_id, timestamp=timestamp, body=body)
        )

    def delegate(self, agent: str, message: Any, **more: Any) -> Any:
        """Have another agent do something; see TaskContext."""
        return self._bridge.run(lambda _: self._context.delegate(agent, message, **more))

    def mcp(self, server: str) -> BlockingMcpTools:
        """Have the tools of an MCP server; see TaskContext."""
        return BlockingMcpTools(self._context.mcp(server), self._bridge)

    def checkpoint(self, state: Any) -> None:
        """Save the handler's own state; see TaskContext."""
        self._bridge.run(lambda _: self._context.checkpoint(state))

    @property
    def state(self) -> Any:
        """The state of the last checkpoint; see TaskContext."""
        return self._context.state

    def approval(self, action: str, detail: Any = None, *, expires_seconds: float | None = None) -> Approval:
        """Return a person's yes to `action`, or end here until there is one; see TaskContext."""
        return self._bridge.run(lambda _: self._context.approval(action, detail, expires_seconds=expires_seconds))

    def effect(
        self,
        effect_type: str,
        key: str,
        call: Callable[..., Any],
        *args: Any,
        reconcile: Callable[..., Any] | None = None,
        honours_key_for_seconds: float = 0,
        call_timeout_seconds: float = 30,
    ) -> str | None:
        """Do something outside at most once per `key`; see TaskContext. A plain `call` runs in another thread."""
        return self._bridge.run(
            lambda _: self._context.effect(
                effect_type,
                key,
                call,
                *args,
                reconcile=reconcile,
                honours_key_for_seconds=honours_key_for_seconds,
                call_timeout_seconds=call_timeout_seconds,
            )
        )

    def dependency(self, name: str, estimated_tokens: float = 0) -> BlockingDependencyCall:
        """Call a dependency within its limits: `with ctx.dependency("crm") as call:`; see TaskContext."""
        return BlockingDependencyCall(self._context.dependency(name, estimated_tokens), self._bridge)

    def spent(self, *, cost_usd: Decimal = Decimal(0), tokens: int = 0) -> None:
        """Count money and tokens that were paid elsewhere; see TaskContext."""
        self._bridge.run(lambda _: self._context.spent(cost_usd=cost_usd, tokens=tokens))

    def progress(self, fraction: float, message: str = "") -> None:
        """Say how far the task is; see TaskContext."""
        self._context.progress(fraction, message)
