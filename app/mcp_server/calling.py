"""What the tools do: calls of the REST API with the caller's own key. Whatever the key may not see does not exist."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from app.client.errors import ApiError, DespachoError, StillRunning, Unreachable
from app.client.nouns.submitting import submission
from app.client.nouns.task import is_final
from app.client.nouns.waiting import read_task, until_final
from app.client.request import PAGE_SIZE, Request, get, given, parameters_of, part, post
from app.client.shells import Awaiting

Arguments = Mapping[str, Any]
_WAIT_SECONDS = 30.0
_LISTED = 20


class ToolProblem(Exception):
    """A call that fails for its caller: a code that is stable, and a sentence."""

    def __init__(self, code: str, detail: str, **more: Any) -> None:
        super().__init__(detail)
        self.content: dict[str, Any] = {"code": code, "detail": detail, **more}


async def call(shell: Awaiting, tool: str, arguments: Arguments, trace: Mapping[str, str]) -> dict[str, Any]:
    """Do what a tool says and give its structured answer. Raises ToolProblem."""
    try:
        return await _DOING[tool](shell, arguments, trace)
    except ApiError as error:
        fields = [{"where": one.where, "detail": one.detail} for one in error.errors]
        raise ToolProblem(
            error.code, error.detail or error.problem.title, status=error.status, retryable=error.retryable,
            **({"errors": fields} if fields else {}),
        ) from None  # fmt: skip
    except Unreachable as error:
        raise ToolProblem("unreachable", str(error), retryable=True) from None
    except (DespachoError, ValueError, TypeError) as error:
        raise ToolProblem("invalid_call", str(error), retryable=False) from None


async def _submit(shell: Awaiting, arguments: Arguments, trace: Mapping[str, str]) -> dict[str, Any]:
    body = given(**{name: arguments.get(name) for name in arguments if name not in ("idempotency_key", "wait_seconds")})
    request = submission(body, idempotency_key=arguments.get("idempotency_key"), wait=arguments.get("wait_seconds"))
    return _task(await shell.ask(_traced(request, trace)))


async def _get(shell: Awaiting, arguments: Arguments, trace: Mapping[str, str]) -> dict[str, Any]:
    return _task(await shell.ask(read_task(arguments["task_id"])))


async def _wait(shell: Awaiting, arguments: Arguments, trace: Mapping[str, str]) -> dict[str, Any]:
    try:
        return _task(
            await shell.run(until_final(arguments["task_id"], arguments.get("timeout_seconds", _WAIT_SECONDS)))
        )
    except StillRunning as running:
        return _task(running.tasks[0])


async def _types(shell: Awaiting, arguments: Arguments, trace: Mapping[str, str]) -> dict[str, Any]:
    if "name" in arguments:
        return {"items": [await shell.ask(get(f"/v1/task-types/{part(arguments['name'])}", object))]}
    return {"items": (await shell.ask(_types_request()))["items"]}


async def _dead(shell: Awaiting, arguments: Arguments, trace: Mapping[str, str]) -> dict[str, Any]:
    limit = min(arguments.get("limit", _LISTED), PAGE_SIZE)
    wanted = parameters_of({"error_type": arguments.get("error_type"), "type": arguments.get("type")})
    page: Any = await shell.ask(get("/v1/dead-letters", object, {**wanted, "page_size": limit}))
    return {"items": page["items"], "more": page.get("next_page_token") is not None}


async def _reprocess(shell: Awaiting, arguments: Arguments, trace: Mapping[str, str]) -> dict[str, Any]:
    body = {"reason": arguments["reason"]}
    request = post(f"/v1/dead-letters/{part(arguments['task_id'])}/reprocess", object, body)
    return _task(await shell.ask(_traced(request, trace)))


_DOING = {
    "submit_task": _submit,
    "get_task": _get,
    "wait_for_task": _wait,
    "list_task_types": _types,
    "list_dead_letters": _dead,
    "reprocess_dead_letter": _reprocess,
}


def _task(answer: Any) -> dict[str, Any]:
    """Give a task as the API shows it, and whether that is its end. The shell gives plain answers."""
    task: dict[str, Any] = dict(answer)
    return {**task, "is_final": is_final(task.get("status", ""))}


def _types_request() -> Request[Any]:
    return get("/v1/task-types", object)


def _traced(request: Request[Any], trace: Mapping[str, str]) -> Request[Any]:
    return dataclasses.replace(request, headers={**request.headers, **trace})
