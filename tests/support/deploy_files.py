"""The files of the deployment, read as the programs that use them would."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TypeAlias

import yaml

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"

Tree: TypeAlias = "dict[str, Tree] | list[Tree] | str | int | float | bool | None"
"""A YAML or JSON document."""


def at(tree: Tree, *path: str | int) -> Tree:
    """Return the part of a document at `path`; AssertionError where there is none."""
    for step in path:
        if isinstance(tree, dict) and isinstance(step, str):
            assert step in tree, f"no {step!r} among {sorted(tree)}"
            tree = tree[step]
        else:
            assert isinstance(tree, list) and isinstance(step, int), f"no {step!r} in {tree!r}"
            tree = tree[step]
    return tree


def mapping(tree: Tree, *path: str | int) -> dict[str, Tree]:
    """Return the mapping at `path`."""
    found = at(tree, *path)
    assert isinstance(found, dict), found
    return found


def sequence(tree: Tree, *path: str | int) -> list[Tree]:
    """Return the list at `path`."""
    found = at(tree, *path)
    assert isinstance(found, list), found
    return found


def compose_text(environment: Mapping[str, str] | None = None) -> str:
    """Return the compose file with its `${NAME:-default}` filled in, as compose does before anything else."""
    given = environment or {}

    def fill(found: re.Match[str]) -> str:
        return given.get(found["name"]) or (found["default"] or "")

    text = (ROOT / "docker-compose.yml").read_text()
    return re.sub(r"\$\{(?P<name>\w+)(?::-(?P<default>[^}]*))?\}", fill, text)


def compose() -> Tree:
    """Return the compose file with variables filled and merges done."""
    tree: Tree = yaml.safe_load(compose_text())
    return tree


def kubernetes() -> list[tuple[str, Tree]]:
    """Return (file name, document) of every Kubernetes object."""
    return [
        (path.name, document)
        for path in sorted((DEPLOY / "kubernetes").glob("*.yaml"))
        if path.name != "kustomization.yaml"
        for document in yaml.safe_load_all(path.read_text())
    ]


def dashboard() -> Tree:
    """Return the Grafana dashboard."""
    tree: Tree = json.loads((DEPLOY / "grafana" / "dashboards" / "despacho.json").read_text())
    return tree


def dashboard_queries() -> list[tuple[str, str]]:
    """Return (panel title, PromQL) of every query of the dashboard."""
    return [
        (str(at(panel, "title")), str(at(target, "expr")))
        for panel in sequence(dashboard(), "panels")
        for target in (sequence(panel, "targets") if at(panel, "type") != "row" else [])
    ]


def alert_rules() -> list[dict[str, Tree]]:
    """Return every alert and recording rule."""
    groups = sequence(yaml.safe_load((DEPLOY / "prometheus" / "alerts.yml").read_text()), "groups")
    return [mapping(rule) for group in groups for rule in sequence(group, "rules")]


def filled(query: str, *, interval: str = "1m", priority_class: str = ".*", type_: str = ".*") -> str:
    """Fill Grafana's variables in a query."""
    query = query.replace("$__rate_interval", interval)
    return query.replace("$priority_class", priority_class).replace("$type", type_)
