"""`ctx.approval`: asking a person, from the worker or, over the pipe, from a child process."""

from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Any, Protocol

from app.domain.approvals import Approval, InvalidQuestion, Question, question
from app.domain.errors import DeadLetter, Yielded
from app.runtime import Runtime
from app.services import approvals
from app.settings import ApprovalSettings
from workers.attempt import Attempt
from workers.yielded import message_of, of_message

INVALID = "invalid_approval"


class Approvals(Protocol):
    """Asks for an attempt."""

    async def ask(
        self, attempt: Attempt, action: str, detail: object, *, expires_seconds: float | None = None
    ) -> Approval:
        """Return the yes. Raises Suspended, Rejected, OwnershipLost; DeadLetter for what cannot be asked."""
        ...

    async def approved(self, attempt: Attempt, effect_type: str, key: str) -> bool:
        """Say whether a person has approved this very effect of the attempt's task.

        That is an approval whose action is `effect_type` and whose detail, when it is an object with the member `key`,
        names this `key`. Without such a member the yes is to every effect of that type in the task.
        """
        ...


class WorkerApprovals:
    """The worker's own: asks the database."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    async def ask(
        self, attempt: Attempt, action: str, detail: object, *, expires_seconds: float | None = None
    ) -> Approval:
        """Ask, or read what was decided."""
        return await self._asked(attempt, _question(attempt, action, detail, expires_seconds, self.settings))

    async def approved(self, attempt: Attempt, effect_type: str, key: str) -> bool:
        """Look for a yes."""
        return await approvals.approved(self._runtime, task_id=attempt.task_id, effect_type=effect_type, key=key)

    async def answer(self, attempt: Attempt, heard: dict[str, Any]) -> dict[str, Any]:
        """Answer what a child asks, as JSON values; whatever is raised here becomes an answer too."""
        if "effect_type" in heard:
            return {"approved": await self.approved(attempt, heard["effect_type"], heard["key"])}
        try:
            given = await self._asked(attempt, _as_question(heard))
        except Yielded as how:
            return {"yielded": message_of(how)}
        return {"approval": [given.approval_id, given.decided_by, given.comment, given.decided_at.isoformat()]}

    @property
    def settings(self) -> ApprovalSettings:
        """The bounds of what may be asked."""
        return self._runtime.settings.approvals

    async def _asked(self, attempt: Attempt, asked: Question) -> Approval:
        return await approvals.ask(
            self._runtime,
            asked,
            task_id=attempt.task_id,
            fence=attempt.fence,
            priority_class=attempt.priority_class,
        )


class PipedApprovals:
    """A child's: checks the question here, where its values are, and has the worker ask."""

    def __init__(self, send: Callable[[dict[str, Any]], Awaitable[dict[str, Any]]], settings: ApprovalSettings) -> None:
        self._send = send
        self._settings = settings

    async def ask(
        self, attempt: Attempt, action: str, detail: object, *, expires_seconds: float | None = None
    ) -> Approval:
        """Have the worker ask."""
        asked = _question(attempt, action, detail, expires_seconds, self._settings)
        heard = await self._send(
            {
                "action": asked.action,
                "detail": asked.detail,
                "fingerprint": asked.fingerprint.hex(),
                "expires_seconds": asked.expires_seconds,
            }
        )
        match heard:
            case {"approval": [str(approval_id), str(decided_by), comment, str(decided_at)]}:
                return Approval(approval_id, decided_by, comment, datetime.fromisoformat(decided_at))
            case {"yielded": list(how)}:
                raise of_message(how)
            case _:
                raise RuntimeError("the worker could not ask for the approval")

    async def approved(self, attempt: Attempt, effect_type: str, key: str) -> bool:
        """Have the worker look."""
        heard = await self._send({"effect_type": effect_type, "key": key})
        if "approved" not in heard:
            raise RuntimeError("the worker could not look for the approval")
        return bool(heard["approved"])


def _question(
    attempt: Attempt, action: object, detail: object, expires_seconds: float | None, settings: ApprovalSettings
) -> Question:
    """Check what a handler asks for; it stays open as long as the call says, else the type, else the settings."""
    if expires_seconds is None:
        expires_seconds = attempt.spec.approval_expires_seconds or settings.expires_seconds
    try:
        return question(action, detail, expires_seconds=expires_seconds, most_detail_bytes=settings.max_detail_bytes)
    except InvalidQuestion as error:
        # The same question cannot be asked the next time either.
        raise DeadLetter(INVALID, f"ctx.approval: {error}") from None


def _as_question(heard: dict[str, Any]) -> Question:
    return Question(heard["action"], heard["detail"], bytes.fromhex(heard["fingerprint"]), heard["expires_seconds"])
