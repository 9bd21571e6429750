"""`ctx.approval`: asking a person."""

from typing import Protocol

from app.domain.approvals import Approval, InvalidQuestion, Question, question
from app.domain.errors import DeadLetter
from app.runtime import Runtime
from app.services import approvals
from app.settings import ApprovalSettings
from workers.attempt import Attempt

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
