"""Stored inputs: documents of any content type, addressed by their content within a tenant."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

# A mark of use keeps an input from the retention: nothing that was used this recently is ever removed, so that a
# submission that has just looked can rely on what it saw until its task refers to the input.
USE_PROTECTS_SECONDS = 600.0
_MARK_AFTER = "interval '1 minute'"


@dataclass(frozen=True, slots=True)
class StoredInput:
    """What is known of a stored input beside its bytes."""

    input_ref: str
    tenant_id: str
    sha256: str
    size_bytes: int
    content_type: str
    created_at: datetime


_COLUMNS = "input_ref, tenant_id, sha256, size_bytes, content_type, created_at"
_FIND = text(f"""
UPDATE inputs SET used_at = clock_timestamp()
WHERE tenant_id = :tenant_id AND sha256 = :sha256 AND content_type = :content_type RETURNING {_COLUMNS}
""")
_INSERT = text(f"""
INSERT INTO inputs (input_ref, tenant_id, sha256, size_bytes, content_type, content, created_at, used_at)
VALUES (:input_ref, :tenant_id, :sha256, :size_bytes, :content_type, :content, clock_timestamp(), clock_timestamp())
ON CONFLICT (tenant_id, sha256, content_type) DO UPDATE SET used_at = clock_timestamp()
RETURNING {_COLUMNS}
""")


async def find(connection: AsyncConnection, *, tenant_id: str, sha256: str, content_type: str) -> StoredInput | None:
    """Find an input by its content, and mark it as used."""
    values = {"tenant_id": tenant_id, "sha256": sha256, "content_type": content_type}
    row = (await connection.execute(_FIND, values)).first()
    return None if row is None else StoredInput(*row)


async def insert(
    connection: AsyncConnection, *, input_ref: str, tenant_id: str, sha256: str, content_type: str, content: bytes
) -> StoredInput:
    """Store an input; where the same content came first, the answer is that one."""
    values = {
        "input_ref": input_ref,
        "tenant_id": tenant_id,
        "sha256": sha256,
        "size_bytes": len(content),
        "content_type": content_type,
        "content": content,
    }
    return StoredInput(*(await connection.execute(_INSERT, values)).one())


_GET = text(f"SELECT {_COLUMNS}, content FROM inputs WHERE input_ref = :input_ref")


async def get(connection: AsyncConnection, input_ref: str) -> tuple[StoredInput, bytes] | None:
    """Read an input with its bytes."""
    row = (await connection.execute(_GET, {"input_ref": input_ref})).first()
    return None if row is None else (StoredInput(*row[:-1]), bytes(row[-1]))


_KNOWN = text("""
SELECT input_ref FROM inputs WHERE tenant_id = :tenant_id AND input_ref = ANY(CAST(:refs AS text[]))
""")
_MARK = text(f"""
UPDATE inputs SET used_at = clock_timestamp() WHERE input_ref IN (
    SELECT input_ref FROM inputs WHERE tenant_id = :tenant_id AND input_ref = ANY(CAST(:refs AS text[]))
    AND used_at < clock_timestamp() - {_MARK_AFTER} ORDER BY input_ref FOR UPDATE)
""")


async def mark_used(connection: AsyncConnection, tenant_id: str, refs: Sequence[str]) -> set[str]:
    """Mark a tenant's inputs as used and tell which of `refs` exist.

    The mark comes first: what exists after it is safe from the retention for USE_PROTECTS_SECONDS.
    """
    values = {"tenant_id": tenant_id, "refs": list(refs)}
    await connection.execute(_MARK, values)
    return {row.input_ref for row in (await connection.execute(_KNOWN, values)).fetchall()}
