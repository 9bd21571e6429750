"""Leadership: one row per role with an epoch and a lease in database time."""

from dataclasses import dataclass

from sqlalchemy import text

from app.store.database import Database

LEADS_SQL = (
    "leads AS MATERIALIZED (SELECT 1 FROM leaders WHERE role = 'dispatcher' AND holder = :holder AND epoch = :epoch "
    "AND lease_until > clock_timestamp())"
)
"""The proof of leadership inside a statement of the dispatcher: a CTE that has a row while its lease lasts."""

# Take the lead when it is free, keep it when it is mine. The epoch grows whenever the holder changes or its lease lapsed.
_STAND = text("""
INSERT INTO leaders (role, epoch, holder, lease_until)
VALUES (:role, 1, :holder, clock_timestamp() + CAST(:lease_seconds AS float8) * interval '1 second')
ON CONFLICT (role) DO UPDATE
SET epoch = leaders.epoch + CASE WHEN leaders.holder = excluded.holder AND leaders.lease_until > clock_timestamp() THEN 0 ELSE 1 END,
    holder = excluded.holder, lease_until = excluded.lease_until
WHERE leaders.holder = excluded.holder OR leaders.lease_until <= clock_timestamp()
RETURNING epoch
""")
_RESIGN = text(
    "UPDATE leaders SET lease_until = clock_timestamp() WHERE role = :role AND holder = :holder AND epoch = :epoch"
)
_WHO = text("SELECT holder, epoch, lease_until > clock_timestamp() AS alive FROM leaders WHERE role = :role")


@dataclass(frozen=True, slots=True)
class Leader:
    """Who holds a role; `alive` while its lease lasts."""

    holder: str
    epoch: int
    alive: bool


async def stand(database: Database, *, role: str, holder: str, lease_seconds: float) -> int | None:
    """Take or renew the lead for `lease_seconds`; returns the epoch, or None while somebody else leads."""
    rows = await database.execute_hot(
        _STAND, {"role": role, "holder": holder, "lease_seconds": lease_seconds}, retry_for_seconds=0.0
    )
    return int(rows[0].epoch) if rows else None


async def resign(database: Database, *, role: str, holder: str, epoch: int) -> None:
    """Give the lead up at once, so that another takes over without waiting for the lease."""
    await database.execute_hot(_RESIGN, {"role": role, "holder": holder, "epoch": epoch}, retry_for_seconds=0.0)


async def leader(database: Database, role: str) -> Leader | None:
    """Read who holds a role."""
    rows = await database.execute_hot(_WHO, {"role": role}, retry_for_seconds=0.0)
    return Leader(rows[0].holder, rows[0].epoch, rows[0].alive) if rows else None
