import kubernetes_validate
import pytest
import yaml

from app.settings import Settings
from tests.support.deploy_files import DEPLOY, Tree, at, kubernetes, mapping, sequence
from tests.support.env_example import names

VERSIONS = ("1.28", kubernetes_validate.latest_version())
OBJECTS = [pytest.param(document, id=f"{file}-{at(document, 'kind')}") for file, document in kubernetes()]
DEPLOYMENTS = {str(at(d, "metadata", "name")): d for _, d in kubernetes() if at(d, "kind") == "Deployment"}


def pod(deployment: Tree) -> Tree:
    return at(deployment, "spec", "template", "spec")


def container(deployment: Tree) -> Tree:
    return at(pod(deployment), "containers", 0)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("document", OBJECTS)
def test_every_object_follows_its_schema(document: Tree, version: str) -> None:
    kubernetes_validate.validate(mapping(document), version, strict=True)


def test_the_check_itself_can_fail() -> None:
    wrong = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a"}, "spec": {"porst": []}}

    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, VERSIONS[-1], strict=True)


def test_kustomize_takes_every_file_but_the_template() -> None:
    listed = yaml.safe_load((DEPLOY / "kubernetes" / "kustomization.yaml").read_text())["resources"]

    assert set(listed) == {file for file, _ in kubernetes()} - {"secret.example.yaml"}


def test_there_is_a_deployment_for_every_role() -> None:
    roles = {str(at(container(deployment), "args", 0)) for deployment in DEPLOYMENTS.values()}

    assert roles == {"api", "worker", "dispatcher"}
    assert all(int(str(at(d, "spec", "replicas"))) >= 2 for d in DEPLOYMENTS.values())


@pytest.mark.parametrize("name", DEPLOYMENTS)
def test_selectors_find_their_pods(name: str) -> None:
    deployment = DEPLOYMENTS[name]
    labels = mapping(deployment, "spec", "template", "metadata", "labels")

    assert mapping(deployment, "spec", "selector", "matchLabels").items() <= labels.items()
    others = [
        mapping(document, "spec", "selector")
        for _, document in kubernetes()
        if at(document, "kind") == "Service" and at(document, "metadata", "name") == name
    ]
    assert all(selector.items() <= labels.items() for selector in others)


@pytest.mark.parametrize("name", DEPLOYMENTS)
def test_probes_ask_a_port_that_is_served(name: str) -> None:
    part = container(DEPLOYMENTS[name])
    ports = {at(port, "name"): at(port, "containerPort") for port in sequence(part, "ports")}
    served = 8000 if at(part, "args", 0) == "api" else 9100

    assert at(part, "livenessProbe", "httpGet", "path") == "/healthz"
    assert at(part, "readinessProbe", "httpGet", "path") == "/readyz"
    assert ports[at(part, "livenessProbe", "httpGet", "port")] == served
    if served == 9100:
        assert at(part, "env") == [{"name": "DESPACHO_METRICS_PORT", "value": "9100"}]


@pytest.mark.parametrize("name", DEPLOYMENTS)
def test_pods_are_given_the_time_they_need_to_end(name: str) -> None:
    settings = Settings(_env_file=None)
    grace = float(str(at(pod(DEPLOYMENTS[name]), "terminationGracePeriodSeconds")))
    role = at(container(DEPLOYMENTS[name]), "args", 0)

    needed = settings.worker.drain_grace_seconds + settings.worker.cancel_grace_seconds
    assert grace > (settings.api.max_wait_seconds if role == "api" else needed)


@pytest.mark.parametrize("name", DEPLOYMENTS)
def test_pods_have_no_rights(name: str) -> None:
    spec, part = pod(DEPLOYMENTS[name]), container(DEPLOYMENTS[name])

    assert at(spec, "securityContext", "runAsNonRoot") is True
    assert at(spec, "automountServiceAccountToken") is False
    assert mapping(part, "securityContext") == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


def test_only_settings_that_exist_are_set_and_secrets_are_in_the_secret() -> None:
    by_kind = {str(at(document, "kind")): document for _, document in kubernetes()}
    plain, secret = mapping(by_kind["ConfigMap"], "data"), mapping(by_kind["Secret"], "stringData")

    assert {*plain, *secret} <= set(names())
    assert not any(name.endswith(("_URL", "_KEY", "_TOKEN")) for name in plain)
    assert all("CHANGE-ME" in str(value) for value in secret.values())
