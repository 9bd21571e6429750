"""The yardstick of single POSTs: a bare FastAPI endpoint that validates the same body and answers, and does no more."""

import sys
from typing import Any

import uvicorn
from fastapi import FastAPI
from pydantic import BaseModel, ConfigDict, Field


class Source(BaseModel):
    """Where the task's subject lives."""

    model_config = ConfigDict(extra="forbid")
    ref: str
    version: str | None = None


class Submission(BaseModel):
    """The body of POST /v1/tasks, as the contract has it."""

    model_config = ConfigDict(extra="forbid")
    type: str = Field(min_length=1, max_length=128)
    input: dict[str, Any] | None = None
    input_ref: str | None = None
    source: Source | None = None
    group: str | None = None
    claims: dict[str, Any] | None = None
    requested_class: str | None = None
    supersede_key: str | None = None
    not_before: str | None = None
    due_at: str | None = None
    valid_until: str | None = None
    max_attempts: int | None = Field(None, ge=1)
    timeout_seconds: float | None = Field(None, gt=0)
    callback_url: str | None = None
    metadata: dict[str, str] | None = None


app = FastAPI()


@app.post("/v1/tasks", status_code=202)
async def submit(submission: Submission) -> dict[str, str]:
    """Answer at once."""
    return {"task_id": "task_00000000000000000000000000", "type": submission.type, "status": "queued"}


if __name__ == "__main__":
    uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="warning", access_log=False)
