"""Policy versions: the newest one rules."""

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from app.domain.policy import Policy
from app.domain.policy_file import parse_policy

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


async def newest_version(connection: AsyncConnection) -> str | None:
    """Name the version in force, or None in an empty database."""
    version: str | None = (await connection.execute(_VERSION)).scalar_one_or_none()
    return version


async def add(connection: AsyncConnection, policy: Policy, document: str, author: str) -> None:
    """Make `policy` (the parsed `document`) the newest version."""
    await connection.execute(
        _ADD, {"version": policy.version, "document": document, "owner": policy.owner, "author": author}
    )


async def seed(connection: AsyncConnection, document: str, author: str) -> Policy:
    """Store `document` as the first version where there is none; returns the policy in force. Raises PolicyError."""
    await connection.execute(_SEED_LOCK)
    present = await newest(connection)
    if present is not None:
        return present
    policy = parse_policy(document)
    await add(connection, policy, document, author)
    return policy
