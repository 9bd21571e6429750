"""GET and PUT /v1/priority/policy, and POST /v1/priority/evaluate."""

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request
from sqlalchemy import Row
from starlette.responses import Response

from app.api.auth import needs
from app.api.front import front_of
from app.api.json_body import Reader
from app.api.operation import body_of, encoded, operation, ref
from app.api.path_ids import check_id
from app.api.query import PageQuery, PlainText, next_token
from app.api.schemas.priority import (
    ClassExplained,
    Evaluated,
    Evaluation,
    MovedTasks,
    PolicyAnswer,
    PolicyApplied,
    PolicyChanges,
    PolicyDocument,
    PolicyPage,
    PolicyVersion,
    RuleTried,
    TaskExplained,
)
from app.domain.scopes import Scope
from app.services import decisions, policies
from app.services.callers import Caller
from app.services.decisions import Answer, Explained, Question
from app.services.errors import Invalid
from app.services.policies import Applied, Changes, Moved
from app.services.queries import cut

router = APIRouter(tags=["priority"])
PriorityReader = Annotated[Caller, Depends(needs(Scope.PRIORITY_READ))]
_document = Reader(PolicyDocument)
_TEXT = {"schema": {"type": "string", "description": "the policy as TOML; `dry_run` goes into the query"}}


class PolicyQuery(PageQuery):
    """Which version: the one in force, another by name, or with `history` the list of them."""

    history: bool = False
    version: PlainText | None = None


_GET = operation(
    PolicyAnswer,
    description="The version in force or the one named; with `history`, a page of versions.",
    problems=("not_found",),
    models=(PolicyPage,),
)
_GET["responses"][200]["content"]["application/json"]["schema"] = {"oneOf": [ref(PolicyAnswer), ref(PolicyPage)]}


@router.get("/v1/priority/policy", summary="Read the policy in force, or its versions", **_GET)
async def read_policy(request: Request, caller: PriorityReader, query: Annotated[PolicyQuery, Query()]) -> Response:
    """Read the policy that rules here; `history` lists its versions instead, newest first."""
    runtime = front_of(request).runtime
    current = runtime.policy.current
    if query.history:
        if query.version is not None:
            raise _parameter("?version", "goes without history")
        rows = await policies.history(runtime, below=_position(query.after()), limit=query.page_size + 1)
        page = cut(rows, query.page_size, "position")
        items = [_version(row, current.version) for row in page.rows]
        last = None if page.last_id is None else str(page.last_id)
        return encoded(200, PolicyPage(items, next_token(last)))
    if query.page_token is not None:
        raise _parameter("?page_token", "goes with history")
    row = await policies.version(runtime, query.version or current.version)
    is_current = row.version == current.version
    answer = PolicyAnswer(
        version=row.version,
        owner=row.owner,
        author=row.author,
        created_at=row.created_at,
        in_force=is_current,
        classes=list((current if is_current else policies.read_document(row.document)).by_name),
        document=row.document if caller.is_platform else None,
        refused_version=runtime.policy.refused,
    )
    return encoded(200, answer)


def _position(token: str | None) -> int | None:
    if token is None:
        return None
    if not token.isascii() or not token.isdecimal() or len(token) > 18:
        raise _parameter("?page_token", "not a token of this list: use `next_page_token` of the page before")
    return int(token)


def _parameter(pointer: str, detail: str) -> Invalid:
    return Invalid([(pointer, detail)], code="invalid_parameter", detail="A parameter is not valid here.")


def _version(row: Row[Any], in_force: str) -> PolicyVersion:
    return PolicyVersion(row.version, row.owner, row.author, row.created_at, row.version == in_force)


_PUT = operation(
    PolicyApplied,
    description="In force here now and everywhere within seconds; for a dry run, what it would change.",
    body=PolicyDocument,
    problems=("invalid_policy", "policy_version_exists", "policy_class_in_use"),
)
_PUT["openapi_extra"]["requestBody"]["content"] |= {"text/plain": _TEXT, "application/toml": _TEXT}


