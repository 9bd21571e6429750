"""A real Prometheus and its promtool: found, or fetched from Debian's package; no service is installed or started.

The package is downloaded by apt and unpacked beside the project (`build/`), because installing it would start a server
on port 9090 and pull in its web interface's 300 MB of dependencies.
"""

import json
import os
import shutil
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import httpx

from tests.support.install import MissingProgram
from tests.support.ports import free_port
from tests.support.reaper import reaper

ROOT = Path(__file__).resolve().parents[2]
UNPACKED = ROOT / "build" / "prometheus"


@dataclass(frozen=True, slots=True)
class Programs:
    """Where the two programs are."""

    prometheus: Path
    promtool: Path


def ensure_prometheus() -> Programs:
    """Return the programs, from the PATH or from Debian's package. Raises MissingProgram."""
    return _found() or _fetched()


def _found() -> Programs | None:
    for folders in (None, str(UNPACKED / "usr" / "bin")):
        server, tool = shutil.which("prometheus", path=folders), shutil.which("promtool", path=folders)
        if server and tool:
            return Programs(Path(server), Path(tool))
    return None


def _fetched() -> Programs:
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        raise MissingProgram("prometheus and promtool are not in the PATH and this is no Debian: install Prometheus")
    UNPACKED.mkdir(parents=True, exist_ok=True)
    first = _run(["apt-get", "-q", "download", "prometheus"])
    if first.returncode != 0 and os.geteuid() == 0:
        _run(["apt-get", "-q", "update"])
        first = _run(["apt-get", "-q", "download", "prometheus"])
    packages = sorted(UNPACKED.glob("prometheus_*.deb"))
    if first.returncode != 0 or not packages:
        raise MissingProgram(
            "prometheus and promtool are missing and `apt-get download prometheus` failed; "
            f"run `apt-get update` as root, or install Prometheus by other means:\n{first.stdout[-1000:]}"
        )
    unpacked = _run(["dpkg-deb", "-x", packages[-1].name, "."])
    packages[-1].unlink()
    programs = _found()
    if programs is None:
        raise MissingProgram(f"the package prometheus does not hold what it should:\n{unpacked.stdout[-1000:]}")
    return programs


def _run(command: list[str]) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        command,
        cwd=UNPACKED,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=300,
    )


def promtool(*arguments: str, cwd: Path = ROOT) -> str:
    """Run promtool and return what it says; AssertionError with it when it finds fault."""
    answer = subprocess.run(
        [str(ensure_prometheus().promtool), *arguments],
        cwd=cwd,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=120,
    )
    assert answer.returncode == 0, answer.stdout
    return answer.stdout


class RunningPrometheus:
    """A Prometheus on a free loopback port that scrapes `targets` ({job: [host:port]}) five times a second."""

    def __init__(self, targets: Mapping[str, list[str]], rules: Path | None = None) -> None:
        self._folder = reaper().directory("prometheus")
        config: dict[str, object] = {
            "global": {"scrape_interval": "200ms", "scrape_timeout": "200ms", "evaluation_interval": "200ms"},
            "scrape_configs": [
                {"job_name": job, "static_configs": [{"targets": addresses}]} for job, addresses in targets.items()
            ],
        }
        if rules is not None:
            config["rule_files"] = [str(rules)]
        # JSON is YAML.
        (self._folder / "prometheus.yml").write_text(json.dumps(config))

    def __enter__(self) -> Self:
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        self._log = (self._folder / "log").open("w")
        self._process = subprocess.Popen(
            [
                str(ensure_prometheus().prometheus),
                f"--config.file={self._folder / 'prometheus.yml'}",
                f"--storage.tsdb.path={self._folder / 'data'}",
                f"--web.listen-address=127.0.0.1:{port}",
            ],
            stdout=self._log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        reaper().watch(self._process.pid)
        try:
            self._wait_until_ready(30.0)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        try:
            self._process.wait(10.0)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        reaper().forget(self._process.pid)
        self._log.close()

    def query(self, expression: str) -> list[dict[str, object]]:
        """Evaluate an expression now and return the series; AssertionError where Prometheus refuses it."""
        answer = httpx.get(f"{self.url}/api/v1/query", params={"query": expression}, timeout=10, trust_env=False)
        assert answer.status_code == 200, f"{expression}: {answer.text}"
        document = answer.json()
        assert document["status"] == "success", document
        result: list[dict[str, object]] = document["data"]["result"]
        return result

    def eventually(self, expression: str, within_seconds: float = 20.0) -> list[dict[str, object]]:
        """Evaluate an expression until it returns data."""
        deadline = time.monotonic() + within_seconds
        while not (series := self.query(expression)):
            assert time.monotonic() < deadline, f"no data within {within_seconds:g} s: {expression}"
            time.sleep(0.1)
        return series

    def _wait_until_ready(self, within_seconds: float) -> None:
        deadline = time.monotonic() + within_seconds
        while not self._ready():
            said = (self._folder / "log").read_text()[-2000:]
            assert self._process.poll() is None, f"Prometheus ended:\n{said}"
            assert time.monotonic() < deadline, f"Prometheus is not ready within {within_seconds:g} s:\n{said}"
            time.sleep(0.05)

    def _ready(self) -> bool:
        try:
            return httpx.get(f"{self.url}/-/ready", timeout=2, trust_env=False).status_code == 200
        except httpx.TransportError:
            return False
