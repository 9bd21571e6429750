"""GET /problems and /problems/{code}: a page for people about each problem."""

from html import escape

from fastapi import APIRouter
from starlette.responses import HTMLResponse, Response

from app.api.operation import operation
from app.api.problem_types import PROBLEM_TYPES, ProblemType
from app.services.errors import NotFound

router = APIRouter(tags=["problems"])
_HEADERS = {"Content-Security-Policy": "default-src 'none'", "X-Content-Type-Options": "nosniff"}


def _page(title: str, body: str) -> Response:
    text = (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title></head>'
        f"<body><main>{body}</main></body></html>"
    )
    return HTMLResponse(text, headers=_HEADERS)


def _described(kind: ProblemType) -> str:
    again = "may succeed later as it is" if kind.retryable else "will be refused again unless something is changed"
    return (
        f"<h1>{escape(kind.title)}</h1><p><code>{kind.code}</code>, HTTP status {kind.status}. "
        f"The same request {again}.</p><p>{escape(kind.remedy)}</p><p><a href='/problems'>All problems</a></p>"
    )


@router.get("/problems", summary="All problems", **operation(None, public=True, description="A page for people."))
async def list_problems() -> Response:
    """List every problem that this service can answer with."""
    rows = "".join(
        f"<li><a href='/problems/{kind.code}'><code>{kind.code}</code></a> ({kind.status}): {escape(kind.title)}</li>"
        for kind in PROBLEM_TYPES.values()
    )
    return _page("Problems", f"<h1>Problems</h1><ul>{rows}</ul>")


@router.get(
    "/problems/{code}",
    summary="About one problem",
    **operation(None, public=True, description="A page for people.", problems=("not_found",)),
)
async def show_problem(code: str) -> Response:
    """Tell what a problem means and what to do about it."""
    kind = PROBLEM_TYPES.get(code)
    if kind is None:
        raise NotFound
    return _page(kind.title, _described(kind))
