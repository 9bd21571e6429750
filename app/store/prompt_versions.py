"""Which text each prompt version has: written once, at its first use, and never changed."""

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

_KEEP = text("""
INSERT INTO prompt_versions (name, version, sha256, first_used_at) VALUES (:name, :version, :sha256, clock_timestamp())
ON CONFLICT (name, version) DO NOTHING
""")
_READ = text("SELECT sha256 FROM prompt_versions WHERE name = :name AND version = :version")


async def first_used(connection: AsyncConnection, name: str, version: int, sha256: str) -> str:
    """Register a version with its hash unless it was used before; returns the hash that counts."""
    await connection.execute(_KEEP, {"name": name, "version": version, "sha256": sha256})
    return str((await connection.execute(_READ, {"name": name, "version": version})).scalar_one())
