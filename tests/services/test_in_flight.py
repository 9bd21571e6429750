"""The leader's count of what is in flight: full counts now and then, the workers' tallies in between."""

from app.services.in_flight import InFlight
from app.store.tallies import Tally


def test_departures_since_the_full_count_are_taken_off() -> None:
    counts = InFlight()
    counts.counted({"common": 5}, {"common": Tally(15, 15, 1.5)})

    counts.tallied({"common": Tally(18, 18, 1.8)})

    assert counts.count["common"] == 2


def test_the_very_first_departures_of_a_class_are_taken_off() -> None:
    counts = InFlight()
    counts.tallied({})
    counts.counted({}, {})
    counts.count["common"] += 4

    counts.tallied({"common": Tally(4, 4, 0.4)})

    assert counts.count["common"] == 0


def test_tallies_before_any_full_count_say_nothing() -> None:
    counts = InFlight()

    counts.tallied({"common": Tally(9, 9, 0.9)})
    counts.counted({"common": 3}, {"common": Tally(9, 9, 0.9)})

    assert counts.count["common"] == 3


def test_a_forgotten_tally_takes_nothing_off() -> None:
    counts = InFlight()
    counts.counted({"common": 3}, {"common": Tally(9, 9, 0.9)})

    counts.tallied({"common": Tally(2, 2, 0.2)})

    assert counts.count["common"] == 3
