import json
from pathlib import Path

import pytest
import yaml

from app.telemetry.metrics import Metrics
from tests.support.deploy_files import DEPLOY, alert_rules, at, compose, dashboard, dashboard_queries, filled, sequence
from tests.support.metrics import everything_happens
from tests.support.prometheus import promtool
from tests.support.promql import Exported, faults

QUERIES = dashboard_queries()
SEEDS = {
    "Jobs per minute": "despacho_tasks_finished_total",
    "Time in queue": "despacho_queue_seconds_bucket",
    "Run time": "despacho_run_seconds_bucket",
    "Attempts per task": "despacho_task_attempts_sum",
    "Success rate": 'status="done"',
    "Dead-letter rate": 'status="dead_lettered"',
}


def exported() -> Exported:
    metrics = Metrics()
    everything_happens(metrics)
    return Exported.of(metrics).with_recorded(str(rule["record"]) for rule in alert_rules() if "record" in rule)


def test_every_query_reads_metrics_and_labels_that_are_exported() -> None:
    known = exported()

    assert len(QUERIES) > 50
    assert [fault for _, query in QUERIES for fault in faults(query, known)] == []


@pytest.mark.parametrize(
    "query",
    [
        "sum(despacho_nonsense)",
        'despacho_queue_seconds_count{tenant="a"}',
        "sum by (tenant) (despacho_leader)",
        "1 + 1",
    ],
)
def test_the_check_itself_can_fail(query: str) -> None:
    assert faults(query, exported())


def test_every_query_is_valid_promql(tmp_path: Path) -> None:
    rules = [{"record": f"panel:{number}", "expr": filled(query)} for number, (_, query) in enumerate(QUERIES)]
    (tmp_path / "rules.yml").write_text(json.dumps({"groups": [{"name": "panels", "rules": rules}]}))

    assert f"SUCCESS: {len(QUERIES)} rules found" in promtool("check", "rules", str(tmp_path / "rules.yml"))


@pytest.mark.parametrize("figure", SEEDS)
@pytest.mark.parametrize("dimension", ["class", "type"])
def test_the_seeds_figures_are_shown_per_class_and_per_type(figure: str, dimension: str) -> None:
    shown = [query for title, query in QUERIES if title.startswith(figure) and title.endswith(f"by {dimension}")]

    label = {"class": "priority_class", "type": "type"}[dimension]
    assert shown
    assert all(SEEDS[figure] in query and label in query for query in shown)


def test_dead_letters_are_shown_by_error_type_as_a_rate_and_a_depth() -> None:
    by_title = {title: query for title, query in QUERIES if "by error type" in title}

    assert "rate(despacho_dead_letters_total" in by_title["Dead letters per minute, by error type"]
    assert "despacho_dead_letters_open" in by_title["Depth of the dead-letter list, by error type"]


def test_panels_have_their_own_id_and_place() -> None:
    panels = sequence(dashboard(), "panels")
    taken: set[tuple[int, int]] = set()

    assert len({at(panel, "id") for panel in panels}) == len(panels)
    for panel in panels:
        x, y, w, h = (int(str(at(panel, "gridPos", side))) for side in "xywh")
        place = {(column, row) for column in range(x, x + w) for row in range(y, y + h)}
        assert x + w <= 24
        assert not place & taken, at(panel, "title")
        taken |= place


def test_grafana_is_given_the_data_source_and_the_folder_that_are_mounted() -> None:
    provisioning = DEPLOY / "grafana" / "provisioning"
    source = yaml.safe_load((provisioning / "datasources" / "prometheus.yml").read_text())
    provider = yaml.safe_load((provisioning / "dashboards" / "despacho.yml").read_text())
    mounts = [str(volume) for volume in sequence(compose(), "services", "grafana", "volumes")]

    assert at(source, "datasources", 0, "url") == "http://prometheus:9090"
    assert at(dashboard(), "templating", "list", 0, "current", "value") == at(source, "datasources", 0, "uid")
    assert f"./deploy/grafana/dashboards:{at(provider, 'providers', 0, 'options', 'path')}:ro" in mounts