@router.put("/v1/priority/policy", summary="Bring a version of the policy into force", **_PUT)
async def put_policy(
    request: Request,
    caller: Annotated[Caller, Depends(needs(Scope.PRIORITY_WRITE, platform=True))],
    dry_run: Annotated[bool, Query(description="only show what it would change for the last 1,000 tasks")] = False,
) -> Response:
    """Check a new version and bring it into force; the body is JSON with the TOML text, or the TOML text itself."""
    body = await request.body()
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind in ("text/plain", "application/toml", "text/x-toml"):
        document, only_shows = _text_of(body), dry_run
    else:
        order: PolicyDocument = _document.read(body)
        document, only_shows = order.document, dry_run or order.dry_run
    done = await policies.apply(front_of(request).runtime, caller, document, dry_run=only_shows)
    return encoded(200, _applied(done, only_shows))


def _text_of(body: bytes) -> str:
    try:
        return body.decode()
    except UnicodeDecodeError:
        raise Invalid([("#/document", "should be TOML in UTF-8")], code="invalid_policy") from None


def _applied(done: Applied, dry_run: bool) -> PolicyApplied:
    row = done.row
    return PolicyApplied(
        version=done.policy.version,
        owner=done.policy.owner,
        author=row.author if row is not None else None,
        created_at=row.created_at if row is not None else None,
        in_force=row is not None,
        dry_run=dry_run,
        warnings=done.warnings,
        changes=_changes(done.changes) if done.changes is not None else None,
    )


def _changes(found: Changes) -> PolicyChanges:
    return PolicyChanges(
        found.looked_at, found.changed, _moved(found.classes), _moved(found.reason_codes), found.in_use
    )


def _moved(found: list[Moved]) -> list[MovedTasks]:
    return [MovedTasks(one.before, one.after, one.tasks, one.examples) for one in found]


@router.post(
    "/v1/priority/evaluate",
    summary="Explain a class",
    **operation(
        Evaluated,
        description="The class, its reason, and what came of every rule.",
        body=Evaluation,
        problems=("unknown_task_type", "not_found"),
    ),
)
async def evaluate(
    request: Request,
    caller: PriorityReader,
    asked: Annotated[Evaluation, Depends(body_of(Evaluation))],
    tenant_id: Annotated[str | None, Query(description="platform keys only: whose submission it would be")] = None,
) -> Response:
    """Say what class a submission would get and why, without making it; or why a stored task has the one it has."""
    front = front_of(request)
    if asked.task_id is not None:
        if tenant_id is not None:
            raise _parameter("?tenant_id", "goes without task_id: a stored task has its tenant")
        found = await decisions.explain(front.runtime, caller, check_id(asked.task_id, "task"))
        return encoded(200, _evaluated(found.now, None, caller, _task(found, caller)))
    tenant = await front.tenants.acting_for(caller, tenant_id)
    question = Question(
        asked.type or "", asked.group, asked.due_at, asked.valid_until, asked.claims, asked.requested_class
    )
    answer = decisions.evaluate(front.runtime, tenant.facts, caller.may(Scope.PRIORITY_CLAIM), question)
    return encoded(200, _evaluated(answer, asked.requested_class, caller, None))


def _evaluated(found: Answer, requested: str | None, caller: Caller, task: TaskExplained | None) -> Evaluated:
    told = _explained(found, caller)
    return Evaluated(
        priority_class=told.priority_class,
        reason_code=told.reason_code,
        policy_version=told.policy_version,
        requested_class=requested,
        facts_used=told.facts_used,
        rules=told.rules,
        task=task,
    )


def _explained(found: Answer, caller: Caller) -> ClassExplained:
    rules = [
        RuleTried(
            one.reason_code,
            one.priority_class,
            one.outcome.value,
            one.why,
            dict(one.read),
            one.when if caller.is_platform else None,
        )
        for one in found.rules
    ]
    decided = found.decision
    return ClassExplained(
        decided.priority_class, decided.reason_code, decided.policy_version, dict(decided.facts_used), rules
    )


def _task(found: Explained, caller: Caller) -> TaskExplained:
    return TaskExplained(
        task_id=found.task.task_id,
        priority_class=found.task.priority_class,
        reason_code=found.task.reason_code,
        derived_class=found.derived_class,
        derived_reason_code=found.derived_reason_code,
        policy_version=found.task.policy_version,
        agrees=found.agrees,
        again=_explained(found.again, caller) if found.again is not None else None,
    )
