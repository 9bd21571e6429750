"""The Python client of the REST API. It knows nothing of the service but its contract.

with Client() as client:                                    # DESPACHO_URL, DESPACHO_KEY
    handle = client.submit("classify_document", {"text": "Invoice 4711 …"})
    print(handle.result(wait=60))
"""

from app.client.clients import AsyncClient, Client
from app.client.errors import (
    ApiError,
    DespachoError,
    FieldProblem,
    Problem,
    ResultWithheld,
    StillRunning,
    TaskCancelled,
    TaskExpired,
    TaskFailed,
    TaskRejected,
    TaskSuperseded,
    UnexpectedAnswer,
    Unreachable,
    Unsendable,
    WrongConfiguration,
)
from app.client.nouns.administration import AuditEntry, Key, NewKey, Quotas, Tenant
from app.client.nouns.approvals import Approval
from app.client.nouns.bulk_actions import BulkAction
from app.client.nouns.dead_letters import DeadLetter, DeadLetterGroup, DeadLetterStory, DeadLetterSummary, Matched
from app.client.nouns.effects import Effect
from app.client.nouns.handle import AsyncTaskHandle, Handle, TaskHandle
from app.client.nouns.inputs import StoredInput
from app.client.nouns.operation import Pause, PriorityClass, Readiness, RetryPolicy, TaskType, Worker
from app.client.nouns.schedules import Schedule
from app.client.nouns.submitting import BatchAnswer, BatchItem, Refused
from app.client.nouns.task import Attempt, Event, Task, TaskError, TaskLinks, TaskSource, Usage
from app.client.nouns.webhooks import NewWebhookSecret, Webhook, WebhookSecret, WebhookTry
from app.client.retrying import NO_RETRIES, Retries

__all__ = [
    "NO_RETRIES",
    "ApiError",
    "Approval",
    "AsyncClient",
    "AsyncTaskHandle",
    "Attempt",
    "AuditEntry",
    "BatchAnswer",
    "BatchItem",
    "BulkAction",
    "Client",
    "DeadLetter",
    "DeadLetterGroup",
    "DeadLetterStory",
    "DeadLetterSummary",
    "DespachoError",
    "Effect",
    "Event",
    "FieldProblem",
    "Handle",
    "Key",
    "Matched",
    "NewKey",
    "NewWebhookSecret",
    "Pause",
    "PriorityClass",
    "Problem",
    "Quotas",
    "Readiness",
    "Refused",
    "ResultWithheld",
    "Retries",
    "RetryPolicy",
    "Schedule",
    "StillRunning",
    "StoredInput",
    "Task",
    "TaskCancelled",
    "TaskError",
    "TaskExpired",
    "TaskFailed",
    "TaskHandle",
    "TaskLinks",
    "TaskRejected",
    "TaskSource",
    "TaskSuperseded",
    "TaskType",
    "Tenant",
    "UnexpectedAnswer",
    "Unreachable",
    "Unsendable",
    "Usage",
    "Webhook",
    "WebhookSecret",
    "WebhookTry",
    "Worker",
    "WrongConfiguration",
]
