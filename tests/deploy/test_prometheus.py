import re
from pathlib import Path

import pytest
import yaml

from app.telemetry.metrics import Metrics
from tests.support.deploy_files import DEPLOY, ROOT, alert_rules, at, compose, mapping, sequence
from tests.support.metrics import everything_happens
from tests.support.prometheus import promtool
from tests.support.promql import Exported, faults

FOLDER = DEPLOY / "prometheus"
TESTS = ("alerts_test.yml", "baseline_test.yml")
REQUIRED = {
    "DespachoDeadLettersAboveBaseline",
    "DespachoClassWithoutConsumers",
    "DespachoNoLeader",
    "DespachoOldestWaitingBeyondTarget",
    "DespachoQueueGrowing",
    "DespachoBrokerDown",
    "DespachoDatabaseDown",
}
ALERTS = {str(rule["alert"]): rule for rule in alert_rules() if "alert" in rule}


def test_the_configuration_and_its_rules_are_valid() -> None:
    said = promtool("check", "config", "prometheus.yml", cwd=FOLDER)

    assert f"SUCCESS: {len(alert_rules())} rules found" in said


@pytest.mark.parametrize("name", TESTS)
def test_the_alerts_do_what_their_tests_say(name: str) -> None:
    assert "SUCCESS" in promtool("test", "rules", name, cwd=FOLDER)


def test_promtool_can_fail(tmp_path: Path) -> None:
    text = (FOLDER / "alerts.yml").read_text()
    (tmp_path / "alerts_test.yml").write_text((FOLDER / "alerts_test.yml").read_text())
    (tmp_path / "alerts.yml").write_text(
        text.replace("(despacho_class_without_consumers) == 1", "(despacho_class_x) == 1")
    )

    with pytest.raises(AssertionError, match="DespachoClassWithoutConsumers"):
        promtool("test", "rules", "alerts_test.yml", cwd=tmp_path)


def test_what_must_alert_does_and_every_alert_is_tested_both_ways() -> None:
    tests = [test for name in TESTS for test in sequence(yaml.safe_load((FOLDER / name).read_text()), "tests")]
    cases = [mapping(case) for test in tests for case in mapping(test).get("alert_rule_test", [])]  # type: ignore[union-attr]

    assert set(ALERTS) >= REQUIRED
    assert {case["alertname"] for case in cases if case["exp_alerts"]} == set(ALERTS)
    quiet = {case["alertname"] for case in cases if not case["exp_alerts"]}
    assert quiet == set(ALERTS) - {"DespachoRoleMissing"}


@pytest.mark.parametrize("name", ALERTS)
def test_every_alert_says_what_happened_and_what_to_do(name: str) -> None:
    rule = ALERTS[name]

    assert at(rule, "labels", "severity") in {"warning", "critical"}
    assert len(str(at(rule, "annotations", "summary"))) > 20
    assert len(str(at(rule, "annotations", "description"))) > 20
    assert re.fullmatch(r"\d+[sm]", str(rule["for"]))


def test_the_rules_read_only_what_is_exported() -> None:
    metrics = Metrics()
    everything_happens(metrics)
    exported = Exported.of(metrics).with_recorded(str(rule["record"]) for rule in alert_rules() if "record" in rule)

    assert [fault for rule in alert_rules() for fault in faults(str(rule["expr"]), exported)] == []


def test_every_scraped_name_is_a_service_that_serves_metrics_there() -> None:
    jobs = sequence(yaml.safe_load((FOLDER / "prometheus.yml").read_text()), "scrape_configs")
    services = mapping(compose(), "services")

    for job in jobs:
        for found in mapping(job).get("dns_sd_configs", []):  # type: ignore[union-attr]
            for name in sequence(found, "names"):
                exported = mapping(services[str(name)], "environment").get("DESPACHO_METRICS_PORT", "8000")
                assert str(at(found, "port")) == exported
    assert "rabbitmq_prometheus" in (ROOT / "deploy" / "rabbitmq" / "enabled_plugins").read_text()
