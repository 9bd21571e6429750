"""What a database server says about itself: version, rights, the promises of its replication, its clock."""

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

_CONDITION = text("""
SELECT current_setting('server_version') AS version,
       current_setting('server_version_num')::int AS version_number,
       pg_is_in_recovery() AS is_standby,
       current_setting('default_transaction_read_only') = 'on' AS is_read_only,
       has_schema_privilege(current_schema(), 'CREATE') AS may_create,
       ARRAY(SELECT c.relname::text FROM pg_class c
             WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind IN ('r', 'p')
               AND NOT (has_table_privilege(c.oid, 'SELECT') AND has_table_privilege(c.oid, 'INSERT')
                        AND has_table_privilege(c.oid, 'UPDATE') AND has_table_privilege(c.oid, 'DELETE'))
             ORDER BY 1) AS closed_tables,
       current_setting('fsync') = 'on' AS fsync,
       current_setting('full_page_writes') = 'on' AS full_page_writes,
       current_setting('synchronous_commit') AS synchronous_commit,
       current_setting('synchronous_standby_names') AS synchronous_standby_names,
       current_setting('max_connections')::int AS max_connections,
       (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend') AS connections,
       clock_timestamp() AS now
""")


@dataclass(frozen=True, slots=True)
class Condition:
    """One look at a server; `now` is its clock at that moment."""

    version: str
    version_number: int
    is_standby: bool
    is_read_only: bool
    may_create: bool
    closed_tables: tuple[str, ...]
    fsync: bool
    full_page_writes: bool
    synchronous_commit: str
    synchronous_standby_names: str
    max_connections: int
    connections: int
    now: datetime


async def look(connection: AsyncConnection) -> Condition:
    """Read the server's condition."""
    row = (await connection.execute(_CONDITION)).mappings().one()
    return Condition(**{**row, "closed_tables": tuple(row["closed_tables"])})
