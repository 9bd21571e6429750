"""The systems of a run: each peer found in its environment, or the reason why it cannot be."""

import json
import os
import subprocess
from dataclasses import dataclass, fields
from pathlib import Path

from bench.peers.base import Spec
from bench.system import ROOT, System

RUNNER = ("-m", "bench.peers.run")
SHARES = {
    "celery": 0.1,
    "celery_no_results": 0.3,
    "dramatiq": 0.3,
    "taskiq": 0.3,
    "procrastinate": 0.1,
    "oban": 0.5,
    "awa": 1.0,
}
"""The peers, each with its part of the task count: rates compare; nobody waits a minute for the slowest."""


@dataclass(frozen=True, slots=True)
class Missing:
    """A peer that cannot run here, and why."""

    name: str
    reason: str


def load(name: str, module: str, python: Path) -> System | Missing:
    """Ask the system's module, in its own environment, how it is to be run."""
    command = [str(python), *RUNNER, module, "spec"]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        return Missing(name, (done.stderr or done.stdout).strip().split("\n")[-1])
    answer = json.loads(done.stdout)
    return System(
        name=name,
        python=str(python),
        runner=(*RUNNER, module),
        spec=_spec(answer["spec"]),
        versions=answer["versions"],
        share=SHARES.get(name, 1.0),
    )


def _spec(raw: dict[str, object]) -> Spec:
    return Spec(**{field.name: _frozen(raw[field.name]) for field in fields(Spec)})  # type: ignore[arg-type]


def _frozen(value: object) -> object:
    return tuple(_frozen(item) for item in value) if isinstance(value, list) else value
