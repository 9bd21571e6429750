"""What the dispatcher's leader looks at in every round: what has departed, and what is paused, in one statement."""

from dataclasses import dataclass

from sqlalchemy import text

from app.store.database import Database
from app.store.pauses import LASTS
from app.store.tallies import SUMS, Tally

# The pauses come along in every round and not now and then: whoever was told that something is paused should see
# nothing of it released by a round that begins afterwards. The table is all but empty, so they cost next to nothing.
_LOOK = text(f"""
{SUMS} UNION ALL SELECT kind || ':' || name, NULL, NULL, NULL FROM pauses WHERE {LASTS}
""")


@dataclass(frozen=True, slots=True)
class Look:
    """The tally of every class, and what is paused, as `kind:name`."""

    tallies: dict[str, Tally]
    paused: frozenset[str]


async def look(database: Database) -> Look:
    """Read the tallies and the pauses that last."""
    rows = await database.execute_hot(_LOOK, {}, retry_for_seconds=0.0)
    tallies = {
        row.priority_class: Tally(row.departed, row.runs, row.busy_seconds) for row in rows if row.departed is not None
    }
    return Look(tallies, frozenset(row.priority_class for row in rows if row.departed is None))
