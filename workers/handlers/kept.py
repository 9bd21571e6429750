"""What a step has kept, without doing it."""

from typing import Any

from despacho import TaskContext


class _NotKept(Exception):
    pass


async def kept(ctx: TaskContext, name: str, *arguments: Any) -> Any:
    """Give what the step of this name and these arguments has kept in any run; None where it has not."""

    async def nothing(*_: Any) -> None:
        raise _NotKept

    try:
        return await ctx.step(name, nothing, *arguments)
    except _NotKept:
        return None
