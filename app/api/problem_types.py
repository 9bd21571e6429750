"""Every problem this API can answer with: its code, status, title and what to do about it. The one table.

Codes are stable; `/problems/<code>` serves a page for each (RFC 9457, section 4).
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ProblemType:
    """One kind of problem. `retryable` says whether the same request may succeed later without being changed."""

    code: str
    status: int
    title: str
    remedy: str
    retryable: bool = False


_ALL = (
    ProblemType(
        "malformed_json", 400, "The body is not JSON",
        "Send UTF-8 JSON (RFC 8259) nested at most 64 levels deep. NaN and Infinity are not JSON.",
    ),
    ProblemType(
        "bad_request", 400, "The request cannot be read", "Check the request line and headers against RFC 9110.",
    ),
    ProblemType(
        "unauthorized", 401, "No valid key",
        "Send `Authorization: Bearer <key>` with a key that is neither revoked nor expired.",
    ),
    ProblemType(
        "forbidden", 403, "The key may not do this",
        "Use a key with the scope that the operation names in the API description, or ask an admin for one.",
    ),
    ProblemType(
        "own_task", 403, "Nobody decides about a task of their own",
        "Have somebody else decide: the key's subject is the one that submitted the task.",
    ),
    ProblemType(
        "not_found", 404, "There is nothing here",
        "Check the path and the id. Things of other tenants look exactly like things that do not exist.",
    ),
    ProblemType(
        "method_not_allowed", 405, "The path has no such method", "Use one of the methods in the `Allow` header.",
    ),
    ProblemType(
        "conflict", 409, "The thing is not in a state that allows this", "Read it again and decide anew.",
    ),
    ProblemType(
        "task_final", 409, "The task has ended",
        "Nothing is left to do for this task. A dead-lettered one can be reprocessed.",
    ),
    ProblemType(
        "task_running", 409, "The task is running already", "Wait for its end, or cancel it.",
    ),
    ProblemType(
        "task_not_delayed", 409, "The task does not wait for a time",
        "Nothing has to be hurried: its history says what it waits for.",
    ),
    ProblemType(
        "approval_decided", 409, "The approval was decided already", "Read it again: it says who decided, and how.",
    ),
    ProblemType(
        "approval_expired", 409, "The approval has expired",
        "Nothing can be decided any more. Submit the task again, if the work is still wanted.",
    ),
    ProblemType(
        "approval_withdrawn", 409, "Nobody asks for the approval any more",
        "The task ended some other way: its history says how.",
    ),
    ProblemType(
        "not_dead_lettered", 409, "The task is not dead-lettered", "Read it again: somebody may have reprocessed it.",
    ),
    ProblemType(
        "effect_not_in_doubt", 409, "The effect is not in doubt",
        "Read it again: it is known what became of it, or its call may still be answered.",
    ),
    ProblemType(
        "schedule_exists", 409, "The tenant has a schedule of this name",
        "Choose another name, or delete the other one.",
    ),
    ProblemType(
        "policy_version_exists", 409, "There is a version of this name already",
        "Versions never change and none comes back: give the text a new `version`.",
    ),
    ProblemType(
        "policy_class_in_use", 409, "Unfinished tasks have a class that the version does not have",
        "Keep the class until its work is done, or give the tasks another one (POST /v1/tasks/{id}/reclassify).",
    ),
    ProblemType(
        "tenant_exists", 409, "The tenant id is taken", "Choose another id, or use the tenant that is there.",
    ),
    ProblemType(
        "bulk_action_done", 409, "The bulk action is done", "Nothing is left to abort.",
    ),
    ProblemType(
        "not_reprocessable", 409, "The dead letter cannot be reprocessed",
        "Read it again: it is no task, or no longer dead.",
    ),
    ProblemType(
        "callback_used", 409, "The task has been called back already",
        "Nothing has to be sent again: the first call counts, also where its answer was lost.",
    ),
    ProblemType(
        "webhook_sending", 409, "A try to deliver the event is on its way",
        "Read it again in a few seconds: it is delivered, or waits for the next try.",
    ),
    ProblemType(
        "idempotency_in_flight", 409, "The same submission is being worked on",
        "Send the same request again after `Retry-After`: it answers with the task that the first one made.", True,
    ),
    ProblemType(
        "callback_closed", 410, "The task no longer waits for this callback",
        "Nothing can be completed here any more: the task has ended, or an operator had it begin anew.",
    ),
    ProblemType(
        "payload_too_large", 413, "The body is too large",
        "Keep the body within the limit (1 MiB unless the operator set another); store documents by POST /v1/inputs.",
    ),
    ProblemType(
        "input_too_large", 413, "The document is too large",
        "Keep documents within the limit (25 MiB unless the operator set another).",
    ),
    ProblemType(
        "invalid_payload", 422, "The body does not validate",
        "Mend what `errors` points at; GET /v1/task-types has the schemas.",
    ),
    ProblemType(
        "invalid_parameter", 422, "A parameter or header does not validate",
        "Mend the parameter or header that `errors` names; parameters that an operation does not know are refused.",
    ),
    ProblemType(
        "unknown_task_type", 422, "There is no such task type",
        "GET /v1/task-types lists the types of this installation.",
    ),
    ProblemType(
        "invalid_policy", 422, "The policy cannot be used",
        "Mend the lines that `errors` names; `despacho policy check FILE` says the same without an installation.",
    ),
    ProblemType(
        "unknown_input_ref", 422, "There is no such stored input", "Store the document by POST /v1/inputs first.",
    ),
    ProblemType(
        "filter_required", 422, "The filter leaves everything open",
        'Name at least one field of the filter, or send `"all": true` where everything is meant.',
    ),
    ProblemType(
        "idempotency_key_reused", 422, "The idempotency key belongs to another submission",
        "Use a new key for a new submission; send the same body with the same key to repeat one.",
    ),
    ProblemType(
        "submit_rate_exceeded", 429, "The tenant submits too fast",
        "Wait for `Retry-After`; `RateLimit` says what is left.", True,
    ),
    ProblemType(
        "open_tasks_quota", 429, "The tenant has too many open tasks",
        "Wait until some of its tasks have ended, or ask an admin for a larger quota.", True,
    ),
    ProblemType(
        "internal_error", 500, "The service failed",
        "Try again; if it stays, tell the operator the `X-Request-ID`: the log has the details under it.", True,
    ),
    ProblemType(
        "class_saturated", 503, "The priority class takes no more work for now", "Wait for `Retry-After`.", True,
    ),
    ProblemType(
        "task_moving", 503, "The task keeps changing places", "Send the same request again.", True,
    ),
    ProblemType(
        "database_unavailable", 503, "The database does not answer",
        "Send the request again after `Retry-After`, with the same `Idempotency-Key` where it has one.", True,
    ),
)  # fmt: skip

PROBLEM_TYPES: dict[str, ProblemType] = {one.code: one for one in _ALL}
