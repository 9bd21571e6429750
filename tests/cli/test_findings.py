"""What the doctor makes of a server's condition."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from app.cli.findings import State, of_consumer_timeout, of_server
from app.settings import Settings, WorkerSettings
from app.store.condition import Condition

HEALTHY = Condition(
    version="17.2", version_number=170002, is_standby=False, is_read_only=False, may_create=True, closed_tables=(),
    fsync=True, full_page_writes=True, synchronous_commit="on", synchronous_standby_names="ANY 1 (b, c)",
    max_connections=100, connections=5, now=datetime(2026, 1, 1, tzinfo=UTC),
)  # fmt: skip
SETTINGS = Settings(_env_file=None)


def states(found: Condition, *, apart: float = 0.0) -> dict[str, State]:
    """Judge a condition; returns the state of each subject that is not well."""
    findings = of_server(found, clock_difference_seconds=apart, settings=SETTINGS)
    return {one.subject: one.state for one in findings if one.state is not State.OK}


def test_a_healthy_server_needs_nothing() -> None:
    assert states(HEALTHY) == {}


@pytest.mark.parametrize(
    ("wrong", "subject", "state"),
    [
        ({"version_number": 130009}, "database: version", State.FAIL),
        ({"is_standby": True}, "database: rights", State.FAIL),
        ({"closed_tables": ("tasks",)}, "database: rights", State.FAIL),
        ({"may_create": False}, "database: rights", State.WARN),
        ({"fsync": False}, "database: durability", State.FAIL),
        ({"full_page_writes": False}, "database: durability", State.FAIL),
        ({"synchronous_commit": "off"}, "database: durability", State.FAIL),
        ({"synchronous_standby_names": ""}, "database: replication", State.WARN),
        ({"synchronous_commit": "local"}, "database: replication", State.WARN),
        ({"connections": 95}, "database: connections", State.WARN),
    ],
)
def test_one_thing_that_is_wrong_is_one_finding(wrong: dict[str, object], subject: str, state: State) -> None:
    assert states(replace(HEALTHY, **wrong)) == {subject: state}  # type: ignore[arg-type]


@pytest.mark.parametrize(("apart", "state"), [(-5.0, State.WARN), (120.0, State.FAIL)])
def test_clocks_that_differ_are_found(apart: float, state: State) -> None:
    assert states(HEALTHY, apart=apart) == {"clock": state}


def test_deliveries_that_are_held_too_long_are_found() -> None:
    slow = SETTINGS.model_copy(update={"worker": WorkerSettings(ack_after_settle_max_seconds=3600)})

    assert of_consumer_timeout(SETTINGS).state is State.OK
    assert of_consumer_timeout(slow).state is State.WARN
