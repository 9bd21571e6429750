"""The leader's count of what is in flight: full counts now and then, the workers' tallies in between."""

from app.services.in_flight import InFlight


def test_departures_since_the_full_count_are_taken_off() -> None:
    counts = InFlight()
    counts.counted({"common": 5}, {"common": (20, 15)})

    counts.tallied({"common": (22, 18)})

    assert counts.count["common"] == 2


def test_the_very_first_departures_of_a_class_are_taken_off() -> None:
    counts = InFlight()
    counts.tallied({})
    counts.counted({}, {})
    counts.count["common"] += 4

    counts.tallied({"common": (4, 4)})

    assert counts.count["common"] == 0


def test_tallies_before_any_full_count_say_nothing() -> None:
    counts = InFlight()

    counts.tallied({"common": (9, 9)})
    counts.counted({"common": 3}, {"common": (9, 9)})

    assert counts.count["common"] == 3


def test_a_forgotten_tally_takes_nothing_off() -> None:
    counts = InFlight()
    counts.counted({"common": 3}, {"common": (9, 9)})

    counts.tallied({"common": (2, 2)})

    assert counts.count["common"] == 3
