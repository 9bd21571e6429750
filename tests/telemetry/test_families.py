from concurrent.futures import ThreadPoolExecutor
from math import inf, nan

import pytest
from prometheus_client import CollectorRegistry

from app.telemetry.families import CounterFamily, GaugeFamily, HistogramFamily


def value(family: object, name: str, **labels: str) -> float | None:
    registry = CollectorRegistry()
    registry.register(family)  # type: ignore[arg-type]
    return registry.get_sample_value(name, labels)


@pytest.mark.parametrize("amount", [0, -1, nan, inf, -inf])
def test_a_counter_only_grows_and_stays_finite(amount: float) -> None:
    family = CounterFamily("things", "Things.", ["kind"])
    family.add(("a",), 2)

    family.add(("a",), amount)

    assert value(family, "things_total", kind="a") == 2


def test_a_counter_without_labels_is_there_from_the_start() -> None:
    assert value(CounterFamily("things", "Things."), "things_total") == 0


def test_no_increment_is_lost_between_threads() -> None:
    family = CounterFamily("things", "Things.", ["kind"])

    with ThreadPoolExecutor(4) as pool:
        for _ in range(4):
            pool.submit(lambda: [family.add(("a",)) for _ in range(5000)])

    assert value(family, "things_total", kind="a") == 20_000


def test_a_histogram_counts_like_the_clients_own() -> None:
    family = HistogramFamily("wait", "Wait.", ["kind"], [0.1, 1, 10])

    family.observe(("a",), [0.05, 0.1, 0.5, 1.0, 99.0])

    buckets = [value(family, "wait_bucket", kind="a", le=bound) for bound in ("0.1", "1.0", "10.0", "+Inf")]
    assert buckets == [2, 4, 4, 5]
    assert value(family, "wait_count", kind="a") == 5
    assert value(family, "wait_sum", kind="a") == pytest.approx(100.65)


def test_times_that_are_no_times_count_as_zero_and_do_not_poison_the_sum() -> None:
    family = HistogramFamily("wait", "Wait.", ["kind"], [0.1, 1])

    family.observe(("a",), [nan, inf, -5.0, 0.5])
    family.observe(("a",), [])

    assert value(family, "wait_count", kind="a") == 4
    assert value(family, "wait_sum", kind="a") == 0.5
    assert value(family, "wait_bucket", kind="a", le="0.1") == 3


def test_replacing_a_gauge_takes_away_what_is_gone() -> None:
    family = GaugeFamily("depth", "Depth.", ["kind"])
    family.replace({("a",): 1, ("b",): 2})

    family.replace({("b",): 3})

    assert (value(family, "depth", kind="a"), value(family, "depth", kind="b")) == (None, 3)


def test_a_watched_gauge_is_read_at_the_scrape_and_may_fail() -> None:
    family = GaugeFamily("pool", "Pool.", ["kind"])
    family.watch(("good",), lambda: 7)
    family.watch(("bad",), lambda: 1 // 0)

    assert (value(family, "pool", kind="good"), value(family, "pool", kind="bad")) == (7, None)
