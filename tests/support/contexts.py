"""A handler's context without a worker around it: the attempt as given, and facilities that only read inputs."""

from app.domain.errors import DeadLetter
from app.domain.task_types import TaskTypeSpec
from workers.attempt import Attempt
from workers.context import ReadInput, TaskContext
from workers.facilities import Facilities


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
