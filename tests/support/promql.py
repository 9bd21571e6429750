"""What a PromQL expression reads: metric names and labels, against what is exported."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Self

from app.telemetry.metrics import Metrics
from tests.support.metrics import samples

_METRIC = re.compile(r"\b(?P<name>(?:despacho|process|rabbitmq)[a-z0-9_:]*|up)\b(?:\{(?P<labels>[^}]*)\})?")
_MATCHER = re.compile(r"(\w+)\s*(?:=~|!~|!=|=)\s*\"")
_GROUPING = re.compile(r"\b(?:by|on|without|ignoring)\s*\(([^)]*)\)")
_STRING = re.compile(r"\"[^\"]*\"")
_TARGET_LABELS = frozenset({"job", "instance"})


@dataclass(frozen=True, slots=True)
class Exported:
    """The metric names that exist, each with its labels; of a recorded series the labels are not known."""

    labels: Mapping[str, frozenset[str]]
    recorded: frozenset[str] = frozenset()

    @classmethod
    def of(cls, metrics: Metrics) -> Self:
        """Read them off a page on which everything has happened."""
        found = {
            name: frozenset().union(*({label for label, _ in row} for row in rows)) | _TARGET_LABELS
            for name, rows in samples(metrics).items()
        }
        return cls({**found, "up": _TARGET_LABELS})

    def with_recorded(self, names: Iterable[str]) -> Self:
        """Add the names of recording rules."""
        return type(self)(self.labels, frozenset(names))


def faults(expression: str, exported: Exported) -> list[str]:
    """Name every metric that is not exported and every label that none of the metrics read has."""
    found: list[str] = []
    known: set[str] = set()
    plain = _STRING.sub('""', expression)
    names = [match["name"] for match in _METRIC.finditer(plain)]
    if not names:
        found.append(f"reads nothing: {expression}")
    for match in _METRIC.finditer(plain):
        name = match["name"]
        if name in exported.recorded:
            known |= {"error_type"}
            continue
        if name not in exported.labels:
            found.append(f"{name} is not exported: {expression}")
            continue
        known |= exported.labels[name]
        found += [
            f"{name} has no label {label}: {expression}"
            for label in _MATCHER.findall(match["labels"] or "")
            if label not in exported.labels[name]
        ]
    grouped = [label.strip() for group in _GROUPING.findall(plain) for label in group.split(",")]
    return found + [
        f"nothing read has the label {label}: {expression}" for label in grouped if label and label not in known
    ]
