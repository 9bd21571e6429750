"""What the dispatcher's leader looks at in every round, in one statement.

That is: what has departed, what is paused, and how the dependencies stand.
"""

from dataclasses import dataclass

from sqlalchemy import text

from app.domain.dependencies import Standing
from app.store.database import Database
from app.store.dependencies import STANDINGS, standing_of
from app.store.pauses import LASTS
from app.store.tallies import SUMS, Tally

# The pauses come along in every round and not now and then: whoever was told that something is paused should see
# nothing of it released by a round that begins afterwards. The table is all but empty, so they cost next to nothing.
# So do the dependencies: when one closes, what is released in the next moment is already too much.
_LOOK = text(f"""
SELECT s.*, NULL AS standing FROM ({SUMS}) s
UNION ALL SELECT kind || ':' || name, NULL, NULL, NULL, NULL FROM pauses WHERE {LASTS}
UNION ALL SELECT d.name, NULL, NULL, d.now, d.standing FROM ({STANDINGS}) d
""")


@dataclass(frozen=True, slots=True)
class Look:
    """The tally of every class; what is paused, as `kind:name`; dependencies by name, at `now` (seconds)."""

    tallies: dict[str, Tally]
    paused: frozenset[str]
    dependencies: dict[str, Standing]
    now: float


async def look(database: Database) -> Look:
    """Read the tallies, the pauses that last, and the dependencies."""
    tallies: dict[str, Tally] = {}
    paused: set[str] = set()
    dependencies: dict[str, Standing] = {}
    now = 0.0
    for row in await database.execute_hot(_LOOK, {}, retry_for_seconds=0.0):
        if row.departed is not None:
            tallies[row.priority_class] = Tally(row.departed, row.runs, row.busy_seconds)
        elif row.standing is not None:
            dependencies[row.priority_class] = standing_of(row.standing)
            now = row.busy_seconds
        else:
            paused.add(row.priority_class)
    return Look(tallies, frozenset(paused), dependencies, now)
