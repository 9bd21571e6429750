"""Vacuuming the small busy tables between autovacuum's rounds, which come a minute apart."""

from sqlalchemy import text

from app.store.database import Database

TABLES = ("ready", "delayed", "flights", "lanes", "tallies", "effect_calls")
# Rows of the fixed names above only: a name never comes from outside. TRUNCATE would take an exclusive lock.
_VACUUM = {name: text(f"VACUUM (SKIP_LOCKED, TRUNCATE FALSE) {name}") for name in TABLES}
_PILED_UP = text("""
SELECT c.relname FROM pg_stat_user_tables s JOIN pg_class c ON c.oid = s.relid
WHERE s.schemaname = current_schema() AND c.relname = ANY(CAST(:tables AS text[]))
  AND s.n_dead_tup >= :at_least AND pg_has_role(c.relowner, 'USAGE')
ORDER BY s.n_dead_tup DESC
""")


async def vacuum_piled_up(database: Database, *, at_least: int) -> list[str]:
    """Vacuum those of the busy tables that hold `at_least` dead rows and that we own; returns their names."""
    rows = await database.execute_hot(_PILED_UP, {"tables": list(TABLES), "at_least": at_least}, retry_for_seconds=0.0)
    names = [str(row.relname) for row in rows]
    for name in names:
        await database.execute_hot(_VACUUM[name], {}, retry_for_seconds=0.0)
    return names
