"""A task type as agents are: it asks a model once, and does one thing outside with what came out."""

from pydantic import BaseModel

from despacho import TaskContext, task_type

HONOURED_SECONDS = 600.0
ASKED = "what shall be done about number {n}"


class Paid(BaseModel):
    """Which one, and where the outside is; odd ones can ask it what became of a key, even ones may repeat a key."""

    n: int
    url: str


@task_type("paid", timeout_seconds=60, backoff_base_seconds=0.2, backoff_cap_seconds=1.0)
async def paid(ctx: TaskContext, task: Paid) -> str | None:
    """Ask, act, give the outside's id."""

    async def act(text: str) -> str:
        reply = await ctx.http.post(f"{task.url}/effects", content=text)
        reply.raise_for_status()
        return str(reply.json()["id"])

    async def look(key: str, *, idempotency_key: str) -> str | None:
        reply = await ctx.http.get(f"{task.url}/effects/{idempotency_key}")
        return str(reply.json()["id"]) if reply.status_code == 200 else None

    answer = await ctx.llm.chat([{"role": "user", "content": ASKED.format(n=task.n)}])
    return await ctx.effect(
        "act",
        f"paid:{task.n}",
        act,
        answer.text,
        reconcile=look if task.n % 2 else None,
        honours_key_for_seconds=0 if task.n % 2 else HONOURED_SECONDS,
        call_timeout_seconds=1.5,
    )
