"""Dead rows of the busy tables go without waiting for autovacuum."""

from app.runtime import Runtime
from app.store.vacuum import vacuum_piled_up
from tests.support.eventually import eventually
from tests.support.work import rows, submitted


async def test_a_table_full_of_dead_rows_is_vacuumed(runtime: Runtime) -> None:
    await submitted(runtime, 200)
    await rows(runtime, "ALTER TABLE ready SET (autovacuum_enabled = off)")
    await rows(runtime, "DELETE FROM ready")
    assert await vacuum_piled_up(runtime.database, at_least=1_000_000) == []

    async def vacuumed() -> bool:
        return "ready" in await vacuum_piled_up(runtime.database, at_least=100)

    await eventually(vacuumed, within_seconds=20)

    (stats,) = await rows(
        runtime, "SELECT vacuum_count FROM pg_stat_user_tables WHERE relname = 'ready' AND vacuum_count > 0"
    )
    assert stats["vacuum_count"] >= 1
