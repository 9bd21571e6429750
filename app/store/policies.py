"""Policy versions: the newest one rules."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Row, text
from sqlalchemy.ext.asyncio import AsyncConnection

from app.domain.policy import Policy
from app.domain.policy_file import PolicyError, parse_policy

_NEWEST = text("SELECT document FROM policies ORDER BY position DESC LIMIT 1")
_VERSION = text("SELECT version FROM policies ORDER BY position DESC LIMIT 1")
_ADD = text("""
INSERT INTO policies (version, document, owner, author, created_at)
VALUES (:version, :document, :owner, :author, clock_timestamp()) ON CONFLICT (version) DO NOTHING
""")
_SEED_LOCK = text("SELECT pg_advisory_xact_lock(hashtext('despacho policy seed'))")


async def newest(connection: AsyncConnection) -> Policy | None:
    """Read the policy in force, or None in an empty database. Raises PolicyError when it does not parse."""
    document = (await connection.execute(_NEWEST)).scalar_one_or_none()
    return None if document is None else parse_policy(document)


_READABLE = text("SELECT document FROM policies ORDER BY position DESC LIMIT :limit OFFSET :offset")
_AT_A_TIME = 20


async def newest_readable(connection: AsyncConnection) -> Policy | None:
    """Read the newest version that this release can read, or None where there is none.

    A newer release may have stored what this one cannot read. Raises PolicyError when not one can be read.
    """
    offset, refused = 0, None
    while rows := (await connection.execute(_READABLE, {"limit": _AT_A_TIME, "offset": offset})).fetchall():
        for row in rows:
            try:
                return parse_policy(row.document)
            except PolicyError as error:
                refused = refused or error
        offset += _AT_A_TIME
    if refused is not None:
        raise refused
    return None


async def newest_version(connection: AsyncConnection) -> str | None:
    """Name the version in force, or None in an empty database."""
    version: str | None = (await connection.execute(_VERSION)).scalar_one_or_none()
    return version


async def add(connection: AsyncConnection, policy: Policy, document: str, author: str) -> bool:
    """Make `policy` (the parsed `document`) the newest version; False where there is one of its name already."""
    values = {"version": policy.version, "document": document, "owner": policy.owner, "author": author}
    return (await connection.execute(_ADD, values)).rowcount == 1


_COLUMNS = "position, version, owner, author, created_at"
_GET = text(f"SELECT {_COLUMNS}, document FROM policies WHERE version = :version")
_PAGE = text(f"""
SELECT {_COLUMNS} FROM policies WHERE CAST(:below AS bigint) IS NULL OR position < :below
ORDER BY position DESC LIMIT :limit
""")
_ONE_AT_A_TIME = text("SELECT pg_advisory_xact_lock(hashtext('despacho policy version'))")


async def one_at_a_time(connection: AsyncConnection) -> None:
    """Have the versions come one after the other until the transaction ends."""
    await connection.execute(_ONE_AT_A_TIME)


async def get(connection: AsyncConnection, version: str) -> Row[Any] | None:
    """Read one version with its document."""
    return (await connection.execute(_GET, {"version": version})).first()


async def page(connection: AsyncConnection, *, below: int | None, limit: int) -> Sequence[Row[Any]]:
    """Read versions without their documents, newest first, below a position."""
    return (await connection.execute(_PAGE, {"below": below, "limit": limit})).fetchall()


# What the rules gave a task that has another class now is what it had before the first that somebody gave it.
_LATEST_TASKS = text("""
SELECT t.task_id, t.type, t.task_group, t.cost_class, t.submitted_at, t.due_at, t.valid_until, t.facts, t.policy_version,
       t.priority_class, t.reason_code, n.service_class, n.weight, o.detail AS moved
FROM (SELECT * FROM tasks ORDER BY task_id DESC LIMIT :limit) t
LEFT JOIN tenants n ON n.tenant_id = t.tenant_id
LEFT JOIN LATERAL (
    SELECT e.detail FROM events e WHERE e.task_id = t.task_id AND e.kind = 'reclassified' ORDER BY e.event_id LIMIT 1
) o ON true
ORDER BY t.task_id DESC
""")
_TASK = text(
    _LATEST_TASKS.text.replace(
        "(SELECT * FROM tasks ORDER BY task_id DESC LIMIT :limit)", "(SELECT * FROM tasks WHERE task_id = :task_id)"
    ).replace("t.task_id, t.type", "t.task_id, t.tenant_id, t.type")
)


async def latest_tasks(connection: AsyncConnection, limit: int) -> Sequence[Row[Any]]:
    """Read what classes were decided from for the last `limit` tasks, newest first."""
    return (await connection.execute(_LATEST_TASKS, {"limit": limit})).fetchall()


async def decided_task(connection: AsyncConnection, task_id: str) -> Row[Any] | None:
    """Read what the class of one task was decided from."""
    return (await connection.execute(_TASK, {"task_id": task_id})).first()


async def seed(connection: AsyncConnection, document: str, author: str) -> Policy:
    """Store `document` as the first version where there is none; returns the policy in force. Raises PolicyError."""
    await connection.execute(_SEED_LOCK)
    present = await newest_readable(connection)
    if present is not None:
        return present
    policy = parse_policy(document)
    await add(connection, policy, document, author)
    return policy
