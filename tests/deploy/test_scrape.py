"""A real Prometheus scrapes a real exporter, and the dashboard's own queries return data."""

import threading
from collections.abc import Iterator

import pytest

from app.telemetry.exporter import Exporter
from app.telemetry.metrics import Metrics
from tests.support.deploy_files import DEPLOY, dashboard_queries, filled
from tests.support.metrics import everything_happens
from tests.support.prometheus import RunningPrometheus


@pytest.fixture(scope="module")
def scraped() -> Iterator[RunningPrometheus]:
    """A Prometheus with the shipped rules that scrapes a process in which everything goes on happening."""
    metrics = Metrics()
    everything_happens(metrics)
    exporter = Exporter(metrics, host="127.0.0.1", port=0)
    over = threading.Event()

    def go_on() -> None:
        while not over.wait(0.1):
            everything_happens(metrics)

    busy = threading.Thread(target=go_on)
    busy.start()
    targets = {"despacho-worker": [f"127.0.0.1:{exporter.port}"], "despacho-api": ["127.0.0.1:1"]}
    rules = DEPLOY / "prometheus" / "alerts.yml"
    try:
        with RunningPrometheus(targets, rules) as prometheus:
            yield prometheus
    finally:
        over.set()
        busy.join()
        exporter.close()


def test_the_target_is_up_and_its_figures_are_there(scraped: RunningPrometheus) -> None:
    scraped.eventually('up{job="despacho-worker"} == 1')
    scraped.eventually('up{job="despacho-api"} == 0')

    (waiting,) = scraped.eventually('despacho_tasks_waiting{priority_class="common"}')
    assert waiting["value"][1] == "2"  # type: ignore[index]


# The baseline needs a quarter of an hour of history; `alerts_test.yml` covers it.
@pytest.mark.parametrize(
    ("title", "query"), [(title, query) for title, query in dashboard_queries() if "baseline15m" not in query]
)
def test_a_query_of_the_dashboard_returns_data(scraped: RunningPrometheus, title: str, query: str) -> None:
    assert scraped.eventually(filled(query, interval="5s")), title


def test_what_the_filters_leave_out_is_left_out(scraped: RunningPrometheus) -> None:
    query = next(query for title, query in dashboard_queries() if title == "Jobs per minute, by type")

    assert scraped.eventually(filled(query, interval="5s", type_="classify_document"))
    assert scraped.query(filled(query, interval="5s", type_="nonsense")) == []


def test_an_alert_that_should_be_pending_is(scraped: RunningPrometheus) -> None:
    scraped.eventually('ALERTS{alertname="DespachoProcessDown", job="despacho-api"}')

    assert scraped.query('ALERTS{alertname="DespachoNoLeader"}') == []
