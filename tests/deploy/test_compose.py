import re

import compose_spec
import pytest
import yaml

from app.settings import Settings
from tests.support.deploy_files import ROOT, at, compose, compose_text, mapping, sequence
from tests.support.env_example import names

ROLES = ("migrate", "api", "worker-urgent", "worker-general", "dispatcher")


def service(name: str) -> dict[str, object]:
    return dict(mapping(compose(), "services", name))


def test_the_file_follows_the_compose_specification() -> None:
    merged = yaml.safe_dump(compose())

    read = compose_spec.PyCompose.from_yaml(merged)

    assert set(read.to_dict()["services"]) == {
        *ROLES,
        "postgres",
        "rabbitmq",
        "prometheus",
        "grafana",
    }


def test_the_check_itself_can_fail() -> None:
    wrong = yaml.safe_dump({"services": {"a": {"image": "x", "portz": [1]}}})

    with pytest.raises(ValueError, match="portz"):
        compose_spec.PyCompose.from_yaml(wrong)


@pytest.mark.parametrize("name", ROLES)
def test_every_role_runs_the_one_image_without_rights(name: str) -> None:
    role = service(name)

    assert role["build"] == "."
    assert (role["read_only"], role["cap_drop"], role["init"]) == (True, ["ALL"], True)
    assert at(role["command"], 0) == name.partition("-")[0]  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ROLES)
def test_only_settings_that_exist_are_set_and_with_values_that_they_take(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = mapping(compose(), "services", name, "environment")
    assert set(environment) <= set(names())
    for variable in names():
        monkeypatch.delenv(variable, raising=False)
    for variable, value in environment.items():
        if value is not None:
            monkeypatch.setenv(variable, str(value))

    settings = Settings(_env_file=None)

    assert settings.database_url is not None
    assert (settings.metrics_port == 9100) is (name.startswith("worker") or name == "dispatcher")


def test_two_dispatchers_stand_for_election_and_the_api_does_not() -> None:
    assert at(compose(), "services", "dispatcher", "deploy", "replicas") == 2
    assert at(compose(), "services", "api", "environment", "DESPACHO_API__HOST_DISPATCHER") == "false"


def test_every_class_is_served_and_the_urgent_ones_have_a_pool_of_their_own() -> None:
    urgent = [str(word) for word in sequence(compose(), "services", "worker-urgent", "command")]
    general = [str(word) for word in sequence(compose(), "services", "worker-general", "command")]

    assert urgent[urgent.index("--classes") + 1] == "critical,short_deadline"
    assert "--classes" not in general


@pytest.mark.parametrize("name", [role for role in ROLES if role != "migrate"])
def test_nothing_starts_before_the_migration_and_draining_has_its_time(name: str) -> None:
    settings = Settings(_env_file=None).worker
    role = compose()

    assert at(role, "services", name, "depends_on", "migrate", "condition") == "service_completed_successfully"
    grace = str(at(role, "services", name, "stop_grace_period"))
    assert float(grace.removesuffix("s")) > settings.drain_grace_seconds + settings.cancel_grace_seconds


def test_what_is_published_is_published_on_the_loopback_address_alone() -> None:
    published = [
        str(port) for part in mapping(compose(), "services").values() for port in mapping(part).get("ports", [])
    ]  # type: ignore[union-attr]

    assert len(published) == 3
    assert all(port.startswith("127.0.0.1:") for port in published)


def test_every_file_that_is_mounted_exists_and_every_volume_is_declared() -> None:
    tree = compose()
    mounts = [
        str(volume).split(":")
        for part in mapping(tree, "services").values()
        for volume in mapping(part).get("volumes", [])  # type: ignore[union-attr]
    ]

    files = [source for source, *_ in mounts if source.startswith("./")]
    assert files
    assert all((ROOT / source).exists() for source in files)
    assert {source for source, *_ in mounts if not source.startswith("./")} == set(mapping(tree, "volumes"))


def test_the_services_health_is_checked_and_images_are_pinned() -> None:
    tree = compose()

    for name, part in mapping(tree, "services").items():
        if name not in ROLES:
            assert re.fullmatch(r"[\w./-]+:v?\d[\w.]*", str(at(part, "image"))), name
    assert at(tree, "services", "postgres", "healthcheck", "test", 1) == "pg_isready"
    assert at(tree, "services", "rabbitmq", "healthcheck", "test", 1) == "rabbitmq-diagnostics"


def test_the_passwords_come_from_the_environment_where_it_has_them() -> None:
    text = compose_text({"POSTGRES_PASSWORD": "mine-1", "RABBITMQ_PASSWORD": "mine-2", "GRAFANA_PASSWORD": "mine-3"})

    assert "despacho-local" not in text
    assert text.count("mine-1") == 2
    assert text.count("mine-2") == 2
