"""A handler's context without a worker around it: on an attempt that was claimed, or one that nobody made."""

from app.domain.errors import DeadLetter
from app.domain.task_types import TaskTypeSpec
from app.runtime import Runtime
from app.store.flights import Claimed
from workers.attempt import Attempt
from workers.context import ReadInput, TaskContext
from workers.facilities import Facilities, open_facilities


async def no_input(tenant_id: str, ref: str) -> tuple[bytes, str]:
    """Know no input at all."""
    raise DeadLetter("missing_input", f"no input {ref}")


def an_attempt(
    task_type: str = "echo",
    *,
    task_id: str = "task_1",
    tenant_id: str = "acme",
    number: int = 1,
    fence: int = 1,
    dispatch: int = 1,
) -> Attempt:
    """Make the attempt of a task of the class `common`."""
    return Attempt(task_id, tenant_id, TaskTypeSpec(task_type), number, fence, dispatch, "common", "worker_1", 60.0)


def a_context_of(task_type: str, read_input: ReadInput = no_input) -> TaskContext:
    """Make the context of a task's first attempt."""
    return TaskContext(an_attempt(task_type), Facilities(read_input=read_input))


async def a_context_on(runtime: Runtime, claimed: Claimed, facilities: Facilities | None = None) -> TaskContext:
    """Make the context of a claimed attempt, with all facilities, as its handler finds it at its start."""
    owner = an_attempt(
        claimed.type,
        task_id=claimed.task_id,
        tenant_id=claimed.tenant_id,
        number=claimed.attempt,
        fence=claimed.fence,
        dispatch=claimed.dispatch,
    )
    context = TaskContext(owner, facilities or open_facilities(runtime, read_input=no_input))
    await context.load()
    return context
